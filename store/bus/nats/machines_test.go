package nats

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/observe/meter"
	"millrace/store/bus"
)

// simStream is a stream that publishes again what it keeps, in a bubble of time. What a
// machine gets of it over a connection comes in order, until the connection breaks.
type simStream struct {
	mu         sync.Mutex
	messages   []*nats.Msg // by their numbers, from 1; nil: dropped
	last       map[string]uint64
	count      map[string]int
	kept       map[string][]uint64
	perChannel int
	machines   []*simMachine
	sub        nats.Subscription // of all, for each channel
}

// publish puts a message into a channel's order.
func (s *simStream) publish(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := uint64(len(s.messages) + 1)
	m := &nats.Msg{Sub: &s.sub, Subject: "test.out." + channel, Data: []byte("x"), Header: nats.Header{
		"Nats-Sequence": {strconv.FormatUint(seq, 10)}, "Nats-Last-Sequence": {strconv.FormatUint(s.last[channel], 10)},
		idHeader: {encodeID(fmt.Sprint(seq))}, timeHeader: {"1700000000000"},
	}}
	s.messages = append(s.messages, m)
	s.last[channel] = seq
	s.count[channel]++
	kept := append(s.kept[channel], seq)
	if len(kept) > s.perChannel {
		s.messages[kept[0]-1] = nil
		kept = kept[1:]
	}
	s.kept[channel] = kept
	for _, machine := range s.machines {
		if machine.connected {
			machine.wire <- arrived{m, machine.dials}
		}
	}
}

// info is the stream as it is now. Called with mu.
func (s *simStream) info() info {
	i := info{last: uint64(len(s.messages)), first: uint64(len(s.messages)) + 1, perChannel: int64(s.perChannel)}
	for seq, m := range s.messages {
		if m != nil {
			i.first = uint64(seq) + 1
			break
		}
	}
	return i
}

// arrived is a message on its way, of a connection.
type arrived struct {
	m     *nats.Msg
	dials uint64
}

// simMachine is one machine's bus without its connection.
type simMachine struct {
	*Bus
	s         *simStream
	wire      chan arrived
	connected bool // under s.mu, as dials
	dials     uint64

	t     *testing.T
	seen  map[string]uint64 // of each channel
	count map[string]int
	reset map[string]bool
}

// Deliver implements bus.Listener: nothing twice, and in order.
func (m *simMachine) Deliver(got bus.Message) {
	if got.Offset <= m.seen[got.Channel] {
		m.t.Errorf("%d of %s comes after %d", got.Offset, got.Channel, m.seen[got.Channel])
	}
	m.seen[got.Channel] = got.Offset
	m.count[got.Channel]++
}

// Reset implements bus.Listener.
func (m *simMachine) Reset(channel string) { m.reset[channel] = true }

// Placed implements bus.Listener.
func (*simMachine) Placed(string, string, uint64) {}

// State implements bus.Listener.
func (*simMachine) State(error) {}

// Members implements bus.Listener.
func (*simMachine) Members(string) []bus.Member { return nil }

func (s *simStream) start(t *testing.T, channels []string) *simMachine {
	m := &simMachine{
		Bus: &Bus{o: Options{Name: "test"}, log: slog.New(slog.DiscardHandler), meters: new(meter.Store), seed: maphash.MakeSeed()},
		s:   s, wire: make(chan arrived, 100_000), t: t, seen: map[string]uint64{}, count: map[string]int{}, reset: map[string]bool{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.link.init()
	m.listener = m
	for i := range m.workers {
		m.workers[i] = newWorker(m.Bus)
	}
	for _, name := range channels {
		m.worker(name).channels[name] = &channel{name: name, token: name, sub: &s.sub}
	}
	return m
}

// run takes what comes, and catches up after each connection.
func (m *simMachine) run() {
	var current uint64
	for a := range m.wire {
		time.Sleep(rand.N(200 * time.Microsecond))
		if a.m == nil { // a new connection
			current = a.dials
			m.link.dials.Store(current)
			m.catchUp(current)
			continue
		}
		if a.dials != current {
			continue // it was on its way when the connection broke
		}
		s, _, ok := m.live(a.m)
		if !ok {
			m.t.Fatal("a message that cannot be read")
		}
		m.worker(s.token).take(a.m)
	}
}

// catchUp does what the bus's own does, without the network.
func (m *simMachine) catchUp(dials uint64) {
	id := m.fills.Add(1)
	known := m.order.inStep()
	from := uint64(1 << 62)
	for _, w := range m.workers {
		_, lowest := w.begin(id)
		from = min(from, lowest)
	}
	m.s.mu.Lock()
	now := m.s.info()
	var found []stored
	for seq := from; seq < now.last; seq++ {
		if one := m.s.messages[seq]; one != nil {
			s, _, _ := m.live(one)
			found = append(found, s)
		}
	}
	m.s.mu.Unlock()
	time.Sleep(rand.N(20 * time.Millisecond))
	for _, s := range found {
		m.worker(s.token).read(id, []stored{s})
	}
	m.s.mu.Lock()
	after := m.s.info()
	m.s.mu.Unlock()
	m.link.caughtUp.Store(dials)
	for _, w := range m.workers {
		w.end(id, now.last, after, !known)
	}
	m.order.caughtUp(now.last)
}

// connect makes a connection, or breaks it.
func (m *simMachine) connect(up bool) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.connected == up {
		return
	}
	if m.connected = up; up {
		m.dials++
		m.wire <- arrived{nil, m.dials}
	}
}

// TestManyMachines: a thousand machines with connections that break at random, and a stream
// that drops what is older than its bounds, each deliver everything once and in order, or say
// that something was lost.
func TestManyMachines(t *testing.T) {
	const machines, publications = 1000, 400
	for seed, perChannel := range []int{10_000, 10} {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 37))
			channels := []string{"a", "b", "c"}
			s := &simStream{last: map[string]uint64{}, count: map[string]int{}, kept: map[string][]uint64{}, perChannel: perChannel}
			var running sync.WaitGroup
			for range machines {
				m := s.start(t, channels)
				s.machines = append(s.machines, m)
				running.Go(m.run)
				m.connect(true)
			}
			for range publications {
				s.publish(channels[r.IntN(len(channels))])
				for range r.IntN(20) {
					s.machines[r.IntN(machines)].connect(r.IntN(2) == 0)
				}
				time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
			}
			for _, m := range s.machines {
				m.connect(true)
			}
			for _, channel := range channels {
				s.publish(channel) // by which a gap before it is seen
			}
			time.Sleep(time.Minute)
			for _, m := range s.machines {
				close(m.wire)
			}
			running.Wait()
			resets := 0
			for i, m := range s.machines {
				for _, channel := range channels {
					switch {
					case m.reset[channel]:
						resets++
					case m.count[channel] != s.count[channel]:
						t.Errorf("machine %d has %d of %d publications of %s, and does not say so", i, m.count[channel], s.count[channel], channel)
					case m.seen[channel] != s.last[channel]:
						t.Errorf("machine %d ends at %d of %s, not %d", i, m.seen[channel], channel, s.last[channel])
					}
				}
				m.cancel()
			}
			if perChannel > publications && resets > 0 {
				t.Errorf("%d times something was said to be lost, and nothing was", resets)
			}
			t.Logf("%d kept for each channel: %d publications, %d times something was said to be lost", perChannel, len(s.messages), resets)
		})
	}
}
