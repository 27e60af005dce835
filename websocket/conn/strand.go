package conn

import (
	"io"
	"sync"
	"time"

	"millrace/internal/wire/epoll"
	"millrace/websocket/frame"
)

// strand is the runner of connections with a goroutine.
type strand struct {
	runner
	engine    *Engine
	ended     bool
	signal    chan struct{}
	mu        sync.Mutex
	conns     map[*Conn]struct{}
	pipes     map[*goroutinePipe]struct{}
	parker    *epoll.Parker  // nil: nothing is parked
	parkAfter time.Duration  // a test's own
	readers   sync.WaitGroup // connections that are not over, and pipes
	writers   sync.WaitGroup
}

func newStrand(e *Engine, index int) *strand {
	s := &strand{engine: e, signal: make(chan struct{}, 1), conns: map[*Conn]struct{}{}}
	s.parker, s.parkAfter = epoll.NewParker(), parkAfter
	s.index, s.guard = index, e.mistake
	s.wake = func() {
		select {
		case s.signal <- struct{}{}:
		default:
		}
	}
	return s
}

// run is the strand's goroutine. It is started by NewEngine and ends with Close.
func (s *strand) run() {
	for !s.ended {
		if !s.more() {
			<-s.signal
		}
		s.runner.run(func() {})
	}
	s.stop()
}

// newConn makes a connection whose first turn has begun: nobody else gets one
// before the App has heard of it (goroutineDriver.serve).
func (s *strand) newConn(rw io.ReadWriteCloser, set *Settings, p frame.Params, state any) *Conn {
	both := &struct {
		Conn
		goroutineDriver
	}{}
	c := &both.Conn
	c.driver = &both.goroutineDriver
	c.set, c.params, c.state = set, p, state
	c.driver.strand, c.driver.rw = s, rw
	c.driver.drained.L = &c.driver.mu
	now := s.engine.now()
	c.lastBytes, c.lastMessage = now, now
	c.driver.turn.Lock()
	s.readers.Add(1) // until finish
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	return c
}

// enter puts a connection into the wheel; on the strand.
func (s *strand) enter(c *Conn, n uint32) {
	s.mu.Lock()
	_, there := s.conns[c]
	s.mu.Unlock()
	if there {
		s.wheel.sooner(c, n)
	}
}

// each calls f in the turn of connections with these settings (nil: all).
func (s *strand) each(set *Settings, f func(c *Conn)) {
	s.mu.Lock()
	var list []*Conn
	for c := range s.conns {
		if set == nil || c.set == set {
			list = append(list, c)
		}
	}
	s.mu.Unlock()
	for _, c := range list {
		c.driver.inTurn(c, func() { f(c) })
	}
}

// turnWheel looks at the connections whose time has come. One that is busy is
// left alone until the next tick: it may be at something that takes long.
func (s *strand) turnWheel() {
	now := s.engine.now()
	s.tick = now
	s.idlePipes(now)
	s.wheel.turn(now, func(c *Conn) {
		looked := c.driver.tryTurn(c, func() {
			if next := c.look(now); !c.is(doomed) {
				s.wheel.put(c, next)
			}
		})
		if !looked {
			s.wheel.put(c, 1)
		}
	})
}
