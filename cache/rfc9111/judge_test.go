package rfc9111

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// ask is a request for /a?b=c of h.example.
func ask(method string, lines ...string) *message.Request {
	return &message.Request{Method: method, Host: "h.example", Path: "/a", Query: "b=c", HasQuery: true, Fields: field.Of(header(lines...))}
}

func get(lines ...string) *message.Request { return ask(http.MethodGet, lines...) }

// judge is Judge for a response that took no time.
func judge(p *Policy, q *message.Request, status int, lines ...string) (Facts, string) {
	return p.Judge(q, status, header(lines...), noon, noon)
}

func TestLifetime(t *testing.T) { // 4.2.1, 4.2.2, 5.3
	day := 24 * time.Hour
	for _, c := range []struct {
		name   string
		lines  []string
		fresh  time.Duration
		source string
	}{
		{"max-age", []string{"Cache-Control: max-age=60"}, time.Minute, "max-age"},
		{"s-maxage beats max-age", []string{"Cache-Control: max-age=60, s-maxage=10"}, 10 * time.Second, "s-maxage"},
		{"s-maxage beats max-age=0 and Expires", []string{"Cache-Control: max-age=0, s-maxage=10", "Expires: " + on(-day)}, 10 * time.Second, "s-maxage"},
		{"max-age beats Expires", []string{"Cache-Control: max-age=60", "Expires: 0"}, time.Minute, "max-age"},
		{"a nonsense s-maxage is 0", []string{"Cache-Control: max-age=60, s-maxage=x", "Etag: \"a\""}, 0, "s-maxage"},
		{"Expires from Date", []string{"Date: " + on(-time.Hour), "Expires: " + on(time.Hour)}, 2 * time.Hour, "Expires"},
		{"Expires from now without Date", []string{"Expires: " + on(time.Hour)}, time.Hour, "Expires"},
		{"Expires from now with a bad Date", []string{"Date: foo", "Expires: " + on(time.Hour)}, time.Hour, "Expires"},
		{"Expires far away", []string{"Expires: Sun, 21 Nov 2286 04:46:39 GMT"}, forever, "Expires"},
		{"Expires before a Date in the future", []string{"Date: " + on(400*time.Second), "Expires: " + on(300*time.Second), "Etag: \"a\""}, 0, "Expires"},
		{"Expires 0", []string{"Expires: 0", "Etag: \"a\""}, 0, "Expires"},
		{"Expires twice", []string{"Expires: " + on(time.Hour), "Expires: " + on(time.Hour), "Etag: \"a\""}, 0, "Expires"},
		{"heuristic", []string{"Date: " + on(0), "Last-Modified: " + on(-10*time.Hour)}, time.Hour, "heuristic"},
		{"heuristic at most a day", []string{"Date: " + on(0), "Last-Modified: Sun Nov  6 08:49:37 1994"}, day, "heuristic"},
		{"heuristic with a Last-Modified to come", []string{"Date: " + on(0), "Last-Modified: " + on(time.Hour)}, 0, "heuristic"},
		{"no-cache alone", []string{"Cache-Control: no-cache", "Etag: \"a\""}, 0, "no-cache"},
		{"the first target", []string{"Own-Cc: max-age=1", "Cdn-Cache-Control: max-age=2", "Cache-Control: max-age=3"}, time.Second, "Own-Cc"},
		{"the second target", []string{"Own-Cc: Max-Age=1", "Cdn-Cache-Control: max-age=2", "Surrogate-Control: max-age=5"}, 2 * time.Second, "CDN-Cache-Control"},
		{"no target is valid", []string{"Own-Cc: max-age=1,", "Cdn-Cache-Control: ", "Cache-Control: max-age=3"}, 3 * time.Second, "max-age"},
		{"a target hides Cache-Control", []string{"Cdn-Cache-Control: max-age=2", "Cache-Control: no-store, private"}, 2 * time.Second, "CDN-Cache-Control"},
		{"a target hides Expires", []string{"Cdn-Cache-Control: foo", "Expires: 0", "Last-Modified: " + on(-10*time.Hour)}, time.Hour, "heuristic"},
		{"surrogate", []string{"Surrogate-Control: max-age=9", "Cache-Control: no-store"}, 9 * time.Second, "Surrogate-Control"},
		{"surrogate without a word on storing", []string{`Surrogate-Control: content="ESI/1.0"`, "Cache-Control: max-age=3"}, 3 * time.Second, "max-age"},
	} {
		p := &Policy{Targets: []string{"Own-CC", "CDN-Cache-Control"}, Surrogate: true}
		if c.source == "Own-Cc" {
			c.source = "Own-CC"
		}
		f, reason := judge(p, get(), 200, c.lines...)
		if reason != "" || f.Fresh != c.fresh || f.Source != c.source {
			t.Errorf("%s: %v by %q (%q), want %v by %q", c.name, f.Fresh, f.Source, reason, c.fresh, c.source)
		}
	}
}

func TestRefusals(t *testing.T) { // 3
	fresh := "Cache-Control: max-age=60"
	post, head := ask(http.MethodPost), ask(http.MethodHead)
	for _, c := range []struct {
		q      *message.Request
		status int
		lines  []string
		reason string
	}{
		{get(), 200, []string{fresh}, ""},
		{head, 200, []string{fresh}, ""},
		{ask(http.MethodPut), 200, []string{fresh}, "method"},
		{post, 200, []string{fresh}, "method"},
		{post, 200, []string{fresh, "Content-Location: /a?b=c"}, ""},
		{post, 200, []string{fresh, "Content-Location: http://h.example/a?b=c"}, ""},
		{post, 200, []string{fresh, "Content-Location: http://other.example/a?b=c"}, "method"},
		{post, 200, []string{fresh, "Content-Location: /a"}, "method"},
		{post, 200, []string{"Last-Modified: " + on(-time.Hour), "Content-Location: /a?b=c"}, "method"},
		{get(), 103, []string{fresh}, "status"},
		{get(), 206, []string{fresh}, "partial"},
		{get(), 304, []string{fresh}, "status"},
		{get(), 412, []string{fresh}, "status"},
		{get(), 416, []string{fresh}, "range"},
		{get(), 429, []string{fresh}, "status"},
		{get(), 999, []string{fresh}, "status"},
		{get(), 299, []string{fresh}, ""},
		{get(), 302, []string{fresh}, ""},
		{get(), 499, []string{fresh}, ""},
		{get(), 503, []string{fresh}, ""},
		{get(), 599, []string{fresh}, ""},
		{get(), 200, []string{"Content-Range: x", fresh}, ""},
		{get(), 599, []string{"Cache-Control: max-age=60, must-understand"}, "must-understand"},
		{get(), 599, []string{"Cache-Control: max-age=60, must-understand, no-store"}, "must-understand"},
		{get(), 200, []string{"Cache-Control: max-age=60, must-understand, no-store"}, ""},
		{get(), 200, []string{"Cache-Control: max-age=60, No-StOrE"}, "no-store"},
		{get(), 200, []string{"Cache-Control: max-age=60 no-store"}, "no-store"},
		{get(), 200, []string{`Cache-Control: max-age=60, no-store="x"`}, "no-store"},
		{get(), 200, []string{"Cache-Control: private, max-age=60"}, "private"},
		{get(), 200, []string{`Cache-Control: private="x-a", max-age=60`}, ""},
		{get(), 200, []string{`Cache-Control: private="vary", max-age=60`}, "private"},
		{get(), 200, []string{fresh, "Cdn-Cache-Control: private"}, "private"},
		{get(), 200, []string{fresh, "Cdn-Cache-Control: no-store"}, "no-store"},
		{get(), 200, []string{"Cache-Control: no-store", "Cdn-Cache-Control: max-age=60, &&&"}, "no-store"},
		{get(), 200, []string{"Cache-Control: no-store", `Cdn-Cache-Control: max-age="60"`}, "no-store"},
		{get(), 200, []string{fresh, "Surrogate-Control: no-store"}, "no-store"},
		{get(), 200, []string{fresh, "Surrogate-Control: no-store;them"}, ""},
		{get("Cache-Control: no-store"), 200, []string{fresh}, "request-no-store"},
		{get("Authorization: x"), 200, []string{fresh}, "authorization"},
		{get("Authorization: x"), 200, []string{"Expires: " + on(time.Hour)}, "authorization"},
		{get("Authorization: x"), 200, []string{"Cache-Control: max-age=60, public"}, ""},
		{get("Authorization: x"), 200, []string{"Cache-Control: s-maxage=60"}, ""},
		{get("Authorization: x"), 200, []string{"Cache-Control: max-age=60, must-revalidate"}, ""},
		{get("Authorization: x"), 200, []string{"Cache-Control: max-age=60, proxy-revalidate"}, "authorization"},
		{get("Authorization: x"), 200, []string{"Cache-Control: max-age=60 public"}, "authorization"},
		{get("Authorization: x"), 200, []string{"Cache-Control: s-maxage=60", "Cdn-Cache-Control: max-age=60"}, "authorization"},
		{get(), 200, []string{fresh, "Set-Cookie: a=b"}, "set-cookie"},
		{get(), 200, []string{`Cache-Control: max-age=60, no-cache="Set-Cookie"`, "Set-Cookie: a=b"}, ""},
		{get(), 200, []string{fresh, "Vary: Foo, *"}, "vary"},
		{get(), 200, []string{fresh, "Vary: ", "Vary: *"}, "vary"},
		{get(), 200, []string{fresh, "Vary: Foo"}, ""},
		{get(), 200, nil, "no-lifetime"},
		{get(), 200, []string{`Etag: "a"`}, "no-lifetime"},
		{get(), 200, []string{"Cache-Control: public"}, "no-lifetime"},
		{get(), 500, []string{"Cache-Control: no-cache", `Etag: "a"`}, "no-lifetime"},
		{get(), 200, []string{"Cache-Control: no-cache"}, "no-cache"},
		{get(), 200, []string{"Cache-Control: no-cache, max-age=60"}, "no-cache"},
		{get(), 200, []string{"Cache-Control: no-cache", `Etag: "a"`}, ""},
		{get(), 200, []string{"Cache-Control: max-age=0"}, "stale"},
		{get(), 200, []string{"Cache-Control: max-age=-1"}, "stale"},
		{get(), 200, []string{"Cache-Control: max-age=0", "Last-Modified: " + on(-time.Hour)}, ""},
		{get(), 200, []string{"Cache-Control: max-age=0, stale-while-revalidate=5"}, ""},
		{get(), 200, []string{"Last-Modified: " + on(-time.Hour), "Pragma: no-cache"}, "no-lifetime"},
		{get(), 200, []string{"Last-Modified: yesterday"}, "no-lifetime"},
	} {
		p := &Policy{Targets: []string{"CDN-Cache-Control"}, Surrogate: true}
		if _, reason := judge(p, c.q, c.status, c.lines...); reason != c.reason {
			t.Errorf("%s %d %q %q: reason %q, want %q", c.q.Method, c.status, c.q.Fields, c.lines, reason, c.reason)
		}
	}
}

func TestHeuristicStatuses(t *testing.T) { // 4.2.2; RFC 9110, 15.1
	for status, want := range map[int]string{
		200: "", 203: "", 204: "", 300: "", 301: "", 308: "", 404: "", 405: "", 410: "", 414: "", 451: "", 501: "",
		201: "no-lifetime", 202: "no-lifetime", 302: "no-lifetime", 307: "no-lifetime", 403: "no-lifetime", 500: "no-lifetime",
		502: "no-lifetime", 503: "no-lifetime", 504: "no-lifetime", 599: "no-lifetime",
	} {
		modified := "Last-Modified: " + on(-10*time.Hour)
		if _, reason := judge(&Policy{}, get(), status, modified); reason != want {
			t.Errorf("%d: %q, want %q", status, reason, want)
		}
		if _, reason := judge(&Policy{}, get(), status, modified, "Cache-Control: public"); reason != "" {
			t.Errorf("%d with public: %q", status, reason)
		}
		if _, reason := judge(&Policy{TTL: time.Minute}, get(), status); reason != want {
			t.Errorf("%d with a ttl: %q, want %q", status, reason, want)
		}
		if f, reason := judge(&Policy{TTL: time.Minute, AnyStatus: true}, get(), status); reason != "" || f.Source != "ttl" {
			t.Errorf("%d named by a rule: %q %q", status, reason, f.Source)
		}
	}
}

func TestPolicy(t *testing.T) {
	minute, none := time.Minute, time.Duration(0)
	for _, c := range []struct {
		name   string
		p      Policy
		lines  []string
		fresh  time.Duration
		source string
		reason string
	}{
		{"ttl", Policy{TTL: minute}, nil, minute, "ttl", ""},
		{"ttl before heuristics", Policy{TTL: minute}, []string{"Last-Modified: " + on(-100*time.Hour)}, minute, "ttl", ""},
		{"ttl after max-age", Policy{TTL: minute}, []string{"Cache-Control: max-age=5"}, 5 * time.Second, "max-age", ""},
		{"ttl counts from now", Policy{TTL: minute}, []string{"Age: 100"}, minute + 100*time.Second, "ttl", ""},
		{"no ttl against no-cache", Policy{TTL: minute}, []string{"Cache-Control: no-cache"}, 0, "", "no-cache"},
		{"no heuristics", Policy{NoHeuristics: true}, []string{"Last-Modified: " + on(-100*time.Hour)}, 0, "", "no-lifetime"},
		{"force", Policy{Force: &minute}, []string{"Cache-Control: no-cache, max-age=0", "Age: 100"}, minute + 100*time.Second, "rule", ""},
		{"force not against no-store", Policy{Force: &minute}, []string{"Cache-Control: no-store"}, 0, "", "no-store"},
		{"force not against private", Policy{Force: &minute}, []string{"Cache-Control: private"}, 0, "", "private"},
		{"force nothing", Policy{Force: &none}, []string{"Cache-Control: max-age=5"}, 0, "", "rule"},
		{"cookies", Policy{SetCookie: true}, []string{"Cache-Control: max-age=5", "Set-Cookie: a=b"}, 5 * time.Second, "max-age", ""},
		{"cookies by s-maxage", Policy{SetCookie: true}, []string{"Cache-Control: s-maxage=5", "Set-Cookie: a=b"}, 5 * time.Second, "s-maxage", ""},
		{"cookies not by ttl", Policy{SetCookie: true, TTL: minute}, []string{"Set-Cookie: a=b"}, 0, "", "set-cookie"},
		{"cookies not by ttl and public", Policy{SetCookie: true, TTL: minute}, []string{"Cache-Control: public", "Set-Cookie: a=b"}, 0, "", "set-cookie"},
		{"cookies not by force", Policy{SetCookie: true, Force: &minute}, []string{"Set-Cookie: a=b"}, 0, "", "set-cookie"},
		{"cookies not by heuristics", Policy{SetCookie: true}, []string{"Last-Modified: " + on(-100*time.Hour), "Set-Cookie: a=b"}, 0, "", "set-cookie"},
		{"cookies not for others who wait", Policy{SetCookie: true}, []string{"Set-Cookie: a=b"}, 0, "", "set-cookie"},
		{"cookies not with a lifetime of 0", Policy{SetCookie: true}, []string{"Cache-Control: max-age=0", `Etag: "1"`, "Set-Cookie: a=b"}, 0, "", "set-cookie"},
		{"cookies not with no-cache", Policy{SetCookie: true}, []string{"Cache-Control: no-cache", `Etag: "1"`, "Set-Cookie: a=b"}, 0, "", "set-cookie"},
		{"cookies that are withheld", Policy{SetCookie: true, TTL: minute}, []string{`Cache-Control: no-cache="Set-Cookie"`, "Set-Cookie: a=b"}, minute, "ttl", ""},
	} {
		f, reason := judge(&c.p, get(), 200, c.lines...)
		if reason != c.reason || f.Fresh != c.fresh || f.Source != c.source || f.NoCache {
			t.Errorf("%s: %v by %q (%q), want %v by %q (%q)", c.name, f.Fresh, f.Source, reason, c.fresh, c.source, c.reason)
		}
	}
	p := Policy{Force: &minute}
	if _, reason := judge(&p, get(), 500); reason != "no-lifetime" {
		t.Errorf("force stores a 500 that no rule has named: %q", reason)
	}
	p = Policy{Authorized: true}
	if _, reason := judge(&p, get("Authorization: x"), 200, "Cache-Control: max-age=5"); reason != "" {
		t.Errorf("authorized: %q", reason)
	}
}

func TestAge(t *testing.T) { // 4.2.3, 5.1
	for _, c := range []struct {
		lines        []string
		want, strict int
	}{
		{nil, 0, 0},
		{[]string{"Age: 30"}, 30, 30},
		{[]string{"Age: 30, 0"}, 30, 1 << 31},
		{[]string{"Age: 0,30"}, 0, 1 << 31},
		{[]string{"Age: 30", "Age: 40"}, 30, 1 << 31},
		{[]string{"Age: abc"}, 0, 1 << 31},
		{[]string{"Age: -30"}, 0, 1 << 31},
		{[]string{"Age: 30.0"}, 0, 1 << 31},
		{[]string{"Age: 30;a=b"}, 0, 1 << 31},
		{[]string{"Age: 99999999999999"}, 1 << 31, 1 << 31},
		{[]string{"Date: " + on(-50*time.Second)}, 50, 50},
		{[]string{"Date: " + on(50*time.Second)}, 0, 0},
		{[]string{"Date: foo"}, 0, 0},
		{[]string{"Date: " + on(-50*time.Second), "Age: 20"}, 50, 50},
		{[]string{"Date: " + on(-10*time.Second), "Age: 20"}, 20, 20},
	} {
		lines := append(c.lines, "Cache-Control: max-age=60")
		if f, _ := judge(&Policy{}, get(), 200, lines...); f.Age != sec(c.want) {
			t.Errorf("%q: %v, want %v", c.lines, f.Age, sec(c.want))
		}
		if f, _ := judge(&Policy{StrictAge: true}, get(), 200, lines...); f.Age != sec(c.strict) {
			t.Errorf("%q, strict: %v, want %v", c.lines, f.Age, sec(c.strict))
		}
	}
	// The time the request was under way counts, but no part of a second that
	// Date cannot express.
	h := header("Age: 20", "Cache-Control: max-age=60", "Date: "+on(0))
	f, _ := (&Policy{}).Judge(get(), 200, h, noon.Add(-3*time.Second), noon)
	if f.Age != 23*time.Second {
		t.Errorf("with a delay: %v", f.Age)
	}
	delete(h, "Age")
	late := noon.Add(900 * time.Millisecond)
	if f, _ = (&Policy{}).Judge(get(), 200, h, late, late); f.Age != 0 {
		t.Errorf("within a second: %v", f.Age)
	}
}

func TestWindows(t *testing.T) { // 4.2.4, 5.2.2, RFC 5861
	p := &Policy{StaleWhileRevalidate: 10 * time.Second, StaleIfError: 20 * time.Second}
	for _, c := range []struct {
		control  string
		swr, sie int
		noStale  bool
	}{
		{"max-age=1", 10, 20, false},
		{"max-age=1, stale-while-revalidate=3", 3, 20, false},
		{"max-age=1, stale-if-error=4", 10, 4, false},
		{"max-age=1, stale-if-error=0", 10, 0, false},
		{"max-age=1, stale-if-error=x", 10, 0, false},
		{"max-age=1, must-revalidate, stale-if-error=4", 0, 0, true},
		{"max-age=1, proxy-revalidate, stale-while-revalidate=4", 0, 0, true},
		{"no-cache, max-age=1, stale-while-revalidate=4", 0, 0, true},
		{"s-maxage=1", 0, 0, true},
		{"s-maxage=1, stale-while-revalidate=3", 3, 0, true}, // 5.2.3
	} {
		f, reason := judge(p, get(), 200, "Cache-Control: "+c.control, `Etag: "a"`)
		if reason != "" || f.StaleWhileRevalidate != sec(c.swr) || f.StaleIfError != sec(c.sie) || f.NoStale != c.noStale {
			t.Errorf("%s: %+v (%q)", c.control, f, reason)
		}
	}
}

func TestFactsAreData(t *testing.T) {
	f, _ := judge(&Policy{StaleIfError: time.Hour}, get(), 200, "Cache-Control: max-age=60", "Age: 3")
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back Facts
	if err := json.Unmarshal(text, &back); err != nil || back != f {
		t.Errorf("%s came back as %+v (%v)", text, back, err)
	}
}

func sec(n int) time.Duration { return time.Duration(n) * time.Second }
