package rfc9111

import (
	"testing"
	"time"

	"millrace/internal/wire/field"
)

func TestUse(t *testing.T) { // 4.2, 4.2.4, 5.2.1, RFC 5861
	plain := Facts{Received: noon, Age: 5 * time.Second, Fresh: 60 * time.Second}
	swr, strict, noCache := plain, plain, plain
	swr.StaleWhileRevalidate = 20 * time.Second
	strict.NoStale = true
	noCache.NoCache, noCache.NoStale = true, true
	for _, c := range []struct {
		name    string
		f       Facts
		request string
		after   int // since noon, in seconds
		soft    bool
		want    Use
	}{
		{"fresh", plain, "", 54, false, Serve},
		{"just stale", plain, "", 55, false, Validate},
		{"a clock set back", plain, "", -1000, false, Serve},
		{"unknown", Facts{}, "", 0, false, Miss},
		{"no-cache", noCache, "", 0, false, Validate},
		{"no-cache, max-stale", noCache, "max-stale", 0, false, Validate},
		{"client no-cache", plain, "no-cache", 0, false, Validate},
		{"client max-age=0", plain, "max-age=0", 0, false, Validate},
		{"client max-age, young", plain, "max-age=10", 5, false, Serve},
		{"client max-age, old", plain, "max-age=10", 6, false, Validate},
		{"client max-age, nonsense", plain, "max-age=x", 0, false, Validate},
		{"min-fresh, enough", plain, "min-fresh=50", 5, false, Serve},
		{"min-fresh, not enough", plain, "min-fresh=50", 6, false, Validate},
		{"max-stale, enough", plain, "max-stale=10", 65, false, Serve},
		{"max-stale, not enough", plain, "max-stale=10", 66, false, Validate},
		{"max-stale, any", plain, "max-stale", 100000, false, Serve},
		{"max-stale, nonsense", plain, "max-stale=x", 56, false, Validate},
		{"max-stale, both", plain, "max-stale, max-stale=10", 66, false, Validate},
		{"max-stale, forbidden", strict, "max-stale", 56, false, Validate},
		{"max-stale with max-age", plain, "max-stale, max-age=70", 66, false, Validate},
		{"only-if-cached", plain, "only-if-cached", 0, false, Serve},
		{"no-store", plain, "no-store", 0, false, Serve},
		{"window", swr, "", 75, false, Refresh},
		{"window over", swr, "", 76, false, Validate},
		{"window, max-age", swr, "max-age=1000", 60, false, Validate},
		{"window, min-fresh", swr, "min-fresh=1", 60, false, Validate},
		{"window, max-stale less", swr, "max-stale=2", 60, false, Validate},
		{"window, max-stale more", swr, "max-stale=1000", 60, false, Refresh},
		{"window over, max-stale more", swr, "max-stale=1000", 80, false, Serve},
		{"soft", plain, "", 0, true, Validate},
		{"soft, window", swr, "", 0, true, Refresh},
		{"soft, max-stale", plain, "max-stale", 0, true, Validate},
	} {
		var h field.Lines
		if c.request != "" {
			h.Add("Cache-Control", c.request)
		}
		d := (&Policy{}).Demands(h)
		if got := c.f.Use(d, noon.Add(sec(c.after)), c.soft); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestDemands(t *testing.T) { // 5.2.1, 5.4
	f := Facts{Received: noon, Fresh: time.Minute}
	for _, c := range []struct {
		lines         []string
		neutral       bool
		use, ignoring Use // ignoring: with IgnoreReload
	}{
		{nil, true, Serve, Serve},
		{[]string{"Cache-Control: foo", "Pragma: no-cache"}, true, Serve, Serve},
		{[]string{"Pragma: foo"}, true, Serve, Serve},
		{[]string{"Pragma: foo, No-Cache"}, false, Validate, Serve},
		{[]string{"Cache-Control: foo", "Cache-Control: no-cache"}, false, Validate, Serve},
		{[]string{"Cache-Control: max-age=0"}, false, Validate, Serve},
		{[]string{"Cache-Control: min-fresh=100"}, false, Validate, Serve},
		{[]string{"Cache-Control: max-stale"}, false, Serve, Serve},
		{[]string{"Cache-Control: only-if-cached"}, false, Serve, Serve},
		{[]string{"Cache-Control: no-store"}, false, Serve, Serve},
	} {
		h := field.Of(header(c.lines...))
		d := (&Policy{}).Demands(h)
		if d.Neutral() != c.neutral {
			t.Errorf("%q: neutral %v", c.lines, d.Neutral())
		}
		now := noon.Add(time.Second)
		if got := f.Use(d, now, false); got != c.use {
			t.Errorf("%q: %d, want %d", c.lines, got, c.use)
		}
		if got := f.Use((&Policy{IgnoreReload: true}).Demands(h), now, false); got != c.ignoring {
			t.Errorf("%q, ignored: %d, want %d", c.lines, got, c.ignoring)
		}
	}
	d := (&Policy{}).Demands(field.Of(header("Cache-Control: only-if-cached, no-store")))
	if !d.OnlyIfCached || !d.NoStore {
		t.Errorf("%+v", d)
	}
}

func TestOnError(t *testing.T) { // RFC 5861, 4
	plain := Facts{Received: noon, Fresh: 60 * time.Second}
	window, strict, noCache := plain, plain, plain
	window.StaleIfError = 20 * time.Second
	strict.NoStale = true
	noCache.NoCache, noCache.NoStale = true, true
	for _, c := range []struct {
		name    string
		f       Facts
		request string
		after   int
		want    bool
		down    bool
	}{
		{"unknown", Facts{}, "", 0, false, false},
		{"fresh", plain, "", 59, true, false},
		{"fresh, and the client had wanted another", plain, "no-cache", 59, true, false},
		{"stale", plain, "", 61, false, false},
		{"in the window", window, "", 80, true, false},
		{"after the window", window, "", 81, false, false},
		{"the client's window", plain, "stale-if-error=30", 90, true, false},
		{"after the client's window", plain, "stale-if-error=30", 91, false, false},
		{"the longer window", window, "stale-if-error=30", 90, true, false},
		{"forbidden", strict, "stale-if-error=30", 61, false, false},
		{"forbidden but fresh", strict, "", 59, true, false},
		{"no-cache", noCache, "stale-if-error=30", 1, false, false},
		{"unreachable", plain, "", 100000, true, true},
		{"unreachable, after the window", window, "", 81, true, true},
		{"unreachable, forbidden", strict, "", 61, false, true},
		{"unreachable, forbidden, with a window", Facts{Received: noon, StaleIfError: 20 * time.Second, NoStale: true}, "", 10, true, true},
		{"unreachable, no-cache", noCache, "", 61, false, true},
		{"unreachable, unknown", Facts{}, "", 0, false, true},
	} {
		var h field.Lines
		if c.request != "" {
			h.Add("Cache-Control", c.request)
		}
		if got := c.f.OnError(h, noon.Add(sec(c.after)), c.down); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestForcedLifetime: the lifetime of a rule takes the place of s-maxage, and of what
// that forbids; what is forbidden by its own name stays so.
func TestForcedLifetime(t *testing.T) {
	force := 2 * time.Second
	for line, want := range map[string]bool{
		"s-maxage=60": true, "max-age=60": true, "s-maxage=60, must-revalidate": false, "s-maxage=60, proxy-revalidate": false,
	} {
		f, reason := judge(&Policy{Force: &force, StaleIfError: time.Hour}, get(), 200, "Cache-Control: "+line)
		if got := f.OnError(nil, noon.Add(sec(100)), false); got != want || reason != "" {
			t.Errorf("%s: %v %s, want %v", line, got, reason, want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	f, _ := judge(&Policy{}, get(), 200, "Cache-Control: max-age=60")
	p, h, used := &Policy{}, field.Lines{{Name: "Accept", Value: "*/*"}}, Serve
	now := noon.Add(time.Second)
	for name, do := range map[string]func(){
		"CurrentAge": func() { _ = f.CurrentAge(now) },
		"TTL":        func() { _ = f.TTL(now) },
		"Use":        func() { used = f.Use(p.Demands(h), now, false) },
		"OnError":    func() { _ = f.OnError(h, now, false) },
	} {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if used != Serve {
		t.Errorf("use is %d", used)
	}
}

func BenchmarkUse(b *testing.B) {
	f, _ := judge(&Policy{}, get(), 200, "Cache-Control: max-age=60")
	p, h, now := &Policy{}, field.Lines{{Name: "Accept", Value: "*/*"}}, noon.Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		if f.Use(p.Demands(h), now, false) != Serve {
			b.Fatal("not fresh")
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	p, r := &Policy{Targets: []string{"Cdn-Cache-Control"}, Surrogate: true}, get()
	h := header("Date: "+on(0), "Cache-Control: public, max-age=60", "Etag: \"a\"", "Vary: Accept-Encoding", "Content-Type: application/json")
	b.ReportAllocs()
	for b.Loop() {
		if _, reason := p.Judge(r, 200, h, noon, noon); reason != "" {
			b.Fatal(reason)
		}
	}
}

func BenchmarkNormal(b *testing.B) {
	h := field.Lines{{Name: "Accept-Encoding", Value: "gzip, deflate, br, zstd"}}
	b.ReportAllocs()
	for b.Loop() {
		if Normal("Accept-Encoding", h, nil) == "" {
			b.Fatal("empty")
		}
	}
}
