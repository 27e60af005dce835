package lane

import "sync/atomic"

// connState says what a connection is doing and who may use it.
//
//	                   answered
//	              ┌────────────────┐
//	              ▼                │
//	accept ─▶ reading ─────────▶ active ─▶ hijacked ─▶ released
//	              │   a head       │          │
//	              └───────────┬────┴──────────┘
//	                          ▼ Close
//	                        closed
//
// Hot requests are answered without leaving the state reading. A loop, a worker or
// net/http may serve the connection in any of the first two states: see loopMode.
type connState uint32

const (
	stateReading  connState = iota // new, or between requests, or the next one's head is coming
	stateActive                    // a handler runs, or an upstream has the request
	stateHijacked                  // the handler's: neither net/http's nor the lane's any more
	stateReleased                  // the same, and the server does not count it any more: see Release
	stateClosed
)

// handedOff reports whether bytes go straight between the network and a handler that
// has hijacked the connection.
func (s connState) handedOff() bool { return s == stateHijacked || s == stateReleased }

// ended reports whether the state is one of the last two, which never change.
func (s connState) ended() bool { return s >= stateReleased }

// stateVar holds a connState.
type stateVar struct{ v atomic.Uint32 }

func (s *stateVar) load() connState { return connState(s.v.Load()) }

// set changes the state, unless the connection was closed or released meanwhile.
func (s *stateVar) set(to connState) {
	for {
		was := s.v.Load()
		if connState(was).ended() || s.v.CompareAndSwap(was, uint32(to)) {
			return
		}
	}
}

// end changes the state to one of the last two. It reports false if it was one already.
func (s *stateVar) end(to connState) bool {
	for {
		was := s.v.Load()
		if connState(was).ended() {
			return false
		}
		if s.v.CompareAndSwap(was, uint32(to)) {
			return true
		}
	}
}

// loopMode says what a loop does when epoll tells it of a connection.
//
//	              ┌── the answer was sent (Conn.resume) ──┐
//	              ▼                                       │
//	adopted ─▶ serves ──── a worker or an upstream ───▶ watches
//	                       has the request                │ the client sends more
//	                                                      ▼
//	                                                  watchesEnd
//
// A connection that has left its loop for a goroutine is watched as well while that
// serves it (Conn.watchForClose).
type loopMode uint32

const (
	loopServes     loopMode = iota // reads and answers
	loopWatches                    // only finds out whether the client has gone; what it sends waits in the socket
	loopWatchesEnd                 // the same, and epoll does not tell of input any more
)

func (c *Conn) loopServes() bool { return loopMode(c.mode.Load()) == loopServes }

func (c *Conn) setMode(m loopMode) { c.mode.Store(uint32(m)) }
