package websocket

import (
	"net/netip"
	"sync"

	"millrace/internal/lane"
	"millrace/internal/wire/message"
)

// Places bounds how many clients are connected, handshakes under way included:
// of all, and of one address, so that one client cannot take the places of all.
// Several handlers may share one.
type Places struct {
	most, open func() int
	each       func() int              // of one address; nil: no limit
	exempt     func(a netip.Addr) bool // from each: proxies, which come for many
	hint       func() string           // what an operator can do for more of them; nil: nothing is known

	mu    sync.Mutex
	taken int // by handshakes under way

	// counting is not mu: that is held while a connection is handed over, which
	// may end at once.
	counting sync.Mutex
	peers    map[netip.Addr]*peer // with a place
}

// NewPlaces bounds clients to as many as most returns, 0 for no limit. open returns
// how many are connected.
func NewPlaces(most, open func() int) *Places { return &Places{most: most, open: open} }

// PerAddress bounds those of one address that is not exempt. It must be called
// before the first client comes.
func (p *Places) PerAddress(each func() int, exempt func(a netip.Addr) bool) {
	p.each, p.exempt, p.peers = each, exempt, map[netip.Addr]*peer{}
}

// Hint says what an operator can do for more places, for the log. It must be
// called before the first client comes.
func (p *Places) Hint(hint func() string) { p.hint = hint }

// more is the hint.
func (p *Places) more() string {
	if p.hint == nil {
		return "limits.websockets"
	}
	return p.hint()
}

// peer counts the connections of one address; all of them share it. It is nil for
// clients that are not counted by address.
type peer struct {
	of   *Places
	addr netip.Addr
	open int
	end  func() // End, made once
}

// admit counts one more connection of a request's client, until End.
func (p *Places) admit(q *message.Request) (who *peer, ok bool) {
	if p == nil || p.each == nil {
		return nil, true
	}
	if !q.Peer.IsValid() || p.exempt(q.Peer) {
		return nil, true // a UNIX socket, or a proxy
	}
	client := lane.ClientOf(q.Peer)
	p.counting.Lock()
	defer p.counting.Unlock()
	who = p.peers[client]
	if who == nil {
		who = &peer{of: p, addr: client}
		who.end = who.End
		p.peers[client] = who
	} else if who.open >= p.each() {
		return nil, false
	}
	who.open++
	return who, true
}

// End implements [conn.Ender].
func (w *peer) End() {
	if w == nil {
		return
	}
	w.of.counting.Lock()
	defer w.of.counting.Unlock()
	if w.open--; w.open == 0 {
		delete(w.of.peers, w.addr)
	}
}

// ending is End as a function; nil for a nil peer.
func (w *peer) ending() func() {
	if w == nil {
		return nil
	}
	return w.end
}

// seat is what one handshake has taken of Places.
type seat struct {
	release func(over func()) // see take
	who     *peer
	kept    bool // who is the connection's, which calls End
}

// keep leaves the address's place to the connection, which calls End.
func (s *seat) keep() *peer {
	s.kept = true
	return s.who
}

// leave gives back what the connection did not keep.
func (s *seat) leave() {
	s.release(func() {})
	if !s.kept {
		s.who.End()
	}
}

// take takes a place. release gives it back, once, after it has called over, in which
// the engine counts the connection. Both happen under the lock, so that the client is
// never counted twice or not at all.
func (p *Places) take() (release func(over func()), ok bool) {
	if p == nil {
		return func(over func()) { over() }, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if most := p.most(); most > 0 && p.taken+p.open() >= most {
		return nil, false
	}
	p.taken++
	given := false
	return func(over func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		over()
		if !given {
			given = true
			p.taken--
		}
	}, true
}
