package conn

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"millrace/websocket/frame"
)

// TestWheel holds the wheel against a list of when everybody is due.
func TestWheel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var w wheel
	conns := make([]Conn, 50)
	due := map[*Conn]uint32{} // as a wheel that reaches as far as it does can keep it
	now := uint32(1<<32 - 5000)
	w.at = now
	for range 20_000 {
		c := &conns[random.IntN(len(conns))]
		n := uint32(random.IntN(400))
		at := now + min(max(n, 1), wheelSlots-1)
		switch random.IntN(5) {
		case 0:
			w.put(c, n)
			due[c] = at
		case 1:
			w.sooner(c, n)
			if old, there := due[c]; !there || int32(at-old) < 0 {
				due[c] = at
			}
		case 2:
			w.take(c)
			delete(due, c)
		default:
			now += uint32(random.IntN(4))
			if random.IntN(100) == 0 {
				now += uint32(random.IntN(5000)) // nobody has turned it for long
			}
			seen := map[*Conn]bool{}
			w.turn(now, func(c *Conn) {
				if seen[c] {
					t.Fatal("looked at twice in a turn")
				}
				seen[c] = true
				if at, there := due[c]; !there || int32(now-at) < 0 {
					t.Fatalf("looked at too early: %v, due %d, now %d", there, at, now)
				}
				delete(due, c)
				if random.IntN(2) == 0 {
					w.put(c, 1)
					due[c] = now + 1
				}
				if other := &conns[random.IntN(len(conns))]; random.IntN(8) == 0 {
					w.take(other) // it may be one that has not been looked at
					delete(due, other)
				}
			})
			for c, at := range due {
				if int32(now-at) >= 0 {
					t.Fatalf("missed: due %d, now %d, slot %d", at, now, c.due)
				}
			}
		}
	}
}

// TestTimeUp: what is due when, without a clock.
func TestTimeUp(t *testing.T) {
	s := &Settings{Ping: 10 * tickTime, PongTimeout: 60 * tickTime, Idle: 20 * tickTime, WriteTimeout: 5 * tickTime}
	base := uint32(1<<32 - 12) // wraps on the way
	c := &Conn{set: s, lastBytes: base, lastMessage: base}
	at := func(n uint32, want verdict, next uint32) {
		t.Helper()
		if v, got := c.timeUp(base + n); v != want || v == wait && got != next {
			t.Errorf("after %d ticks: %d, and again in %d; want %d and %d", n, v, got, want, next)
		}
	}
	at(0, wait, 10)
	at(4, wait, 6)
	at(10, ping, 0)
	c.put(pinged)
	c.lastBytes = base + 10
	at(10, wait, 10) // it is idle before the pong is due
	at(20, sendOff, 0)
	c.out = &output{bytes: 1, since: base + 18}
	at(20, wait, 3) // it is not read from
	at(23, stuck, 0)
	c.out = nil
	c.lastMessage, c.flags = base+30, closeSent
	at(29, wait, 1)
	at(30, cutOff, 0)
}

// TestIdleBehindPing: an idle connection is ended in time although the answer
// to a ping may take much longer than that.
func TestIdleBehindPing(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, r *rig) {
		p := r.connect(&Settings{App: &echoApp{}, MaxMessage: 100, Ping: tickTime, PongTimeout: time.Hour, Idle: 3 * tickTime}, nil, frame.Params{})
		p.want(frame.Ping, "")
		p.wantClose(frame.Timeout)
	})
}

// TestRunner: functions are called in order, a mistake in one is its own, and
// nobody is kept from the rest by many.
func TestRunner(t *testing.T) {
	wakes, mistakes := 0, 0
	r := &runner{wake: func() { wakes++ }, guard: func(any) { mistakes++ }}
	var got []int
	for i := range 3*maxRun + 1 {
		r.post(func() {
			got = append(got, i)
			if i == 7 {
				panic("as asked")
			}
			if i == 0 {
				r.post(func() { got = append(got, 3*maxRun+1) })
			}
		})
	}
	rounds := 0
	for r.more() {
		r.run(func() {})
		rounds++
	}
	for i := range got {
		if got[i] != i {
			t.Fatalf("number %d came in place %d", got[i], i)
		}
	}
	if len(got) != 3*maxRun+2 || rounds != 5 || mistakes != 1 || wakes != 2 {
		t.Errorf("%d functions in %d rounds, %d mistakes, %d wakes", len(got), rounds, mistakes, wakes)
	}
	r.stop()
	r.post(func() { t.Error("called after the end") })
	r.run(func() {})
}

// TestLateBell: who posts to an engine that is closed disturbs nobody, least of
// all a file that has the number of its bell by then.
func TestLateBell(t *testing.T) {
	for range 20 {
		e := NewEngine(nil)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for range 500 {
					e.Post(i%e.Runners(), func() {})
				}
			})
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		for i := range e.Runners() {
			e.Post(i, func() { t.Error("called after Close") })
		}
	}
}
