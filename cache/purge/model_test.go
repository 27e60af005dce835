package purge

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A page is a thing that changes at the origin. Its history is checked against
// this model: edits raise its version; a purge that has answered raises the
// oldest version that may still be served to the current one; a read may give
// anything between the two.
type page struct{ version, floor int }

type step struct {
	page int
	what byte // e: edit, p: purge, r: read
}

func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byPage := map[int][]porcupine.Operation{}
			for _, op := range history {
				byPage[op.Input.(step).page] = append(byPage[op.Input.(step).page], op)
			}
			var all [][]porcupine.Operation
			for _, one := range byPage {
				all = append(all, one)
			}
			return all
		},
		Init: func() any { return page{} },
		Step: func(state, input, output any) (bool, any) {
			p := state.(page)
			switch input.(step).what {
			case 'e':
				p.version = output.(int)
			case 'p':
				p.floor = p.version
			case 'r':
				got := output.(int)
				return p.floor <= got && got <= p.version, p
			}
			return true, p
		},
	}
}

// site is a cache as it should be, reduced to what purging needs, in front of
// an origin.
type site struct {
	index   *Index
	origin  []atomic.Int64
	mu      sync.Mutex
	stored  []*entryOf
	tooLate bool // the mistake that the test must find: At is read after the answer

	began time.Time
	opsMu sync.Mutex
	ops   []porcupine.Operation
}

type entryOf struct {
	Object
	checked Time
	version int
}

func (s *site) record(client int, in step, do func() int) {
	call := time.Since(s.began).Nanoseconds()
	out := do()
	end := time.Since(s.began).Nanoseconds()
	s.opsMu.Lock()
	defer s.opsMu.Unlock()
	s.ops = append(s.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
}

func pageURL(p int) string { return fmt.Sprintf("http://h%d/p/%d", p%2, p) }

func (s *site) read(p int) int {
	s.mu.Lock()
	e := s.stored[p]
	s.mu.Unlock()
	if e != nil && s.index.State(&e.Object, &e.checked) == Valid {
		return e.version
	}
	e = &entryOf{Object: Object{URL: pageURL(p), Tags: []string{fmt.Sprint("page", p), fmt.Sprint("parity", p%2)}, At: s.index.Now()}}
	e.version = int(s.origin[p].Load())
	runtime.Gosched() // the answer is on its way
	if s.tooLate {
		e.At = s.index.Now()
	}
	s.mu.Lock()
	s.stored[p] = e // also over a newer one, as a late fill would
	s.mu.Unlock()
	return e.version
}

// purge purges some pages in one of many ways, as one operation on each.
func (s *site) purge(client int, r *rand.Rand, p int) {
	parity := []int{p % 2}
	for q := p%2 + 2; q < len(s.origin); q += 2 {
		parity = append(parity, q)
	}
	hard := r.IntN(2) == 0
	sel, pages := Selector{URL: pageURL(p), Hard: hard}, []int{p}
	switch r.IntN(7) {
	case 0:
		sel = Selector{Tag: fmt.Sprint("page", p), Hard: hard}
	case 1:
		sel, pages = Selector{Tag: fmt.Sprint("parity", p%2), Hard: hard}, parity
	case 2:
		sel, pages = Selector{Host: fmt.Sprint("h", p%2), Hard: hard}, parity
	case 3:
		sel, pages = Selector{Prefix: fmt.Sprintf("h%d/p", p%2), Hard: hard}, parity
	case 4:
		sel = Selector{Glob: fmt.Sprintf("*/p/%d", p), Hard: hard}
	case 5:
		// Others fill the index, so that it folds.
		for i := range 3 {
			s.index.Purge(Selector{Tag: fmt.Sprint("filler", client, i, r.Int())})
		}
	}
	call := time.Since(s.began).Nanoseconds()
	s.index.Purge(sel)
	end := time.Since(s.began).Nanoseconds()
	s.opsMu.Lock()
	defer s.opsMu.Unlock()
	for _, q := range pages {
		s.ops = append(s.ops, porcupine.Operation{ClientId: client, Input: step{q, 'p'}, Call: call, Output: 0, Return: end})
	}
}

func (s *site) run(seed uint64, steps int) {
	var wg sync.WaitGroup
	for client := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(client)))
			for range steps {
				p := r.IntN(len(s.origin))
				switch client {
				case 0: // the only editor, so that versions rise
					s.record(client, step{p, 'e'}, func() int { return int(s.origin[p].Add(1)) })
					if r.IntN(2) == 0 {
						s.purge(client, r, p)
					}
				case 1:
					s.purge(client, r, p)
				default:
					s.record(client, step{p, 'r'}, func() int { return s.read(p) })
				}
			}
		})
	}
	wg.Wait()
}

func newSite() *site {
	const pages = 4
	return &site{index: New(16), origin: make([]atomic.Int64, pages), stored: make([]*entryOf, pages), began: time.Now()}
}

// TestLinearizable: a read that starts after a purge has answered never sees
// what was there before.
func TestLinearizable(t *testing.T) {
	for seed := range uint64(20) {
		s := newSite()
		s.run(seed, 100)
		if porcupine.CheckOperationsTimeout(model(), s.ops, time.Minute) == porcupine.Illegal {
			t.Fatalf("seed %d: a read saw an older version than the last purge allows", seed)
		}
	}
}

// TestModelFindsMistakes: the same history test fails for a cache that reads
// At too late. The interleaving is forced: edit and purge come while the
// answer is on its way.
func TestModelFindsMistakes(t *testing.T) {
	for _, late := range []bool{false, true} {
		s := newSite()
		s.tooLate = late
		s.record(1, step{0, 'r'}, func() int {
			e := &entryOf{Object: Object{URL: pageURL(0), At: s.index.Now()}, version: int(s.origin[0].Load())}
			s.record(0, step{0, 'e'}, func() int { return int(s.origin[0].Add(1)) })
			s.record(0, step{0, 'p'}, func() int { s.index.Purge(Selector{URL: pageURL(0)}); return 0 })
			if s.tooLate {
				e.At = s.index.Now()
			}
			s.stored[0] = e
			return e.version
		})
		s.record(1, step{0, 'r'}, func() int { return s.read(0) })
		if legal := porcupine.CheckOperations(model(), s.ops); legal == late {
			t.Errorf("At read too late: %v, judged right: %v", late, legal)
		}
	}
}

// The oracle: all purges ever, compared one by one in the plainest way.
type purgedBy struct {
	Selector
	n Time
}

func (p *purgedBy) hits(o *Object) bool {
	bare := strings.TrimPrefix(o.URL, "http://")
	host, _, _ := strings.Cut(bare, "/")
	switch {
	case p.URL != "":
		return o.URL == p.URL
	case p.Prefix != "":
		return strings.HasPrefix(o.URL, p.Prefix)
	case p.Glob != "":
		return globRegexp(p.Glob).MatchString(bare)
	case p.Tag != "":
		return slices.Contains(o.Tags, p.Tag)
	case p.Host != "":
		return host == p.Host
	}
	return true
}

func globRegexp(glob string) *regexp.Regexp {
	e := regexp.QuoteMeta(glob)
	e = strings.ReplaceAll(e, `\*`, `.*`)
	return regexp.MustCompile(`(?s)\A` + strings.ReplaceAll(e, `\?`, `.`) + `\z`)
}

// TestAgainstOracle: an index with room says exactly what the oracle does, one
// that is too small never anything milder; over restarts as well.
func TestAgainstOracle(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		large, small := New(1<<20), New(6)
		type held struct {
			o     Object
			check Time
		}
		var objects [2][]*held
		var done [2][]purgedBy
		for range 600 {
			url, tag := fmt.Sprintf("http://h%d/%d/%d", r.IntN(3), r.IntN(3), r.IntN(4)), fmt.Sprint("t", r.IntN(10))
			indexes := [2]*Index{large, small}
			switch r.IntN(12) {
			case 0, 1, 2, 3:
				for i, b := range indexes {
					objects[i] = append(objects[i], &held{o: Object{URL: url, Tags: []string{tag, "x" + tag}, At: b.Now()}})
				}
			case 4, 5, 6, 7:
				s := []Selector{{URL: url}, {Tag: tag}, {Host: url[7:9]}, {Prefix: url[:11]}, {Glob: "*" + url[9:12] + "?"}, {URL: url}, {Tag: tag}}[r.IntN(7)]
				if r.IntN(100) == 0 {
					s = Selector{All: true}
				}
				s.Hard = r.IntN(3) == 0
				for i, b := range indexes {
					done[i] = append(done[i], purgedBy{s, b.Purge(s)})
				}
			case 8:
				if r.IntN(20) == 0 {
					for i, b := range []**Index{&large, &small} {
						saved := (*b).Save()
						*b = New([]int{1 << 20, 6}[i])
						if err := (*b).Restore(saved); err != nil {
							t.Fatal(err)
						}
						for _, h := range objects[i] {
							h.check = 0
						}
					}
				}
			default:
				for i, b := range indexes {
					if len(objects[i]) == 0 {
						continue
					}
					h := objects[i][r.IntN(len(objects[i]))]
					want := Valid
					for _, p := range done[i] {
						if s := timesOf(p.Hard, p.n).state(h.o.At); p.hits(&h.o) {
							want = max(want, s)
						}
					}
					if got := b.State(&h.o, &h.check); got < want || i == 0 && got != want {
						t.Fatalf("seed %d, index %d: %+v is %d, want %d", seed, i, h.o, got, want)
					}
				}
			}
		}
	}
}
