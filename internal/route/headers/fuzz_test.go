package headers

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzOrigin holds our reading of an origin against net/url's, and what is
// allowed against the words of the pattern.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{
		"https://a.example.org", "https://example.org", "https://evil-example.org", "HTTPS://A.EXAMPLE.ORG:443", "https://a.example.org:80",
		"https://x@a.example.org", "https://x/.example.org", "http://[::1]:80", "null", "https://x\x00.example.org", "https://x?.example.org",
		"https://.example.org", "https://example.org.", "https://a.example.org:00443",
	} {
		f.Add(seed)
	}
	p := policy(f, CORSOptions{Origins: []string{"https://*.example.org", "http://one.test"}})
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseOrigin(text)
		if err == nil && text != "null" {
			u, err := url.Parse(text)
			if err != nil || u.Host == "" || u.Path != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
				t.Fatalf("%q is an origin: %v", text, err)
			}
			if again, err := parseOrigin(o.String()); err != nil || again != o {
				t.Errorf("%q is %q, and that %q, %v", text, o, again, err)
			}
			if o.scheme != u.Scheme || o.host[0] != '[' && o.host != strings.ToLower(u.Hostname()) {
				t.Errorf("%q is %q", text, o)
			}
		}
		r := request(http.MethodOptions, "Origin", text, requestMethod, "PUT")
		w := httptest.NewRecorder()
		was, class := p.Preflight(w, r), p.Class(r)
		if was != (text != "") {
			t.Errorf("%q: a preflight is %v", text, was)
		}
		h := http.Header{}
		p.Apply(h, r)
		switch class {
		case "":
			if text != "" {
				t.Errorf("%q makes no difference", text)
			}
		case "0", "1":
			u, err := url.Parse(text)
			if err != nil || class == "0" && (u.Scheme != "https" || !strings.HasSuffix(strings.ToLower(u.Hostname()), ".example.org")) ||
				class == "1" && (u.Scheme != "http" || strings.ToLower(u.Hostname()) != "one.test") {
				t.Errorf("%q is allowed by rule %s", text, class)
			}
			if h.Get(allowOrigin) != text || w.Code != http.StatusNoContent {
				t.Errorf("%q got %v, status %d", text, h, w.Code)
			}
		case CORSDenied:
			if h[allowOrigin] != nil || w.Header()[allowOrigin] != nil || w.Code != http.StatusForbidden {
				t.Errorf("%q got %v, status %d", text, h, w.Code)
			}
		}
	})
}

// FuzzOptions: what Check lets through works, and its answers are fit to be sent.
func FuzzOptions(f *testing.F) {
	f.Add("https://a.example,https://*.b.example", "PUT", "X-A", "x-b", "https://c.b.example")
	f.Add("*", "*", "*", "a,b", "null")
	f.Add("null", "*", "*", "a\r\nSet-Cookie: x", "null")
	f.Fuzz(func(t *testing.T, text, method, header, asked, from string) {
		var o CORSOptions
		if err := o.UnmarshalText([]byte(text)); err != nil {
			return
		}
		o.Methods, o.Headers, o.Expose = []string{method}, []string{header}, []string{header}
		p, err := NewCORS(o)
		if (err == nil) != (len(o.Check()) == 0) {
			t.Fatalf("%v: %v and %v", o, err, o.Check())
		}
		if p == nil {
			return
		}
		r := request(http.MethodOptions, "Origin", from, requestMethod, asked, requestHeaders, asked)
		w := httptest.NewRecorder()
		p.Preflight(w, r)
		h := w.Header()
		p.Apply(h, r)
		for name, values := range h {
			for _, value := range values {
				if strings.ContainsAny(value, "\r\n\x00") {
					t.Errorf("%s: %q", name, value)
				}
			}
		}
	})
}
