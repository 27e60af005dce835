package server

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"millrace/internal/lane"
)

// places bounds the number of connections: of all clients, and of one address,
// so that one client cannot take the places of all.
type connSlots struct {
	closed chan struct{}
	once   sync.Once
	freed  chan struct{} // one token: a place may be free

	mu    sync.Mutex
	bound bounds
	open  int
	peers map[netip.Addr]*peer // of addresses with a connection
}

// bounds are what a reload may change.
type bounds struct {
	all, each   int
	descriptors int                   // that connections and WebSockets may have together; 0: not known
	sockets     func() int            // descriptors of WebSockets
	trusted     func(netip.Addr) bool // proxies, which come for many clients
}

// peer is an address with connections.
type peer struct {
	open       int
	shedFailed time.Time // when there was nothing to close for one more
}

func newConnSlots() *connSlots {
	return &connSlots{closed: make(chan struct{}), freed: make(chan struct{}, 1), peers: map[netip.Addr]*peer{}}
}

func (p *connSlots) set(b bounds) {
	p.mu.Lock()
	p.bound = b
	p.mu.Unlock()
	p.wake()
}

func (p *connSlots) wake() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// client is what the client behind an address is counted as: clientOf, or
// nothing for a proxy, which comes for many.
func (p *connSlots) client(addr net.Addr) netip.Addr {
	p.mu.Lock()
	trusted := p.bound.trusted
	p.mu.Unlock()
	if a := addrOf(addr); a.IsValid() && trusted != nil && trusted(a.Unmap().WithZone("")) {
		return netip.Addr{}
	}
	return clientOf(addr)
}

// addrOf is a client's address, the zero one for UNIX sockets.
func addrOf(addr net.Addr) netip.Addr {
	if a, ok := addr.(interface{ AddrPort() netip.AddrPort }); ok { // TCP and UDP
		return a.AddrPort().Addr()
	}
	return netip.Addr{}
}

// clientOf is [lane.ClientOf] of a socket's address.
func clientOf(addr net.Addr) netip.Addr {
	a := addrOf(addr)
	if !a.IsValid() {
		return a
	}
	return lane.ClientOf(a)
}

// verdict says what becomes of a new connection.
type slotResult int

const (
	acquired   slotResult = iota
	allFull               // nobody may connect
	clientFull            // this client has all that it may have
)

// take gives a client a place; with force, beyond its share.
func (p *connSlots) acquire(client netip.Addr, force bool) slotResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.bound
	if q := p.peers[client]; !force && q != nil && q.open >= b.each {
		return clientFull
	}
	if p.open >= b.all || b.descriptors > 0 && b.sockets != nil && p.open+b.sockets() >= b.descriptors {
		return allFull
	}
	p.open++
	p.count(client)
	return acquired
}

// count notes that a client has one more place. The caller holds the lock.
func (p *connSlots) count(client netip.Addr) {
	if !client.IsValid() {
		return
	}
	q := p.peers[client]
	if q == nil {
		q = &peer{}
		p.peers[client] = q
	}
	q.open++
}

// crowd reports whether more than half of the places are taken.
func (p *connSlots) halfFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open > p.bound.all/2
}

// give gives a place back.
func (p *connSlots) release(client netip.Addr) {
	p.mu.Lock()
	p.open--
	if q := p.peers[client]; q != nil {
		if q.open--; q.open == 0 {
			delete(p.peers, client)
		}
	}
	p.mu.Unlock()
	p.wake()
}

// shedEvery is how often somebody who waits for a place looks for a connection
// to close: there may be none at first. So often at most are the connections of
// one client looked through for another one of its own.
const shedEvery = 100 * time.Millisecond

// makeRoom lets shed close one of a client's connections, unless that was tried
// in vain a moment ago. It reports whether one was closed.
func (p *connSlots) makeRoom(client netip.Addr, shed func() bool) bool {
	p.mu.Lock()
	q := p.peers[client]
	early := q != nil && time.Since(q.shedFailed) < shedEvery
	p.mu.Unlock()
	if early {
		return false
	}
	if shed() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.peers[client]; q != nil {
		q.shedFailed = time.Now()
	}
	return false
}

func (p *connSlots) close() { p.once.Do(func() { close(p.closed) }) }

// seat finds a place for an accepted connection. While there is none, it closes
// those that are idle and, failing that, those whose clients are too slow, and
// waits. A client that has its share makes room with connections of its own, or
// is turned away at once: nobody waits behind it. done: the listener has ended.
func (l *listener) acquireSlot(client netip.Addr) (ok, done bool) {
	s := l.server
	var tick *time.Ticker
	for force := false; ; {
		switch s.slots.acquire(client, force) {
		case acquired:
			return true, false
		case clientFull:
			mine := func(a net.Addr) bool { return clientOf(a) == client }
			if !s.slots.makeRoom(client, func() bool { return s.shed(mine) }) {
				return false, false
			}
			force = true // what was closed gives its place back in a moment
			continue
		case allFull:
			if !s.shed(nil) {
				s.warnFull()
			}
		}
		if tick == nil {
			tick = time.NewTicker(shedEvery)
			defer tick.Stop()
		}
		select {
		case <-s.slots.freed:
		case <-tick.C:
		case <-l.stop:
			return false, true
		case <-s.slots.closed:
			return false, true
		}
	}
}

// warnFull logs that clients wait because nobody's connection can be closed for
// them, and what would help.
func (s *Server) warnFull() {
	n, sockets, hint := s.slots.fullness()
	s.warn.allFull.warn(s.errors, "there is no place for another connection, and clients wait to be accepted", "connections", n, "websocket_descriptors", sockets, "limit", hint)
}

// fullness is how many connections there are and how many descriptors WebSockets
// have, and what bounds them.
func (p *connSlots) fullness() (open, sockets int, hint string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bound.sockets != nil {
		sockets = p.bound.sockets()
	}
	if p.open < p.bound.all || p.bound.all == p.bound.descriptors {
		return p.open, sockets, fmt.Sprintf("%d file descriptors for connections and WebSockets: ", p.bound.descriptors) + moreFiles
	}
	return p.open, sockets, "limits.connections"
}

// shed closes a connection of the clients that are meant, all if which is nil:
// an idle one before one that is slow. It reports whether there was one.
func (s *Server) shed(which func(net.Addr) bool) bool {
	return s.lane.ShedIdle(which) || s.streams.shedIdle(which) || s.quic.shedIdle(which) || s.lane.ShedSlow(which)
}

// crowdedAnswer is for clients that have their share of the connections.
const clientFullAnswer = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 10\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 64\r\n\r\n" +
	"There are too many connections from your address: close some.  \n"

// refuse turns a connection away. It does not wait for the client.
func (l *listener) refuse(nc net.Conn) {
	l.server.meters.Rejected.Add(0, 1)
	l.server.warn.clientFull.warn(l.server.errors, "an address has as many connections as it may, and more are refused: see limits.connections_per_address and limits.trusted_proxies", "address", nc.RemoteAddr().String())
	if !l.secure {
		_ = nc.SetWriteDeadline(time.Now().Add(shedEvery))
		_, _ = nc.Write([]byte(clientFullAnswer))
	}
	_ = nc.Close()
}
