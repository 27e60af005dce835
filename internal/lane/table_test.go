package lane

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

// shelf is a table with ways to fill and ask it.
type shelf struct {
	*table
	t *testing.T
}

func newShelf(t *testing.T, budget int64) *shelf {
	return &shelf{newTable(budget, meter.New()), t}
}

func answerOf(body string) *send.Answer {
	return &send.Answer{
		Header: http.Header{"Content-Length": {strconv.Itoa(len(body))}, "Etag": {`"t"`}},
		Body:   []byte(body), Size: int64(len(body)), ETag: `"t"`,
	}
}

// keep puts an answer into the table.
func (s *shelf) keep(k key, a *send.Answer, rule Rule, varyOn []headerID, v variant) bool {
	v.response = newResponse(a, rule, nil)
	return s.put(k, demands{varyOn: varyOn}, v)
}

// ask returns the body of the answer to a request, "" when there is none.
func (s *shelf) ask(site uint64, target string, headers ...string) string {
	s.t.Helper()
	if r := s.seek(site, target, headers...); r != nil {
		return string(r.answer.Body)
	}
	return ""
}

func (s *shelf) seek(site uint64, target string, headers ...string) *response {
	s.t.Helper()
	b := []byte("GET " + target + " HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n")
	var q request
	if _, v := match(b, &q); v != matched {
		s.t.Fatalf("%q does not match", b)
	}
	return s.find(site, b, &q, time.Now().Unix())
}

func TestTableKeys(t *testing.T) {
	s := newShelf(t, 1<<20)
	plain := variant{}
	s.keep(key{1, "/p", false}, answerOf("path"), Rule{}, nil, plain)
	s.keep(key{1, "/q", true}, answerOf("bare"), Rule{}, nil, plain)
	s.keep(key{1, "/q?", true}, answerOf("empty"), Rule{}, nil, plain)
	s.keep(key{1, "/q?a=1", true}, answerOf("one"), Rule{}, nil, plain)
	s.keep(key{2, "/q?a=1", true}, answerOf("other site"), Rule{}, nil, plain)
	for _, c := range []struct {
		site         uint64
		target, want string
	}{
		{1, "/p", "path"},
		{1, "/p?", "path"},
		{1, "/p?anything=%00", "path"},
		{1, "/p/", ""},
		{1, "/P", ""},
		{2, "/p", ""},
		{0, "/p", ""},
		{1, "/q", "bare"},
		{1, "/q?", "empty"},
		{1, "/q?a=1", "one"},
		{1, "/q?a=2", ""},
		{1, "/q?a=1&", ""},
		{2, "/q?a=1", "other site"},
		{2, "/q", ""},
	} {
		if got := s.ask(c.site, c.target); got != c.want {
			t.Errorf("site %d, %s: %q, want %q", c.site, c.target, got, c.want)
		}
	}
	for range 2 { // the same key again replaces
		s.keep(key{1, "/p", false}, answerOf("newer"), Rule{}, nil, plain)
	}
	if got := s.ask(1, "/p"); got != "newer" || s.count != 5 {
		t.Errorf("%q, %d entries", got, s.count)
	}
}

// A job learns which of its answers the lane sends.
func TestTableSaysWhatIsUsed(t *testing.T) {
	s := newShelf(t, 1<<20)
	plain := variant{}
	var used, other, newer atomic.Bool
	s.keep(key{1, "/p", false}, answerOf("a"), Rule{Used: &used}, nil, plain)
	s.keep(key{1, "/q", false}, answerOf("b"), Rule{Used: &other}, nil, plain)
	if used.Load() {
		t.Error("used before it was asked for")
	}
	for range 2 {
		if s.ask(1, "/p") != "a" || !used.Swap(false) || other.Load() {
			t.Errorf("used: %t, the other: %t", used.Load(), other.Load())
		}
	}
	s.keep(key{1, "/p", false}, answerOf("c"), Rule{Used: &newer}, nil, plain)
	if s.ask(1, "/p") != "c" || !newer.Load() || used.Load() {
		t.Error("an answer that replaces another does not say that it is used")
	}
}

func TestTableVariants(t *testing.T) {
	s := newShelf(t, 1<<20)
	k := key{1, "/", false}
	for value, name := range map[string]string{"identity": "none", "gzip": "gzip", "gzip, br": "both", "identity;q=0": "coded"} {
		s.keep(k, answerOf(name), Rule{}, nil, variant{negotiated: true, preference: negotiate.Of([]string{value})})
	}
	for _, c := range [][2]string{
		{"DNT: 1", "none"},
		{"Accept-Encoding: gzip", "gzip"},
		{"Accept-Encoding: br,gzip", "both"},
		{"Accept-Encoding: gzip, br, gzip", "both"},
		{"Accept-Encoding: gzip, deflate, new, br;q=1.0, *;q=0", ""}, // refuses identity
		{"Accept-Encoding: gzip;q=0.5, br;q=0.6, identity;q=0.1", "both"},
		{"Accept-Encoding: gzip;q=0.6, br;q=0.5", ""},
		{"Accept-Encoding: GZIP;q=0.001,zstd;q=0", "gzip"},
		{"Accept-Encoding: identity", "none"},
		{"Accept-Encoding: identity;q=1, *;q=0", "none"},
		{"Accept-Encoding: gzip;q=0, deflate", "none"},
		{"Accept-Encoding: *;q=0", "coded"},
		{"Accept-Encoding: br", ""},
		{"Accept-Encoding: gzip, br, zstd", ""},
		{"Accept-Encoding: gzip\r\nAccept-Encoding: br", ""},
	} {
		if got := s.ask(1, "/", c[0]); got != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
	}
	k.target = "/lang"
	varyOn := []headerID{hdrAcceptLanguage, hdrCookie}
	s.keep(k, answerOf("de"), Rule{}, varyOn, variant{values: []string{"de", ""}})
	s.keep(k, answerOf("no language"), Rule{}, varyOn, variant{values: []string{"", ""}})
	for _, c := range [][2]string{
		{"Accept-Language: de", "de"},
		{"DNT: 1", "no language"},
		{"Accept-Language: de\r\nCookie: a=b", ""},
		{"Cookie: a=b", ""},
		{"Accept-Language: DE", ""},
		{"Accept-Language: de\r\nAccept-Encoding: br", "de"},
	} {
		if got := s.ask(1, "/lang", c[0]); got != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
	}
	for i := range 100 { // a client that makes languages up
		s.keep(k, answerOf("x"), Rule{}, varyOn, variant{values: []string{fmt.Sprint(i), ""}})
	}
	kept := 0
	for i := range 100 {
		if s.ask(1, "/lang", fmt.Sprint("Accept-Language: ", i)) != "" {
			kept++
		}
	}
	if kept != maxVariants || s.ask(1, "/lang", "Accept-Language: 99") == "" {
		t.Errorf("%d variants are kept, want the last %d", kept, maxVariants)
	}
}

func TestTableBudget(t *testing.T) {
	const budget = 1 << 20
	s := newShelf(t, budget)
	body := strings.Repeat("x", 10_000)
	lost := 0
	for i := range 1000 {
		if !s.keep(key{1, fmt.Sprint("/", i), false}, answerOf(body), Rule{}, nil, variant{}) {
			t.Fatal("not taken")
		}
		if s.used > budget {
			t.Fatalf("%d bytes after %d answers", s.used, i)
		}
		if s.ask(1, fmt.Sprint("/", i)) == "" {
			t.Fatalf("the answer that has just come is not held: %d", i)
		}
		if s.ask(1, "/0") == "" {
			lost++
			s.keep(key{1, "/0", false}, answerOf(body), Rule{}, nil, variant{})
		}
	}
	// Used all the time: the clock spares it, but for the turn in which it
	// finds everything used. Chance would take it about twenty times.
	if lost > 2 {
		t.Errorf("the hottest answer was given up %d times", lost)
	}
	if s.used < budget/2 || s.meters.LaneEvicted.Load() == 0 || s.meters.LaneBytes.Load() != s.used || s.meters.LaneEntries.Load() != s.count {
		t.Errorf("%d bytes, %d evicted; meters %d, %d of %d", s.used, s.meters.LaneEvicted.Load(), s.meters.LaneBytes.Load(), s.meters.LaneEntries.Load(), s.count)
	}
	if s.keep(key{1, "/large", false}, answerOf(strings.Repeat("x", budget/maxShare)), Rule{}, nil, variant{}) {
		t.Error("an answer beyond its share is taken")
	}
	s.close()
	if s.used != 0 || s.count != 0 {
		t.Errorf("%d bytes, %d entries are left", s.used, s.count)
	}
}

// Eviction comes to its end even if all entries are always in use.
func TestTableEvictsUnderLoad(t *testing.T) {
	const budget = 1 << 20
	s := newShelf(t, budget)
	for i := range 20 {
		s.keep(key{1, fmt.Sprint("/", i), false}, answerOf(strings.Repeat("x", 10_000)), Rule{}, nil, variant{})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for i := range s.slots {
					if e := s.slots[i].Load(); e != nil {
						e.recent.Store(true)
					}
				}
			}
		})
	}
	for i := range 500 {
		s.keep(key{1, fmt.Sprint("/more", i), false}, answerOf(strings.Repeat("x", 10_000)), Rule{}, nil, variant{})
	}
	close(stop)
	wg.Wait()
}

func TestTableValidity(t *testing.T) {
	s := newShelf(t, 1<<20)
	var gen Generation
	now := time.Now()
	plain := variant{}
	s.keep(key{1, "/m", false}, answerOf("m"), Rule{Version: gen.Now()}, nil, plain)
	s.keep(key{1, "/past", false}, answerOf("past"), Rule{Expires: now.Add(-time.Second)}, nil, plain)
	s.keep(key{1, "/future", false}, answerOf("future"), Rule{Expires: now.Add(time.Hour)}, nil, plain)
	s.keep(key{2, "/gone", false}, answerOf("gone"), Rule{}, nil, plain)
	for target, want := range map[string]string{"/m": "m", "/past": "", "/future": "future"} {
		if got := s.ask(1, target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	gen.Invalidate()
	if got := s.ask(1, "/m"); got != "" {
		t.Errorf("void, but %q", got)
	}
	var one, many Generation
	s.keep(key{1, "/both", false}, answerOf("both"), Rule{Version: one.Now(), Also: many.Now()}, nil, plain)
	if got := s.ask(1, "/both"); got != "both" {
		t.Errorf("while both versions are valid: %q", got)
	}
	many.Invalidate()
	if got := s.ask(1, "/both"); got != "" {
		t.Errorf("the second version is invalid, but %q", got)
	}
	s.sweep(now.Unix(), func(site uint64) bool { return site == 2 })
	if s.count != 1 || s.ask(1, "/future") == "" || s.ask(2, "/gone") != "" || s.meters.LaneVoided.Load() != 4 {
		t.Errorf("%d entries after the sweep, %d voided", s.count, s.meters.LaneVoided.Load())
	}
	// A new life for the same bytes.
	a := answerOf("again")
	s.keep(key{1, "/again", false}, a, Rule{Expires: now.Add(-time.Second)}, nil, plain)
	if s.has(key{1, "/again", false}, &demands{}, plain, a, Rule{Expires: now.Add(time.Hour)}) {
		t.Error("an expired answer counts as held")
	}
	if !s.has(key{1, "/again", false}, &demands{}, plain, a, Rule{Expires: now.Add(-time.Second)}) {
		t.Error("the very same offer does not count as held")
	}
	if s.has(key{1, "/again", false}, &demands{}, plain, a, Rule{Expires: now.Add(-time.Second), Also: many.Now()}) {
		t.Error("an offer under another version counts as held")
	}
}

// offer does as Offer does: it asks whether the key is admitted first.
func (s *shelf) offer(target string, a *send.Answer) bool {
	k := key{1, target, true}
	return s.admits(k) && s.keep(k, a, Rule{}, nil, variant{})
}

// A crawler that asks for a million addresses once each leaves the answers that
// are asked for again where they are, however seldom that is.
func TestScanLeavesTheHot(t *testing.T) {
	const budget, hot = 1 << 20, 50
	s := newShelf(t, budget)
	body := strings.Repeat("x", 1000)
	for i := range hot {
		s.offer(fmt.Sprint("/?hot=", i), answerOf(body))
	}
	taken := 0
	for i := range 20_000 {
		if s.offer(fmt.Sprint("/?scan=", i), answerOf(body)) {
			taken++
		}
		if i%5000 == 0 {
			for i := range hot {
				s.ask(1, fmt.Sprint("/?hot=", i))
			}
		}
		if s.used > budget {
			t.Fatalf("%d bytes", s.used)
		}
	}
	kept := 0
	for i := range hot {
		if s.ask(1, fmt.Sprint("/?hot=", i)) != "" {
			kept++
		}
	}
	// Until the table is full everything is taken, and collisions within a
	// bucket may cost a few.
	if kept < hot*9/10 || taken > 600 {
		t.Errorf("%d of %d hot answers are left, %d of the others were taken", kept, hot, taken)
	}
	// What is asked for again finds its place even then.
	for _, want := range []bool{false, true} {
		if got := s.offer("/?new", answerOf(body)); got != want {
			t.Errorf("offered once more: taken %t, want %t", got, want)
		}
	}
	if s.ask(1, "/?new") == "" || !s.offer("/?new", answerOf("newer")) || s.ask(1, "/?new") != "newer" {
		t.Error("a new answer for what is held is not taken at once")
	}
	// With room again, the first offer will do.
	for i := range s.slots {
		s.mu.Lock()
		s.setSlot(uint64(i), nil)
		s.mu.Unlock()
	}
	if !s.offer("/?first", answerOf(body)) {
		t.Error("not taken, with all that room")
	}
}

// The table's budget is about the memory that is really taken: of answers as a
// cache offers them, all of them asked for once, so that their bytes were made.
func TestTableMemory(t *testing.T) {
	const budget = 16 << 20
	s := newShelf(t, budget)
	now := time.Now().Unix()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range 20_000 {
		target := fmt.Sprintf("/api/comments?url=https://example.org/%d", i)
		stored := now
		rule := Rule{Lines: func(b []byte, now int64) []byte { return fmt.Appendf(b, "Age: %d\r\n", now-stored) }}
		s.keep(key{1, target, true}, apiAnswer(strings.Repeat("x", 1000)), rule, []headerID{hdrHost, hdrCookie, hdrAuthorization},
			variant{values: []string{"a", "", ""}})
		if r := s.seek(1, target); r == nil {
			t.Fatal("not held")
		} else {
			r.stamp(now)
			r.stamp304(now)
		}
	}
	t.Logf("%d entries, %d bytes counted, %d taken", s.count, s.used, heap()-before)
	if took := heap() - before; took > budget*5/4 || took < budget/2 {
		t.Errorf("%d MB are taken, with a budget of %d (%d entries)", took>>20, budget>>20, s.count)
	}
	s.close()
}

// apiAnswer is an answer with the headers of a common API, its strings its own
// as they are when they were read from a connection.
func apiAnswer(body string) *send.Answer {
	h := http.Header{}
	for name, value := range map[string]string{
		"Date": "Sun, 06 Nov 1994 08:49:37 GMT", "Content-Type": "application/json; charset=utf-8", "Content-Length": strconv.Itoa(len(body)),
		"Cache-Control": "public, max-age=60, stale-while-revalidate=30", "Etag": `"0123456789abcdef0123456789abcdef"`,
		"Vary": "Accept-Encoding, Origin", "X-Request-Id": "0123456789abcdef0123456789abcdef", "X-Content-Type-Options": "nosniff",
		"Access-Control-Allow-Origin": "*", "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT",
	} {
		h[name] = []string{strings.Clone(value)}
	}
	return &send.Answer{Header: h, Body: []byte(body), Size: int64(len(body)), ETag: h["Etag"][0]}
}

// Every reference to a file that the table takes is given back, once.
func TestTableFiles(t *testing.T) {
	s := newShelf(t, 1<<20)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *send.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return send.NewFile(f)
	}
	answer := func(f *send.File) *send.Answer {
		return &send.Answer{Header: http.Header{"Content-Length": {"1"}}, File: f, Size: 1}
	}
	closed := func(f *send.File) bool {
		if !f.Retain() {
			return true
		}
		f.Release()
		return false
	}
	k := key{1, "/", false}
	first, second := open(), open()
	a := answer(first)
	for _, p := range []negotiate.Preference{1, 2, 0, 1} {
		s.keep(k, a, Rule{}, nil, variant{negotiated: true, preference: p}) // one file, several variants
	}
	first.Release()
	if closed(first) {
		t.Fatal("the table does not hold the file")
	}
	s.keep(k, answer(second), Rule{}, nil, variant{})
	second.Release()
	for _, p := range []negotiate.Preference{1, 2, 0} {
		s.keep(k, answerOf("bytes"), Rule{}, nil, variant{negotiated: true, preference: p})
	}
	if !closed(first) || closed(second) {
		t.Errorf("replaced: closed %t, kept: closed %t", closed(first), closed(second))
	}
	if s.keep(k, answer(first), Rule{}, nil, variant{}) {
		t.Error("an answer with a closed file is taken")
	}
	s.close()
	if !closed(second) {
		t.Error("the file is open when the table has closed")
	}
}

// Readers without locks beside everything that changes the table; for the race
// detector, and for answers that belong to another key.
func TestTableConcurrently(t *testing.T) {
	s := newShelf(t, 1<<20)
	var gens [4]Generation
	const names = 200
	stop := make(chan struct{})
	var wg, writers sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				want := fmt.Sprint("/", i%names)
				if got := s.ask(1, want); got != "" && !strings.HasPrefix(got, want+" ") {
					t.Errorf("%s got %.20q", want, got)
					return
				}
			}
		})
	}
	for w := range 2 {
		writers.Go(func() {
			for i := range 3000 {
				name := fmt.Sprint("/", (i*7+w)%names)
				g := &gens[i%len(gens)]
				s.keep(key{1, name, false}, answerOf(name+" "+strings.Repeat("x", 3000)), Rule{Version: g.Now()}, nil, variant{})
				switch {
				case i%50 == 0:
					g.Invalidate()
				case i%400 == 1:
					s.sweep(time.Now().Unix(), func(uint64) bool { return false })
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	wg.Wait()
	var used, count int64
	for i := range s.slots {
		if e := s.slots[i].Load(); e != nil {
			count++
			e.each(func(r *response) { used += r.cost })
		}
	}
	if used != s.used || count != s.count {
		t.Errorf("counted %d bytes in %d entries, there are %d in %d", s.used, s.count, used, count)
	}
}
