package redact_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"millrace/internal/observe/redact"
)

func TestTarget(t *testing.T) {
	for in, want := range map[string]string{
		"/ws":                                        "/ws",
		"/ws?token=abc.def":                          "/ws?token=...",
		"/sse?channel=a&token=x&b=1":                 "/sse?channel=a&token=...&b=1",
		"/?access_token=x":                           "/?access_token=...",
		"/?tokens=x&tokenizer=y&token=":              "/?tokens=x&tokenizer=y&token=",
		"/token=x":                                   "/token=x",
		"/?%74oken=x":                                "/?%74oken=...",
		"/?%2574oken=x&y=1":                          "/?%2574oken=...&y=1",
		"/?t%25%36%66ken=x&%25%37%34oken=y":          "/?t%25%36%66ken=...&%25%37%34oken=...",
		"/a.jpg?w=1&signature=x&sig=y":               "/a.jpg?w=1&signature=...&sig=...",
		"/?%25%36":                                   "/?%25%36",
		"/?%25%3":                                    "/?%25%3",
		"/?to%6Ben%3Dx":                              "/?to%6Ben%3D...",
		"/?Token=x&ACCESS-TOKEN=y":                   "/?Token=...&ACCESS-TOKEN=...",
		"/?+token=x&%20token=y&access.token=z":       "/?+token=...&%20token=...&access.token=...",
		"/?csrf_token=x":                             "/?csrf_token=...",
		"/?user[password]=x&token[]=y":               "/?user[password]=...&token[]=...",
		"/?a=1;token=x;y&b=2":                        "/?a=1;token=...&b=2",
		"/;jsessionid=x?y=1":                         "/;jsessionid=...", // more than need be: the value might hold a question mark
		"/?token=a=b=c":                              "/?token=...",
		"/?next=%2Fws%3Ftoken%3Dabc%26b&c=1":         "/?next=%2Fws%3Ftoken%3D...&c=1",
		"/?next=%252Fws%253Ftoken%253Dabc":           "/?next=%252Fws%253Ftoken%253D...",
		"/?u=/b?token=abc":                           "/?u=/b?token=...",
		"/cb#access_token=x&state=1":                 "/cb#access_token=...&state=1",
		`/?token=a"b`:                                "/?token=...",
		"http://ann:secret@a.test/?x":                "http://...@a.test/?x",
		"http://a.test/@ann":                         "http://a.test/@ann",
		"nats://s3cret@bus":                          "nats://...@bus",
		"https://a.test/?token=x&to=b@c.test":        "https://a.test/?token=...&to=b@c.test",
		"/?password=x&pwd=y&api_key=z&jwt=w":         "/?password=...&pwd=...&api_key=...&jwt=...",
		"/?X-Amz-Security-Token=x&X-Amz-Signature=y": "/?X-Amz-Security-Token=...&X-Amz-Signature=...",
		"/cb?code=4/abc&state=1":                     "/cb?code=...&state=1",
		"/?key=a&api_key=b&apiKey=c&X-API-Key=d":     "/?key=...&api_key=...&apiKey=...&X-API-Key=...",
		"/?AWSAccessKeyId=a&Signature=b&Expires=1":   "/?AWSAccessKeyId=...&Signature=...&Expires=1",
		"/?id_token=a&refresh_token=b&sid=c&pin=d":   "/?id_token=...&refresh_token=...&sid=...&pin=...",
		"/?SAMLResponse=a&ticket=b&otp=c&auth=d":     "/?SAMLResponse=...&ticket=...&otp=...&auth=...",
		"/?subscription-key=a&dbPassword=b&key[]=c":  "/?subscription-key=...&dbPassword=...&key[]=...",
		"/?error_code=1&country_code=DE&zipcode=2":   "/?error_code=1&country_code=DE&zipcode=2",
		"/?keyword=a&monkey=b&keys=c&decode=d&spin=": "/?keyword=a&monkey=b&keys=c&decode=d&spin=",
		"/?next=%2Fcb%3Fcode%3Da%26b&x=1":            "/?next=%2Fcb%3Fcode%3D...&x=1",
		"/?sessionKey=a&MFACode=1&deviceCode=b&q=c":  "/?sessionKey=...&MFACode=1&deviceCode=...&q=c",
		"/?asp.net_sessionid=a&connect.sid=b":        "/?asp.net_sessionid=...&connect.sid=...",
		"/?%":                                        "/?%",
		"/?%7":                                       "/?%7",
		"/?token%=a":                                 "/?token%=a",
		"/?%zz&token=":                               "/?%zz&token=",
		"":                                           "",
		"/?" + strings.Repeat("a", 100) + "token=x":  "/?" + strings.Repeat("a", 100) + "token=x",
	} {
		if got := redact.Target(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		if got := redact.Target(want); got != want {
			t.Errorf("%q became %q the second time", want, got)
		}
		if needed := redact.Needed(in); needed != (in != want) {
			t.Errorf("%q: needed is %v", in, needed)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		`Get "http://up:1/x?token=abc": dial tcp: refused`:     `Get "http://up:1/x?token=...": dial tcp: refused`,
		`Get "http://up:1/x?token=a\"b": refused`:              `Get "http://up:1/x?token=...": refused`,
		`dial redis://u:p@h:1 or nats://x@h: refused`:          `dial redis://...@h:1 or nats://...@h: refused`,
		"two: /a?token=x and /b?%74oken=y&z=1":                 "two: /a?token=... and /b?%74oken=...&z=1",
		"nothing = secret, 100% sure, write to ann@a.test":     "nothing = secret, 100% sure, write to ann@a.test",
		"URL query contains semicolon, which is not supported": "URL query contains semicolon, which is not supported",
	} {
		if got := redact.Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestInPlace(t *testing.T) {
	in, want := "bus: nats://ünal@h # /?token=ab", "bus: nats://****@h # /?token=**"
	if got := redact.InPlace(in); got != want {
		t.Errorf("%q became %q, want %q", in, got, want)
	}
}

// TestNoAllocations: the fast lane asks for every line of the log.
func TestNoAllocations(t *testing.T) {
	b := make([]byte, 0, 256)
	for _, target := range []string{"/a.css?v=12", "/?token=x&%74oken=y", "http://a@b/"} {
		if n := testing.AllocsPerRun(100, func() {
			if redact.Needed(target) {
				b = redact.AppendTarget(b[:0], target)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", target, n)
		}
	}
}

type credentials struct{ URL string }

func (credentials) LogValue() slog.Value { return slog.StringValue("/?token=s3cret") }

func TestHandler(t *testing.T) {
	var b strings.Builder
	log := slog.New(redact.Handler(redact.Handler(slog.NewTextHandler(&b, nil))))
	err := &url.Error{Op: "Get", URL: "http://a.test/?token=s3cret", Err: errors.New("refused")}
	log.With("first", "/?token=s3cret").WithGroup("g").Error("at /?token=s3cret", "target", `/?token="s3cret`,
		"err", fmt.Errorf("wrapped: %w", err), "cause", struct{ A string }{"/?token=s3cret"}, "n", 1,
		"made", credentials{}, slog.Group("h", "x", "redis://:s3cret@h"), "same", errors.New("as it was"))
	if got := b.String(); strings.Contains(got, "s3cret") || !strings.Contains(got, `g.same="as it was"`) || !strings.Contains(got, "g.n=1") {
		t.Errorf("logged: %s", got)
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("/?token=abc", "abc")
	f.Add("/?%74oken=a&b", "q")
	f.Fuzz(func(t *testing.T, before, value string) {
		once := redact.Target(before)
		if twice := redact.Target(once); twice != once {
			t.Errorf("%q became %q, then %q", before, once, twice)
		}
		redact.Text(before)
		redact.InPlace(before)
		value = "5ecret" + url.QueryEscape(value)
		if got := redact.Target("/?a=1&%74o%6ben=" + value + "&b=2"); strings.Contains(got, "5ecret") {
			t.Errorf("%q is shown in %q", value, got)
		}
	})
}
