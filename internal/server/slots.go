package server

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"millrace/internal/lane"
)

// connSlots bounds the number of connections, of all clients together and of each
// address. A connection has a slot from accept until it is closed.
type connSlots struct {
	closed chan struct{}
	once   sync.Once
	freed  chan struct{} // one token: a slot may be free

	mu    sync.Mutex
	bound bounds
	open  int
	peers map[netip.Addr]*peer // of addresses with a connection
}

// bounds are what a reload may change.
type bounds struct {
	all, each   int
	descriptors int                   // for connections and WebSockets together; 0: not known
	sockets     func() int            // how many descriptors WebSockets use
	trusted     func(netip.Addr) bool // proxies, which have connections for many clients
}

// peer is a client address with connections.
type peer struct {
	open       int
	shedFailed time.Time // when no connection of its own could be closed for one more
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

// client returns the address that a connection is counted under: clientOf, or the zero
// address for a trusted proxy, whose connections are for many clients.
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

// slotResult is the result of asking for a slot.
type slotResult int

const (
	acquired   slotResult = iota
	allFull               // all slots are taken
	clientFull            // this client has as many as it may have
)

// acquire takes a slot for a client; with force, beyond its share.
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

// count notes that a client has one more slot. The caller holds the lock.
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

// halfFull reports whether more than half of the slots are taken.
func (p *connSlots) halfFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open > p.bound.all/2
}

// release gives a slot back.
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

// shedEvery is how often a connection that waits for a slot looks for another one to
// close. The connections of one client are searched at most that often for one more.
const shedEvery = 100 * time.Millisecond

// makeRoom calls shed, which closes one of the client's connections, unless that failed
// less than shedEvery ago. It reports whether one was closed.
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

// acquireSlot finds a slot for an accepted connection. While all are taken, it closes
// idle connections, then those of slow clients, and waits. A client that has its share
// loses one of its own connections instead, or is refused at once, so that no other
// client waits for it. done: the listener has ended.
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
			force = true // the connection that was closed releases its slot in a moment
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

// warnFull logs that clients wait because no connection can be closed for them, and what
// would help.
func (s *Server) warnFull() {
	n, sockets, hint := s.slots.fullness()
	s.warn.allFull.warn(s.errors, "there is no place for another connection, and clients wait to be accepted", "connections", n, "websocket_descriptors", sockets, "limit", hint)
}

// fullness returns the number of connections, the number of descriptors of WebSockets,
// and the setting that bounds them.
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

// shed closes a connection of the clients that which selects (nil: all): an idle one, or
// else one whose client is slow. It reports whether there was one.
func (s *Server) shed(which func(net.Addr) bool) bool {
	return s.lane.ShedIdle(which) || s.streams.shedIdle(which) || s.quic.shedIdle(which) || s.lane.ShedSlow(which)
}

// clientFullAnswer is for clients that have as many connections as they may have.
const clientFullAnswer = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 10\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 64\r\n\r\n" +
	"There are too many connections from your address: close some.  \n"

// refuse closes a connection, over plain HTTP with a 503. It does not wait for the client.
func (l *listener) refuse(nc net.Conn) {
	l.server.meters.Rejected.Add(0, 1)
	l.server.warn.clientFull.warn(l.server.errors, "an address has as many connections as it may, and more are refused: see limits.connections_per_address and limits.trusted_proxies", "address", nc.RemoteAddr().String())
	if !l.secure {
		_ = nc.SetWriteDeadline(time.Now().Add(shedEvery))
		_, _ = nc.Write([]byte(clientFullAnswer))
	}
	_ = nc.Close()
}
