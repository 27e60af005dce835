package cache

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// What may be one user's never reaches another.
func TestPrivacy(t *testing.T) {
	private := func(n int, r *http.Request) *http.Response {
		return say(200, "for "+r.Header.Get("Cookie")+r.Header.Get("Authorization"), "Cache-Control", "max-age=60")
	}
	for name, c := range map[string]struct {
		options Options
		header  [2]string
		want    string // what the upstream saw of it
		hit     bool
	}{
		"cookie":               {Options{}, [2]string{"Cookie", "sid=alice"}, "for sid=alice", false},
		"authorization":        {Options{}, [2]string{"Authorization", "Bearer alice"}, "for Bearer alice", false},
		"authorization, rfc":   {Options{Preset: "rfc9111"}, [2]string{"Authorization", "Bearer alice"}, "for Bearer alice", false},
		"cookie, shared":       {Options{Rules: []Rule{{Path: "/*", Share: true}}}, [2]string{"Cookie", "sid=alice"}, "for ", true},
		"cookie, assets":       {Options{Preset: "assets"}, [2]string{"Cookie", "sid=alice"}, "for ", true},
		"authorization, share": {Options{Rules: []Rule{{Share: true}}}, [2]string{"Authorization", "x"}, "for ", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCache(t, c.options, &origin{answer: private})
			if w := asked(t, h, "GET", "http://a.example/", c.header[0], c.header[1]); w.Body.String() != c.want {
				t.Errorf("first: %q", w.Body)
			}
			w := asked(t, h, "GET", "http://a.example/", c.header[0], strings.Replace(c.header[1], "alice", "bob", 1))
			if strings.Contains(w.Body.String(), "alice") || isHit(t, w) != c.hit {
				t.Errorf("second: %q, hit %v", w.Body, isHit(t, w))
			}
			if w := asked(t, h, "GET", "http://a.example/"); strings.Contains(w.Body.String(), "alice") {
				t.Errorf("without: %q", w.Body)
			}
		})
	}
}

func TestSetCookie(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60", "Set-Cookie", "sid=1")
	}}
	for preset, kept := range map[string]bool{"api": false, "assets": false, "rfc9111": true} {
		h := newCache(t, Options{Preset: preset}, up)
		asked(t, h, "GET", "http://a.example/")
		if w := asked(t, h, "GET", "http://a.example/"); isHit(t, w) != kept {
			t.Errorf("%s: hit %v", preset, isHit(t, w))
		}
	}
}

func TestKeyedCookie(t *testing.T) {
	up := &origin{answer: func(_ int, r *http.Request) *http.Response {
		return say(200, r.Header.Get("Cookie"), "Cache-Control", "max-age=60")
	}}
	o := Options{}
	o.Key.Cookies = []string{"lang"}
	h := newCache(t, o, up)
	for _, c := range [][3]string{
		{"lang=de; sid=alice", "lang=de", "miss"},
		{"sid=bob; lang=de", "lang=de", "hit"},
		{"lang=en", "lang=en", "miss"},
	} {
		w := asked(t, h, "GET", "http://a.example/", "Cookie", c[0])
		if w.Body.String() != c[1] || isHit(t, w) != (c[2] == "hit") {
			t.Errorf("%s: %q, hit %v", c[0], w.Body, isHit(t, w))
		}
	}
}

// Request headers that are in no key cannot choose what others get.
func TestPoison(t *testing.T) {
	up := &origin{answer: func(_ int, r *http.Request) *http.Response {
		var b strings.Builder
		for name, values := range r.Header {
			b.WriteString(name + ": " + strings.Join(values, ",") + "\n")
		}
		return say(200, b.String(), "Cache-Control", "max-age=60")
	}}
	h := newCache(t, Options{Preset: "rfc9111"}, up)
	pairs := []string{"X-Forwarded-Host", "evil", "X-Forwarded-For", "evil", "Forwarded", "for=evil;host=evil"}
	for _, name := range overrides {
		pairs = append(pairs, name, "evil")
	}
	if w := asked(t, h, "GET", "http://a.example/", pairs...); strings.Contains(w.Body.String(), "evil") {
		t.Errorf("the upstream saw:\n%s", w.Body)
	}
}

// A field that Connection names does not reach the upstream: what that answers
// is not what others get who send the same without Connection.
func TestConnectionDoesNotPoison(t *testing.T) {
	up := &origin{answer: func(_ int, r *http.Request) *http.Response {
		return say(200, "for "+r.Header.Get("X-Kind"), "Cache-Control", "max-age=60", "Vary", "X-Kind")
	}}
	byVary, byKey := Options{}, Options{}
	byKey.Key.Headers = []string{"X-Kind"}
	for name, o := range map[string]Options{"vary": byVary, "key": byKey} {
		h := newCache(t, o, up)
		asked(t, h, "GET", "http://a.example/", "X-Kind", "one", "Connection", "keep-alive, x-kind")
		if w := asked(t, h, "GET", "http://a.example/", "X-Kind", "one", "Connection", "keep-alive"); w.Body.String() != "for one" {
			t.Errorf("%s: %q", name, w.Body)
		}
	}
}

// What depends on the client's address, as the upstream sees it, is that client's.
func TestVaryByAddress(t *testing.T) {
	for _, field := range []string{"X-Forwarded-For", "Forwarded"} {
		h := newCache(t, Options{}, &origin{answer: func(n int, r *http.Request) *http.Response {
			if r.Header.Get("If-None-Match") != "" {
				return say(304, "", "Vary", field)
			}
			return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60", "Vary", field)
		}})
		for range 2 {
			if w := asked(t, h, "GET", "http://a.example/"); isHit(t, w) {
				t.Errorf("%s: an answer for another address", field)
			}
		}
	}
}
