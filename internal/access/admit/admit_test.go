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
	return New(Rules{Rates: []*Limit{l}})
}

// passed is how many of n requests pass.
func passed(g *Gate, client string, n int, value string) (passed int) {
	a, _ := netip.ParseAddr(client)
	for range n {
		if g.Ask(&Request{Client: a, Now: time.Now(), Values: [MaxRates][]byte{[]byte(value)}}).Passes() {
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
		if n := passed(New(Rules{Rates: []*Limit{all}}), "198.51.100.1", 2, "") + passed(New(Rules{Rates: []*Limit{all}}), "", 2, ""); n != 3 {
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
	s := shard{cells: make([]cell, 2*maxShare)}
	for i := range uint64(maxShare) {
		*s.find((i + 1) * shards) = cell{(i + 1) * shards, 1 << 62}
		s.n++
	}
	s.sweep(1 << 60)
	if s.n != maxShare-maxShare/8 || s.after(0) != s.n {
		t.Error(s.n, s.after(0))
	}
}

func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limit(t, NewTable(), Rate{Rate: "2/m", Burst: 1})
		a := netip.MustParseAddr("198.51.100.1")
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		if _, answered := g.Admit(httptest.NewRecorder(), r, a); answered {
			t.Fatal("the first is refused")
		}
		time.Sleep(500 * time.Millisecond)
		w := httptest.NewRecorder()
		g.Admit(w, r, a)
		h := w.Header()
		if w.Code != http.StatusTooManyRequests || h.Get("Retry-After") != "30" || h.Get("Ratelimit-Policy") != `"address";q=2;w=60` || h.Get("Ratelimit") != `"address";r=0;t=30` {
			t.Errorf("%d %v", w.Code, h)
		}
		w = httptest.NewRecorder()
		Verdict{Denied: true}.Refuse(w, r)
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
		g.Ask(&Request{Client: client(i), Now: now})
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
		for name, g := range map[string]*Gate{"lists": New(Rules{Lists: lists}), "rate": New(Rules{Rates: []*Limit{rate}})} {
			b.Run(fmt.Sprint(name, " ", clients), func(b *testing.B) {
				b.ReportAllocs()
				now, i := time.Now(), uint32(0)
				for b.Loop() {
					i++
					g.Ask(&Request{Client: client(i % clients * 2654435761), Now: now})
				}
			})
		}
	}
}

func TestTraps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable()
		trap, err := table.Trap(Traps{Paths: []string{"/old-login", "/old/"}, For: time.Minute, Except: []string{"192.0.2.0/24"}})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{
			"/": false, "/index.php": false, "/wp-login.php": true, "/blog/WP-Login.php": true, "/.env": true, "/a/.env": true, "/.git/HEAD": true,
			"/old-login": true, "/old-login/x": false, "/old/x/y": true, "/PMA/index.php": true, "/environment": false, "/wp-admin/admin-ajax.php": false,
		} {
			if trap.At(path) != want {
				t.Errorf("%s: %v", path, !want)
			}
		}
		g := New(Rules{Trap: trap})
		ask := func(client string, status int, head ...string) bool {
			r := httptest.NewRequest(http.MethodGet, "/.env", http.NoBody)
			for i := 0; i < len(head); i += 2 {
				r.Header.Set(head[i], head[i+1])
			}
			a, _ := netip.ParseAddr(client)
			trap.Answered(r, a, status)
			return passed(g, client, 1, "") == 0
		}
		for _, step := range []struct {
			client string
			status int
			caught bool
			head   []string
		}{
			{"198.51.100.1", 200, false, nil},
			{"198.51.100.1", 401, false, nil},
			{"198.51.100.1", 404, false, []string{"Sec-Fetch-Site", "cross-site"}},
			{"198.51.100.1", 404, true, nil},
			{"198.51.100.2", 200, false, nil},
			{"192.0.2.1", 404, false, nil},
			{"127.0.0.1", 404, false, nil},
			{"", 404, false, nil},
			{"2001:db8::1", 410, true, nil},
			{"2001:db8::2", 200, true, nil}, // the same network
		} {
			if got := ask(step.client, step.status, step.head...); got != step.caught {
				t.Errorf("%+v: %v", step, got)
			}
		}
		time.Sleep(time.Minute + 2*time.Second)
		if passed(g, "198.51.100.1", 1, "") != 1 {
			t.Error("caught for ever")
		}
		// Others do not get anybody out, and memory does not grow.
		table.Catch(netip.MustParseAddr("203.0.113.7"), time.Now(), time.Hour)
		for i := range uint32(3 * caughtSets * caughtWays) {
			table.Catch(client(i), time.Now(), time.Second)
		}
		if passed(g, "203.0.113.7", 1, "") != 0 {
			t.Error("one who was caught for long has got away")
		}
		slow, err := table.Trap(Traps{Presets: []string{"secrets"}, Rate: "1/s"})
		if err != nil {
			t.Fatal(err)
		}
		if n := passed(New(Rules{Trap: slow}), "203.0.113.7", 5, ""); n != 1 || slow.At("/wp-login.php") {
			t.Errorf("%d pass of one who is limited", n)
		}
	})
	for key, o := range map[string]Traps{
		"presets[0]": {Presets: []string{"joomla"}}, "presets": {Presets: []string{}}, "paths[0]": {Paths: []string{"/"}}, "for": {For: 48 * time.Hour},
		"rate": {Rate: "fast"}, "except": {Except: []string{"10.0.0.1/8"}},
	} {
		if f := o.Check(); len(f) != 1 || f[key] == nil {
			t.Errorf("%+v: %v", o, f)
		}
	}
}

func TestSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewTable().Suspects(Challenge{
			Agents: []string{"GPTBot", "none", "bot/"}, ExceptAgents: []string{"goodbot/"}, Networks: []string{"203.0.113.0/24"},
			Except: []string{"203.0.113.9"}, Over: "2/m",
		}, []byte("0123456789abcdef"), "", "test")
		if err != nil {
			t.Fatal(err)
		}
		g := New(Rules{Suspects: s})
		for _, step := range []struct{ client, agent, want string }{
			{"198.51.100.1", "Mozilla/5.0", ""},
			{"198.51.100.1", "Mozilla/5.0 (compatible; gptbot/1.2)", whyAgent},
			{"198.51.100.1", "", whyAgent},
			{"198.51.100.1", "GoodBot/1", ""},
			{"203.0.113.9", "GPTBot", ""},
			{"203.0.113.8", "GoodBot/1", ""},
			{"203.0.113.8", "Mozilla/5.0", whyNetwork},
			{"198.51.100.1", "Mozilla/5.0", ""},
			{"198.51.100.1", "Mozilla/5.0", whyRate},
		} {
			a := netip.MustParseAddr(step.client)
			for range 2 { // the second time it is known
				if v := g.Ask(&Request{Client: a, Now: time.Now(), Agent: []byte(step.agent)}); v.Proof != step.want {
					t.Errorf("%+v: %q", step, v.Proof)
				}
				if step.agent == "Mozilla/5.0" {
					break
				}
			}
		}
		if g.At("/robots.txt", "") != nil || g.At("/.well-known/acme-challenge/x", "") != nil || g.At("/robots.txt/", "") != g || g.At("/.well-known/x", "/.well-known%2fx") != g {
			t.Error("robots.txt is asked for a proof")
		}
	})
	for key, o := range map[string]Challenge{
		"agents": {}, "off": {Off: true, Over: "1/s"}, "agents[0]": {Agents: []string{" "}}, "networks": {Networks: []string{"10.0.0.1/8"}},
		"over": {Over: "fast"}, "work": {Over: "1/s", Work: 30}, "wait": {Over: "1/s", Wait: time.Hour}, "for": {Over: "1/s", For: time.Second},
		"secret": {Over: "1/s", Secret: "short"},
	} {
		if f := o.Check(); len(f) != 1 || f[key] == nil {
			t.Errorf("%+v: %v", o, f)
		}
	}
}

// A table that another process goes on with has counted what it had, and knows who
// is caught.
func TestSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable()
		o := Rate{Rate: "10/m"}
		time.Sleep(3 * time.Hour)
		if n := passed(limit(t, table, o), "198.51.100.1", 20, ""); n != 10 {
			t.Fatal(n)
		}
		passed(limit(t, table, o), "198.51.100.2", 4, "")
		table.Catch(netip.MustParseAddr("203.0.113.7"), time.Now(), time.Hour)
		time.Sleep(6 * time.Second) // one request's worth
		state := table.Save(time.Now())
		time.Sleep(time.Second)
		next, err := Restore(state)
		if err != nil {
			t.Fatal(err)
		}
		for client, want := range map[string]int{"198.51.100.1": 1, "198.51.100.2": 7, "198.51.100.3": 10} {
			if n := passed(limit(t, next, o), client, 20, ""); n != want {
				t.Errorf("%s: %d pass, not %d", client, n, want)
			}
		}
		trap, err := next.Trap(Traps{Presets: []string{"secrets"}, For: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		g := New(Rules{Trap: trap})
		if passed(g, "203.0.113.7", 1, "") != 0 || passed(g, "203.0.113.8", 1, "") != 1 {
			t.Error("the one who was caught is not, or somebody else is")
		}
		time.Sleep(time.Hour)
		if passed(g, "203.0.113.7", 1, "") != 1 {
			t.Error("caught for ever")
		}
		for n := range state {
			if _, err := Restore(state[:n]); err == nil {
				t.Errorf("the first %d bytes are a table", n)
			}
		}
	})
}

// Of very many clients the heaviest are handed over.
func TestSaveMany(t *testing.T) {
	table := NewTable()
	g := limit(t, table, Rate{Rate: "1/h", Burst: 10})
	heavy := passed(g, "203.0.113.1", 20, "")
	now := time.Now()
	for i := range uint32(mostSaved + 1000) {
		g.Ask(&Request{Client: client(i), Now: now})
	}
	begun := time.Now()
	state := table.Save(now)
	t.Logf("%d clients in %d bytes after %s", mostSaved, len(state), time.Since(begun))
	next, err := Restore(state)
	if err != nil || next.Clients() != mostSaved || len(state) > 4<<20 {
		t.Fatal(len(state), err)
	}
	if n := passed(limit(t, next, Rate{Rate: "1/h", Burst: 10}), "203.0.113.1", 20, ""); heavy != 10 || n != 0 {
		t.Errorf("the heaviest client had %d and then %d", heavy, n)
	}
}

func FuzzRestore(f *testing.F) {
	table := NewTable()
	table.Catch(netip.MustParseAddr("203.0.113.7"), time.Now(), time.Hour)
	f.Add(table.Save(time.Now()))
	f.Add([]byte{saveVersion})
	f.Fuzz(func(t *testing.T, state []byte) {
		if next, err := Restore(state); err == nil && next.Clients() > len(state)/savedClient {
			t.Error(next.Clients())
		}
	})
}
