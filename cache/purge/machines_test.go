package purge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/store"
)

// A network is many machines that share a store, in a bubble of time: what store/redis does
// with its server stands in the simulated server, and the machines are Purgers. Faults come
// by a seed.
type network struct {
	t       *testing.T
	server  *simServer
	origin  [simPages]atomic.Int64 // the versions of the pages
	said    [simPages]atomic.Int64 // the oldest that is in no purge which was published
	agreed  [simPages]atomic.Int64 // the oldest that is in no purge which all machines have acknowledged
	reads   atomic.Int64
	agreeds atomic.Int64
	wg      sync.WaitGroup
}

const simPages = 8

func simURL(page int) string { return fmt.Sprint("http://a.example/", page) }

// simServer is the shared store's server.
type simServer struct {
	mu      sync.Mutex
	entries []simEntry
	last    int
	run     string
	begin   int // the entry with which the run begins
	objects map[int]simObject
	read    map[*simMachine]int // acknowledged
	bell    chan struct{}       // closed when there is another entry
	saved   *simServer          // a snapshot
	down    bool
}

type simEntry struct {
	id      int
	message []byte
}

type simObject struct {
	version int64
	epoch   string
}

func (s *simServer) add(message []byte) int {
	s.last++
	s.entries = append(s.entries, simEntry{s.last, message})
	close(s.bell)
	s.bell = make(chan struct{})
	return s.last
}

// restart begins another run, of what a snapshot has.
func (s *simServer) restart(run int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.saved; old != nil {
		s.entries = append([]simEntry(nil), old.entries...)
		s.objects = map[int]simObject{}
		for page, o := range old.objects {
			s.objects[page] = o
		}
	}
	s.run = fmt.Sprint("run ", run)
	s.begin = s.add(nil)
}

func (s *simServer) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := &simServer{entries: append([]simEntry(nil), s.entries...), objects: map[int]simObject{}}
	for page, o := range s.objects {
		old.objects[page] = o
	}
	s.saved = old
}

func (s *simServer) trim(keep int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = s.entries[max(0, len(s.entries)-keep):]
}

// simMachine is one machine: a Purger, a memory, and a line to the server.
type simMachine struct {
	n     *network
	p     *Purger
	cut   atomic.Bool // nothing passes
	heard atomic.Bool
	run   string
	at    int
	kick  chan struct{}
	ctx   context.Context
	stop  context.CancelFunc

	mu     sync.Mutex
	memory [simPages]*entryOf
}

func (n *network) start() *simMachine {
	m := &simMachine{n: n, kick: make(chan struct{}, 1)}
	m.ctx, m.stop = context.WithCancel(context.Background())
	p, err := NewPurger(Options{
		Index: New(0), Alike: func(s Selector) []Selector { return []Selector{s} }, Line: m,
		Publish:  func(_ context.Context, message []byte) error { _, err := m.publish(message); return err },
		Announce: m.announce, Purged: func() {}, ErrorLog: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	m.p = p
	p.Run(m.ctx, n.wg.Go)
	n.wg.Go(m.listen)
	return m
}

func (m *simMachine) end() {
	m.stop()
	m.p.Stop()
	s := m.n.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.read, m) // it says goodbye
}

// near is what a message takes.
func near() time.Duration { return 100*time.Microsecond + rand.N(2*time.Millisecond) }

// sends reports whether something passes to the server, or back.
func (m *simMachine) sends() bool {
	time.Sleep(near())
	return m.reaches()
}

func (m *simMachine) publish(message []byte) (int, error) {
	if !m.sends() {
		return 0, store.ErrDown
	}
	s := m.n.server
	s.mu.Lock()
	id := s.add(message)
	s.mu.Unlock()
	if !m.sends() { // the answer is lost
		return 0, store.ErrDown
	}
	return id, nil
}

func (m *simMachine) announce(_ context.Context, message []byte) (func(context.Context) ([]string, error), error) {
	id, err := m.publish(message)
	if err != nil {
		return nil, err
	}
	s := m.n.server
	return func(ctx context.Context) ([]string, error) {
		for {
			missing := 0
			s.mu.Lock()
			for _, at := range s.read {
				if at < id {
					missing++
				}
			}
			_, self := s.read[m]
			s.mu.Unlock()
			if missing == 0 && self {
				return nil, nil
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return []string{fmt.Sprint(missing, " machines")}, nil
			}
		}
	}, nil
}

// CaughtUp implements Line.
func (m *simMachine) CaughtUp() bool { return m.heard.Load() }

// CatchUp implements Line.
func (m *simMachine) CatchUp(ctx context.Context) error {
	if !m.sends() {
		return store.ErrDown
	}
	select {
	case m.kick <- struct{}{}:
	default:
	}
	for range 50 {
		if m.heard.Load() {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("behind")
}

// listen is what follow of store/redis does.
func (m *simMachine) listen() {
	s := m.n.server
	for m.ctx.Err() == nil {
		if !m.sends() {
			time.Sleep(rand.N(time.Second)) // until it is noticed
			if m.heard.Swap(false) {
				m.p.Lagging()
			}
			m.wait(rand.N(time.Second), nil)
			continue
		}
		s.mu.Lock()
		run, begin := s.run, s.begin
		s.mu.Unlock()
		if run != m.run {
			m.heard.Store(false)
			m.run, m.at = run, begin
			m.p.Began(run)
		}
		s.mu.Lock()
		var news []simEntry
		var first []byte
		i, found := slices.BinarySearchFunc(s.entries, m.at, func(e simEntry, at int) int { return e.id - at })
		if found {
			news = slices.Clone(s.entries[i+1:])
		} else if len(s.entries) == 0 {
			m.at = s.add(nil)
		} else {
			m.at, first = s.entries[0].id, s.entries[0].message
		}
		bell := s.bell
		same := s.run == run
		s.mu.Unlock()
		if !same {
			continue
		}
		if !found {
			m.heard.Store(false)
			m.p.Message(nil, true)
			if first != nil {
				m.p.Message(first, false)
			}
			continue
		}
		time.Sleep(near()) // the answer is on its way
		for _, e := range news {
			if e.message != nil {
				m.p.Message(e.message, false)
			}
			m.at = e.id
		}
		if m.cut.Load() {
			continue
		}
		s.mu.Lock()
		same = s.run == run
		if same && m.ctx.Err() == nil {
			s.read[m] = m.at
			m.heard.Store(true)
		}
		s.mu.Unlock()
		if same {
			m.wait(time.Second, bell)
		}
	}
}

func (m *simMachine) wait(d time.Duration, bell <-chan struct{}) {
	select {
	case <-time.After(d):
	case <-bell:
	case <-m.kick:
	case <-m.ctx.Done():
	}
}

// read is a request, and checks what it gets.
func (m *simMachine) read(page int) {
	n := m.n
	n.reads.Add(1)
	least, why := n.agreed[page].Load(), "all machines have acknowledged"
	sure := true
	if !m.p.CaughtUp() {
		reached := m.reaches()
		said := n.said[page].Load()
		sure = m.p.CatchUp(m.ctx)
		// It could reach the server at the beginning, and can at the end: it was not cut off
		// in between, for faults last longer.
		if reached && m.reaches() && said > least {
			least, why = said, "were published before this machine, which had been cut off, could reach the server again"
		}
	}
	got := m.answer(page, sure)
	if got < least {
		n.t.Errorf("page %d: version %d, older than purges that %s: they allow %d", page, got, why, least)
	}
}

// reaches reports whether the machine could reach the server now.
func (m *simMachine) reaches() bool {
	m.n.server.mu.Lock()
	defer m.n.server.mu.Unlock()
	return !m.cut.Load() && !m.n.server.down
}

func (m *simMachine) answer(page int, sure bool) int64 {
	index := m.p.Index()
	m.mu.Lock()
	e := m.memory[page]
	m.mu.Unlock()
	if sure && e != nil && index.State(&e.Object, &e.checked) == Valid {
		return int64(e.version)
	}
	s := m.n.server
	if sure && m.heard.Load() && m.sends() {
		s.mu.Lock()
		found, ok := s.objects[page]
		s.mu.Unlock()
		if at, known := m.p.Time(found.epoch); ok && known && m.heard.Load() {
			e = &entryOf{Object: Object{URL: simURL(page), At: at}, version: int(found.version)}
			if index.State(&e.Object, nil) == Valid {
				m.keep(page, e)
				return found.version
			}
		}
	}
	e = &entryOf{Object: Object{URL: simURL(page), At: index.Now()}}
	time.Sleep(near())
	e.version = int(m.n.origin[page].Load())
	time.Sleep(near())
	m.keep(page, e)
	if epoch := m.p.Epoch(e.At); m.sends() {
		s.mu.Lock()
		s.objects[page] = simObject{int64(e.version), epoch}
		s.mu.Unlock()
	}
	return int64(e.version)
}

func (m *simMachine) keep(page int, e *entryOf) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memory[page] = e
}

// edit changes a page and purges it, at one machine.
func (m *simMachine) edit(page int) {
	n := m.n
	version := n.origin[page].Add(1)
	await, err := m.p.Announce(m.ctx, Selector{URL: simURL(page), Hard: true})
	if got := m.answer(page, true); got < version {
		n.t.Errorf("page %d: version %d on the machine that has purged %d", page, got, version)
	}
	if err != nil {
		return
	}
	raise(&n.said[page], version)
	ctx, cancel := context.WithTimeout(m.ctx, time.Second)
	defer cancel()
	if await(ctx) == nil {
		raise(&n.agreed[page], version)
		n.agreeds.Add(1)
	}
}

func raise(to *atomic.Int64, v int64) {
	for old := to.Load(); old < v && !to.CompareAndSwap(old, v); old = to.Load() {
	}
}

// TestManyMachines: with a thousand machines, of which some are cut off, some end and start,
// and a server that is trimmed, goes, and comes back from an older snapshot, nobody is served
// what all machines have acknowledged the purge of; nor, at the first request after it was
// cut off, what any machine has purged.
func TestManyMachines(t *testing.T) {
	for seed, size := range []struct{ machines, steps int }{{1000, 50}, {40, 300}, {40, 300}, {40, 300}} {
		machines, steps := size.machines, size.steps
		if underRace && machines > 100 {
			continue // a minute
		}
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 37))
			n := &network{t: t, server: &simServer{run: "run 0", objects: map[int]simObject{}, read: map[*simMachine]int{}, bell: make(chan struct{})}}
			n.server.begin = n.server.add(nil)
			var all []*simMachine
			for range machines {
				all = append(all, n.start())
			}
			time.Sleep(5 * time.Second)
			some := func() *simMachine { return all[r.IntN(len(all))] }
			later := func(f func()) {
				d := time.Second + time.Duration(r.IntN(5000))*time.Millisecond
				n.wg.Go(func() { time.Sleep(d); f() })
			}
			for step := range steps {
				switch r.IntN(24) {
				case 0: // some are cut off, and heal
					for range 1 + r.IntN(machines/20) {
						m := some()
						m.cut.Store(true)
						page := r.IntN(simPages)
						later(func() { m.cut.Store(false); m.read(page) })
					}
				case 1: // some end, and others start
					for range 1 + r.IntN(machines/40) {
						i := r.IntN(len(all))
						all[i].end()
						all[i] = n.start()
					}
				case 2:
					switch r.IntN(4) {
					case 0:
						n.server.trim(r.IntN(20))
					case 1:
						n.server.save()
					case 2:
						n.server.restart(step + 1)
					case 3:
						n.server.mu.Lock()
						n.server.down = true
						n.server.mu.Unlock()
						later(func() {
							n.server.restart(step + 1)
							n.server.mu.Lock()
							n.server.down = false
							n.server.mu.Unlock()
						})
					}
				default:
					m, page := some(), r.IntN(simPages)
					n.wg.Go(func() { m.edit(page) })
				}
				for range 15 {
					m, page := some(), r.IntN(simPages)
					n.wg.Go(func() { m.read(page) })
				}
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			}
			time.Sleep(30 * time.Second) // all have healed, and outboxes are empty
			for page := range simPages {
				all[0].edit(page)
				if n.agreed[page].Load() != n.origin[page].Load() {
					t.Errorf("page %d: not all have acknowledged its last purge", page)
				}
				for _, m := range all {
					m.read(page)
				}
			}
			t.Logf("seed %d: %d reads, %d purges that all have acknowledged, %d entries", seed, n.reads.Load(), n.agreeds.Load(), n.server.last)
			for _, m := range all {
				m.end()
			}
			n.wg.Wait()
		})
	}
}
