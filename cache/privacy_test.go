package cache

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// Where the RFC alone decides, a cookie is one client's own unless the answer
// that sets it says how long it is good for all: a lifetime of ours is no word of
// the upstream, nor is what an earlier answer said.
func TestSetCookieWithoutFreshness(t *testing.T) {
	always, minute := "", time.Minute
	for name, o := range map[string]Options{
		"ttl":           {Preset: "rfc9111", TTL: time.Hour},
		"no ttl":        {Preset: "rfc9111"},
		"rule":          {Preset: "rfc9111", Rules: []Rule{{Path: always, TTL: &minute}}},
		"stale windows": {Preset: "rfc9111", TTL: time.Hour, StaleIfError: time.Hour, StaleWhileRevalidate: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newCache(t, o, &origin{answer: func(n int, _ *http.Request) *http.Response {
				time.Sleep(100 * time.Millisecond)
				return say(200, "page", "Set-Cookie", "sid="+strconv.Itoa(n))
			}})
			defer h.Close()
			seen := map[string]bool{}
			for range 2 { // who waits for another's answer, and who comes later
				answers, _ := crowd(h, 5, "http://a.example/")
				for _, w := range answers {
					sid := w.Header().Get("Set-Cookie")
					if seen[sid] || sid == "" {
						t.Errorf("%s: %q went to two", name, sid)
					}
					seen[sid] = true
				}
			}
		})
	}
}

// A 304 or an answer to HEAD that sets a cookie has to say itself that this is
// for all: the lifetime of the stored answer, which had none, does not.
func TestSetCookieOfAnUpdate(t *testing.T) {
	for _, method := range []string{"HEAD", "GET"} {
		synctest.Test(t, func(t *testing.T) {
			h := newCache(t, Options{Preset: "rfc9111"}, &origin{answer: func(n int, r *http.Request) *http.Response {
				switch {
				case r.Header.Get("If-None-Match") != "":
					return say(304, "", "Set-Cookie", "sid="+strconv.Itoa(n))
				case r.Method == "HEAD":
					return say(200, "page", "Etag", `"1"`, "Set-Cookie", "sid="+strconv.Itoa(n))
				}
				return say(200, "page", "Cache-Control", "max-age=10", "Etag", `"1"`)
			}})
			defer h.Close()
			asked(t, h, "GET", "http://a.example/")
			if method == "GET" {
				time.Sleep(time.Minute)
				asked(t, h, "GET", "http://a.example/")
			} else {
				asked(t, h, "HEAD", "http://a.example/", "Cache-Control", "no-cache") // on its own way
			}
			if w := asked(t, h, "GET", "http://a.example/"); w.Header()["Set-Cookie"] != nil || w.Body.String() != "page" {
				t.Errorf("%s: %q and the cookie %q of another client", method, w.Body, w.Header()["Set-Cookie"])
			}
		})
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
	for _, name := range []string{
		"X-Original-Url", "X-Rewrite-Url", "X-Original-Host", "X-Host", "X-Forwarded-Server", "X-Forwarded-Scheme", "X-Forwarded-Prefix",
		"X-Http-Method-Override", "X_http_method_override", "X-Http-Method", "X-Method-Override", "X-Original-Method", "Content-Type",
		"If_none_match", "Accept_language", "X.forwarded.host", "Surrogate-Capability", "Early-Data",
	} {
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

// An address in the key is the one that the upstream sees, not what a client says.
func TestKeyedAddress(t *testing.T) {
	o := Options{}
	o.Key.Headers = []string{"X-Forwarded-For"}
	h := newCache(t, o, &origin{answer: func(_ int, r *http.Request) *http.Response {
		return say(200, "for "+r.Header.Get("X-Forwarded-For"), "Cache-Control", "max-age=60")
	}})
	for _, address := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
		r := httptest.NewRequest("GET", "http://a.example/", nil)
		r.RemoteAddr = address + ":1"
		r.Header.Set("X-Forwarded-For", "203.0.113.1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		settle(t, h)
		if w.Body.String() != "for "+address {
			t.Errorf("%s gets %q", address, w.Body)
		}
	}
}

// A host that does not count must not be sent.
func TestIgnoredHostIsNotSent(t *testing.T) {
	o := Options{}
	o.Key.IgnoreHost = true
	if o.Host = "client"; o.Check()["host"] == nil {
		t.Error("host: client beside ignore_host is not told")
	}
	o.Host = ""
	up := &origin{answer: func(_ int, _ *http.Request) *http.Response { return say(200, "") }}
	ask(newCache(t, o, up), "GET", "http://evil.example/")
	r := up.last.Load()
	if strings.Contains(r.Host+r.Header.Get("Forwarded")+r.Header.Get("X-Forwarded-Host"), "evil") {
		t.Errorf("sent: %q, %v", r.Host, r.Header)
	}
}
