package rfc9111

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var connection = []string{
	"Keep-Alive: timeout=5", "Proxy-Connection: x", "Te: x", "Trailer: x", "Transfer-Encoding: chunked", "Upgrade: x",
	"Proxy-Authenticate: x", "Proxy-Authentication-Info: x", "Proxy-Authorization: x",
}

func TestStorable(t *testing.T) { // 3.1
	kept := []string{
		"Date: " + on(0), "Cache-Control: max-age=60", "Set-Cookie: a=b", "Set-Cookie: c=d", "Content-Foo: x", "Content-Length: 5",
		"Etag: \"a\"", "Clear-Site-Data: cache", "C: 3", "Cdn-Cache-Control: max-age=5",
	}
	h := header(append(append([]string{"Connection: close, a", "Connection: B,Content-Type", "A: 1", "B: 2", "Age: 7"}, connection...), kept...)...)
	h["Content-Type"] = []string{"text/plain"} // that Connection may not take away
	before := h.Clone()
	got := (&Policy{Targets: []string{"CDN-Cache-Control"}}).Storable(h, noon)
	want := header(append(kept, "Content-Type: text/plain")...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got["C"][0] = "changed"; h.Get("C") != "3" || cmp.Diff(before, h) != "" {
		t.Error("the argument has changed")
	}
}

func TestStorableWithheld(t *testing.T) { // 5.2.2.4, 5.2.2.7
	h := header(`Cache-Control: no-cache="a, vary", private=b, max-age=5`, "A: 1", "B: 2", "C: 3", "Vary: C", "Date: "+on(0))
	got := (&Policy{}).Storable(h, noon)
	if got["A"] != nil || got["B"] != nil || got["C"] == nil || got["Vary"] == nil {
		t.Errorf("kept %v", got)
	}
	h.Set("Cdn-Cache-Control", "max-age=5") // then Cache-Control says nothing
	if got = (&Policy{Targets: []string{"Cdn-Cache-Control"}}).Storable(h, noon); got["A"] == nil {
		t.Errorf("with a target, kept %v", got)
	}
}

func TestStorableDate(t *testing.T) { // RFC 9110, 6.6.1
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{nil, on(0)},
		{[]string{"Date: foo"}, on(0)},
		{[]string{"Date: " + on(5), "Date: " + on(6)}, on(0)},
		{[]string{"Date: " + on(-time.Hour)}, on(-time.Hour)},
		{[]string{"Date: Sunday, 06-Nov-94 08:49:37 GMT"}, "Sunday, 06-Nov-94 08:49:37 GMT"},
	} {
		got := (&Policy{}).Storable(header(c.lines...), noon.In(time.FixedZone("", 3600)))
		if len(got["Date"]) != 1 || got.Get("Date") != c.want {
			t.Errorf("%q: %q", c.lines, got["Date"])
		}
	}
}

func TestFreshen(t *testing.T) { // 3.2, 4.3.4
	stored := header(
		"Date: "+on(-time.Hour), "Cache-Control: max-age=1", "Etag: \"a\"", "Last-Modified: "+on(-2*time.Hour),
		"Content-Type: text/plain", "Content-Length: 5", "Content-Encoding: gzip", "Content-Md5: x", "Content-Range: x",
		"Set-Cookie: a=1", "Set-Cookie: a=2", "A: 1", "Only: stored", "Age: 9",
	)
	notModified := header(append([]string{
		"Date: " + on(0), "Cache-Control: max-age=2", "Etag: \"a\"", "Last-Modified: " + on(-time.Minute),
		"Content-Type: text/html", "Content-Length: 6", "Content-Encoding: br", "Content-Md5: y", "Content-Range: y",
		"Set-Cookie: a=3", "A: 2", "New: 1", "Connection: Named", "Named: 1",
	}, connection...)...)
	before, before304 := stored.Clone(), notModified.Clone()
	got := (&Policy{}).Freshen(stored, notModified, noon)
	want := header(
		"Date: "+on(0), "Cache-Control: max-age=2", "Etag: \"a\"", "Last-Modified: "+on(-time.Minute),
		"Content-Type: text/html", "Content-Length: 5", "Content-Encoding: gzip", "Content-Md5: x", "Content-Range: x",
		"Set-Cookie: a=3", "A: 2", "New: 1", "Only: stored",
	)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, values := range got {
		values[0] = "changed"
	}
	if cmp.Diff(before, stored)+cmp.Diff(before304, notModified) != "" {
		t.Error("an argument has changed")
	}
}

func TestFreshenAgeAndDate(t *testing.T) {
	p := &Policy{}
	stored := header("Date: "+on(-time.Hour), "Age: 9", "Cache-Control: max-age=60", `Etag: "a"`)
	// Neither the old Age nor the old Date may speak for what was just validated.
	got := p.Freshen(stored, http.Header{}, noon)
	if f, reason := p.Judge(get(), 200, got, noon, noon); reason != "" || f.Age != 0 || f.Fresh != time.Minute {
		t.Errorf("after an empty 304: %+v (%q)", f, reason)
	}
	got = p.Freshen(stored, header("Age: 3", "Date: nonsense"), noon)
	if f, _ := p.Judge(get(), 200, got, noon, noon); f.Age != 3*time.Second {
		t.Errorf("after a 304 with Age: %+v", f)
	}
	got = p.Freshen(stored, header(`Cache-Control: no-cache="x-a"`, "X-A: 1"), noon)
	if got["X-A"] != nil {
		t.Error("a field is kept that the 304 withholds")
	}
}

func TestFreshenValidators(t *testing.T) { // 4.3.4
	a, b := "Last-Modified: "+on(-time.Hour), "Last-Modified: "+on(-time.Minute)
	for _, c := range []struct{ stored, notModified, want []string }{
		{[]string{`Etag: "a"`}, []string{`Etag: "b"`}, []string{`Etag: "a"`}},
		{[]string{`Etag: W/"a"`}, []string{`Etag: "a"`}, []string{`Etag: W/"a"`}},
		{[]string{`Etag: "a"`, a}, []string{`Etag: "b"`, b}, []string{`Etag: "a"`, a}},
		{[]string{`Etag: "a"`, a}, []string{`Etag: "a"`, b}, []string{`Etag: "a"`, b}},
		{[]string{a}, []string{b}, []string{a}},
		{[]string{a}, []string{a, `Etag: "a"`}, []string{a, `Etag: "a"`}},
		{[]string{a}, []string{b, `Etag: "b"`}, []string{a}},
		{[]string{a}, nil, []string{a}},
		{[]string{`Etag: "a"`}, []string{`Etag: "a"`, a}, []string{`Etag: "a"`, a}},
	} {
		got := (&Policy{}).Freshen(header(c.stored...), header(c.notModified...), noon)
		delete(got, "Date")
		if diff := cmp.Diff(header(c.want...), got); diff != "" {
			t.Errorf("%q by %q: %s", c.stored, c.notModified, diff)
		}
	}
}

func TestHidden(t *testing.T) {
	p := Policy{Targets: []string{"Own-CC", "CDN-Cache-Control"}, Surrogate: true}
	if diff := cmp.Diff([]string{"Own-Cc", "Surrogate-Control"}, p.Hidden()); diff != "" {
		t.Error(diff)
	}
}
