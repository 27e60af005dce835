package admit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func limit(t testing.TB, table *Table, o Rate) *Gate {
	t.Helper()
	l, err := table.Limit(o, "test")
	if err != nil {
		t.Fatal(err)
	}
	return New(nil, l)
}

// passed is how many of n requests pass.
func passed(g *Gate, client string, n int, value string) (passed int) {
	a, _ := netip.ParseAddr(client)
	for range n {
		if g.Ask(a, time.Now(), [MaxRates][]byte{[]byte(value)}).Passes() {
			passed++
		}
	}
	return passed
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limit(t, NewTable(), Rate{Rate: "10/s", Burst: 5, Except: []string{"192.0.2.0/24"}})
		for _, step := range []struct {
			wait   time.Duration
			client string
			want   int
		}{
			{0, "198.51.100.1", 5},
			{0, "198.51.100.1", 0},
			{0, "198.51.100.2", 5}, // another client
			{100 * time.Millisecond, "198.51.100.1", 1},
			{99 * time.Millisecond, "198.51.100.1", 0},
			{time.Millisecond, "198.51.100.1", 1},
			{time.Hour, "198.51.100.1", 5}, // no more than the burst, however long the rest
			{0, "192.0.2.7", 20},           // excepted
			{0, "2001:db8::1", 5},
			{0, "2001:db8::ffff:1", 0}, // the same network
			{0, "2001:db8:0:1::1", 5},  // another one
			{0, "::ffff:198.51.100.1", 0},
			{0, "", 20}, // a UNIX socket
		} {
			time.Sleep(step.wait)
			if got := passed(g, step.client, 20, ""); got != step.want {
				t.Errorf("%s after %s: %d pass, not %d", step.client, step.wait, got, step.want)
			}
		}
	})
}

// A clock that is set back locks nobody out: time.Time has a monotonic reading,
// and a table that was asked about the future goes on.
func TestRateByHeaderAndRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable()
		g := limit(t, table, Rate{Rate: "2/m", Header: "x-api-key"})
		if g.Header(0) != "X-Api-Key" || g.Header(1) != "" {
			t.Errorf("counts by %q", g.Header(0))
		}
		for _, step := range []struct {
			client, value string
			want          int
		}{
			{"198.51.100.1", "a", 2},
			{"198.51.100.2", "a", 0},
			{"198.51.100.1", "b", 2},
			{"198.51.100.1", "", 2},                 // without one: by address
			{"198.51.100.1", "\xc6\x33\x64\x01", 2}, // the bytes of that address are not that address
			{"", "", 5},
			{"", "c", 2},
		} {
			if got := passed(g, step.client, 5, step.value); got != step.want {
				t.Errorf("%+v: %d", step, got)
			}
		}
		all, err := table.Limit(Rate{Rate: "3/h", By: "route"}, "all")
		if err != nil {
			t.Fatal(err)
		}
		if n := passed(New(nil, all), "198.51.100.1", 2, "") + passed(New(nil, all), "", 2, ""); n != 3 {
			t.Errorf("%d of all clients pass", n)
		}
	})
}

// The same limit, made again by a reload, has counted what the old one had.
func TestLimitGoesOn(t *testing.T) {
	table := NewTable()
	o := Rate{Rate: "3/h"}
	if n := passed(limit(t, table, o), "198.51.100.1", 2, "") + passed(limit(t, table, o), "198.51.100.1", 2, ""); n != 3 {
		t.Errorf("%d pass", n)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		rate Rate
		key  string
	}{
		{Rate{}, "rate"},
		{Rate{Rate: "10"}, "rate"},
		{Rate{Rate: "0/s"}, "rate"},
		{Rate{Rate: "-1/s"}, "rate"},
		{Rate{Rate: "1/x"}, "rate"},
		{Rate{Rate: "1/"}, "rate"},
		{Rate{Rate: "1/0s"}, "rate"},
		{Rate{Rate: "9999999/s"}, "rate"},
		{Rate{Rate: "1/48h"}, "rate"},
		{Rate{Rate: "1/s", Burst: -1}, "burst"},
		{Rate{Rate: "1/s", By: "cookie"}, "by"},
		{Rate{Rate: "1/s", By: "header"}, "by"},
		{Rate{Rate: "1/s", Header: "a b"}, "header"},
		{Rate{Rate: "1/s", Header: "cookie"}, "header"},
		{Rate{Rate: "1/s", Header: "X", By: "route"}, "header"},
		{Rate{Rate: "1/s", Except: []string{"10.0.0.1/8"}}, "except"},
	} {
		if f := c.rate.Check(); len(f) != 1 || f[c.key] == nil {
			t.Errorf("%+v: %v", c.rate, f)
		}
	}
	for _, ok := range []string{"1/s", "10/m", "1000/h", "5/10s", "1/500ms", "1/d", "10 / s"} {
		if f := (Rate{Rate: ok}).Check(); len(f) != 0 {
			t.Errorf("%s: %v", ok, f)
		}
	}
	for key, o := range map[string]Access{
		"allow": {Allow: []string{"10.0.0.1/8"}}, "deny": {Deny: []string{"all"}}, "off": {Off: true, Deny: []string{"10.0.0.1"}},
		"deny_files": {DenyFiles: []string{"/nowhere/at/all"}},
	} {
		if f := o.Check(); len(f) != 1 || f[key] == nil {
			t.Errorf("%+v: %v", o, f)
		}
	}
}

// The longest bursts of the slowest rates do not overflow.
func TestLargestLimit(t *testing.T) {
	g := limit(t, NewTable(), Rate{Rate: "1/24h", Burst: maxBurst})
	if n := passed(g, "198.51.100.1", 1000, ""); n != 1000 {
		t.Error(n)
	}
	s := shard{due: map[uint64]int64{}}
	for i := range uint64(maxShare) {
		s.due[i] = 1 << 62
	}
	s.sweep(1 << 60)
	if len(s.due) > maxShare {
		t.Error(len(s.due))
	}
}

func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limit(t, NewTable(), Rate{Rate: "2/m", Burst: 1})
		a := netip.MustParseAddr("198.51.100.1")
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		if !g.AskFor(r, a).Passes() {
			t.Fatal("the first is refused")
		}
		time.Sleep(500 * time.Millisecond)
		w := httptest.NewRecorder()
		g.AskFor(r, a).Refuse(w)
		h := w.Header()
		if w.Code != http.StatusTooManyRequests || h.Get("Retry-After") != "30" || h.Get("Ratelimit-Policy") != `"address";q=2;w=60` || h.Get("Ratelimit") != `"address";r=0;t=30` {
			t.Errorf("%d %v", w.Code, h)
		}
		w = httptest.NewRecorder()
		Verdict{Denied: true}.Refuse(w)
		if w.Code != http.StatusForbidden {
			t.Error(w.Code)
		}
	})
}

func TestLists(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "deny.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# bots\n198.51.100.0/24 ; of a list\n\n2001:db8::/32\n")
	var said strings.Builder
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(Access{Allow: []string{"198.51.0.0/16", "2001:db8::1", "unix"}, DenyFiles: []string{file}}, slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		check := func(client string, want bool) {
			t.Helper()
			a, _ := netip.ParseAddr(client)
			if l.Allow(a) != want {
				t.Errorf("%q: %v", client, !want)
			}
		}
		check("198.51.7.1", true)
		check("198.51.100.7", false)
		check("203.0.113.1", false)
		check("2001:db8::1", false)
		check("", true)
		write("198.51.7.1\n")
		time.Sleep(2*lookEvery + time.Second)
		check("198.51.7.1", false)
		check("198.51.100.7", true)
		write("198.51.7.1\nnonsense here\n")
		time.Sleep(2*lookEvery + time.Second)
		check("198.51.7.1", false)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*lookEvery + time.Second)
		check("198.51.7.1", false)
	})
	if n := strings.Count(said.String(), "level=ERROR"); n != 2 || !strings.Contains(said.String(), ":2:") {
		t.Errorf("%d errors: %s", n, &said)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("10.0.0.0/8\n# x\n::1 # y")
	f.Add("10.0.0.1/8")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse("list", strings.NewReader(text))
		if err == nil && len(list) > strings.Count(text, "\n")+1 {
			t.Errorf("%q: %q", text, list)
		}
	})
}

// client is one of as many addresses as there are.
func client(i uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
}

// A million addresses take no more than 64 MB, and further ones nothing more; the
// heaviest client is not forgotten over them.
func TestTableMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := NewTable()
	g := limit(t, table, Rate{Rate: "1/m", Burst: 10})
	heavy := passed(g, "203.0.113.1", 20, "")
	now := time.Now()
	for i := range uint32(1_500_000) {
		g.Ask(client(i), now, [MaxRates][]byte{})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if mb := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20; mb > 64 {
		t.Errorf("%d clients take %d MiB", table.Clients(), mb)
	} else {
		t.Logf("%d clients take %d MiB", table.Clients(), mb)
	}
	if n := table.Clients(); n > maxClients || n < maxClients/2 {
		t.Errorf("%d clients are counted", n)
	}
	if again := passed(g, "203.0.113.1", 20, ""); heavy != 10 || again != 0 {
		t.Errorf("the heaviest client had %d and then %d", heavy, again)
	}
}

func TestConcurrent(t *testing.T) {
	g := limit(t, NewTable(), Rate{Rate: "100/h"})
	var all sync.WaitGroup
	var n atomic.Int64
	for range 8 {
		all.Go(func() { n.Add(int64(passed(g, "198.51.100.1", 1000, ""))) })
	}
	all.Wait()
	if n.Load() != 100 {
		t.Errorf("%d pass", n.Load())
	}
}

func BenchmarkAsk(b *testing.B) {
	deny := make([]string, 0, 10000)
	for i := range uint32(10000) {
		deny = append(deny, client(i<<12).String())
	}
	lists, err := Open(Access{Deny: deny}, slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	defer lists.Close()
	for _, clients := range []uint32{1, 1000, 1_000_000} {
		table := NewTable()
		rate, err := table.Limit(Rate{Rate: "1000000/s"}, "bench")
		if err != nil {
			b.Fatal(err)
		}
		for name, g := range map[string]*Gate{"lists": New(lists), "rate": New(nil, rate)} {
			b.Run(fmt.Sprint(name, " ", clients), func(b *testing.B) {
				b.ReportAllocs()
				now, i := time.Now(), uint32(0)
				for b.Loop() {
					i++
					g.Ask(client(i%clients*2654435761), now, [MaxRates][]byte{})
				}
			})
		}
	}
}
