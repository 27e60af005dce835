package condition

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

var modified = time.Date(1994, time.November, 6, 8, 49, 37, 0, time.UTC)

const (
	same   = "Sun, 06 Nov 1994 08:49:37 GMT"
	before = "Sun, 06 Nov 1994 08:49:36 GMT"
	after  = "Sun, 06 Nov 1994 08:49:38 GMT"
)

func header(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Add(kv[i], kv[i+1])
	}
	return h
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, method, etag string
		h                  http.Header
		want               Result
	}{
		{"none", "GET", `"a"`, header(), Proceed},
		{"if-match hit", "GET", `"a"`, header("If-Match", `"x", "a"`), Proceed},
		{"if-match miss", "GET", `"a"`, header("If-Match", `"x"`), PreconditionFailed},
		{"if-match is strong", "GET", `W/"a"`, header("If-Match", `W/"a"`), PreconditionFailed},
		{"if-match star", "GET", "", header("If-Match", `*`), Proceed},
		{"if-match without a tag here", "GET", "", header("If-Match", `""`), PreconditionFailed},
		{"if-match malformed", "GET", `"a"`, header("If-Match", `a`), PreconditionFailed},
		{"star is not a list member", "GET", `"a"`, header("If-Match", `"x", *`), PreconditionFailed},
		{"if-match beats if-unmodified-since", "GET", `"a"`, header("If-Match", `"a"`, "If-Unmodified-Since", before), Proceed},
		{"if-match hit then if-none-match hit", "GET", `"a"`, header("If-Match", `"a"`, "If-None-Match", `"a"`), NotModified},
		{"if-unmodified-since older", "GET", `"a"`, header("If-Unmodified-Since", before), PreconditionFailed},
		{"if-unmodified-since same", "GET", `"a"`, header("If-Unmodified-Since", same), Proceed},
		{"if-unmodified-since nonsense", "GET", `"a"`, header("If-Unmodified-Since", "yesterday"), Proceed},
		{"if-none-match hit", "GET", `"a"`, header("If-None-Match", `"a"`), NotModified},
		{"if-none-match hit on head", "HEAD", `"a"`, header("If-None-Match", `"a"`), NotModified},
		{"if-none-match hit on put", "PUT", `"a"`, header("If-None-Match", `"a"`), PreconditionFailed},
		{"if-none-match star", "GET", ``, header("If-None-Match", ` * `), NotModified},
		{"if-none-match is weak", "GET", `"a"`, header("If-None-Match", `W/"a"`), NotModified},
		{"if-none-match lower-case w", "GET", `"a"`, header("If-None-Match", `w/"a"`), Proceed},
		{"if-none-match second line", "GET", `"a"`, header("If-None-Match", `"x"`, "If-None-Match", `"a"`), NotModified},
		{"if-none-match empty members", "GET", `"a"`, header("If-None-Match", `, ,"x",,	"a"`), NotModified},
		{"if-none-match tag with comma", "GET", `"b"`, header("If-None-Match", `"a,"b""`), Proceed},
		{"if-none-match unclosed", "GET", `"a"`, header("If-None-Match", `"a`), Proceed},
		{"if-none-match space in tag", "GET", `"a b"`, header("If-None-Match", `"a b"`), Proceed},
		{"if-none-match miss hides if-modified-since", "GET", `"a"`, header("If-None-Match", `"x"`, "If-Modified-Since", same), Proceed},
		{"if-modified-since same", "GET", `"a"`, header("If-Modified-Since", same), NotModified},
		{"if-modified-since later", "GET", `"a"`, header("If-Modified-Since", after), NotModified},
		{"if-modified-since earlier", "GET", `"a"`, header("If-Modified-Since", before), Proceed},
		{"if-modified-since twice", "GET", `"a"`, header("If-Modified-Since", same, "If-Modified-Since", same), Proceed},
		{"if-modified-since on post", "POST", `"a"`, header("If-Modified-Since", same), Proceed},
		{"rfc 850", "GET", `"a"`, header("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT"), NotModified},
		{"asctime", "GET", `"a"`, header("If-Modified-Since", "Sun Nov  6 08:49:37 1994"), NotModified},
		{"another zone", "GET", `"a"`, header("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 CET"), Proceed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Check(c.method, c.h, c.etag, modified); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestNoDateNoDateCondition(t *testing.T) {
	for _, field := range []string{"If-Modified-Since", "If-Unmodified-Since"} {
		if got := Check("GET", header(field, same), "", time.Time{}); got != Proceed {
			t.Errorf("%s without Last-Modified: %v", field, got)
		}
	}
}

func TestFractionsOfASecondDoNotCount(t *testing.T) {
	if got := Check("GET", header("If-Modified-Since", same), "", modified.Add(900*time.Millisecond)); got != NotModified {
		t.Errorf("got %v, want %v", got, NotModified)
	}
}

func ranges(h http.Header, etag string, modified time.Time) bool {
	f := Of(h)
	return f.Ranges(etag, modified)
}

func TestIfRange(t *testing.T) {
	for _, c := range []struct {
		name string
		h    http.Header
		etag string
		want bool
	}{
		{"none", header(), `"a"`, true},
		{"tag", header("If-Range", `"a"`), `"a"`, true},
		{"other tag", header("If-Range", `"b"`), `"a"`, false},
		{"weak", header("If-Range", `W/"a"`), `W/"a"`, false},
		{"list", header("If-Range", `"a", "b"`), `"a"`, false},
		{"date", header("If-Range", same), `"a"`, true},
		{"later date", header("If-Range", after), `"a"`, false},
		{"earlier date", header("If-Range", before), `"a"`, false},
		{"two lines", header("If-Range", same, "If-Range", same), `"a"`, false},
		{"nonsense", header("If-Range", `a`), `a`, false},
	} {
		if got := ranges(c.h, c.etag, modified); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestIfRangeDateBecomesStrongAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		h := header("If-Range", now.Format(http.TimeFormat))
		if ranges(h, "", now) {
			t.Error("the date of this very second was taken for a strong validator")
		}
		time.Sleep(time.Second)
		if !ranges(h, "", now) {
			t.Error("a date one second old was refused")
		}
	})
}

func TestTwoDigitYears(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for in, want := range map[string]int{
		"Sunday, 06-Nov-94 08:49:37 GMT":    1994,
		"Wednesday, 06-Nov-30 08:49:37 GMT": 2030,
		"Wednesday, 06-Nov-76 08:49:37 GMT": 2076,
		"Wednesday, 06-Nov-77 08:49:37 GMT": 1977,
	} {
		got, ok := ParseDate(in, now)
		if !ok || got.Year() != want {
			t.Errorf("%s: %v, %v; want the year %d", in, got, ok, want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(`"a", W/"b"`, `"a"`, same)
	f.Add(`*`, `W/"a"`, "Sunday, 06-Nov-94 08:49:37 GMT")
	f.Add(`,,"`, ``, "Sun Nov  6 08:49:37 1994")
	f.Fuzz(func(t *testing.T, list, etag, since string) {
		_, _, whole := scanTag(etag)
		for _, method := range []string{"GET", "PUT"} {
			h := header("If-Match", list, "If-None-Match", list, "If-Modified-Since", since, "If-Range", list)
			got := Check(method, h, etag, modified)
			// The same list decides both: what matches strongly matches weakly too.
			if got == Proceed {
				t.Errorf("%s: If-Match and If-None-Match both held for %q with %q", method, list, etag)
			}
			ranges(h, etag, modified)
		}
		if !whole {
			return
		}
		if _, rest, _ := scanTag(etag); rest != "" {
			return
		}
		if got := Check("GET", header("If-None-Match", `"other!", `+etag), etag, modified); got != NotModified {
			t.Errorf("%q does not find itself in a list: %v", etag, got)
		}
	})
}
