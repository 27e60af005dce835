package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/proxyline"
)

// ProxyProtocol is for load balancers that pass connections on as they are, and
// name the client in front of the first byte: the PROXY protocol, versions 1 and 2.
type ProxyProtocol struct {
	// From are the addresses and networks of such load balancers; "unix" stands
	// for clients of UNIX sockets. Each of their connections must begin with a
	// PROXY header, on every listener but those of HTTP/3; nobody else's may.
	// What it says is the client's address from there on: in the log, in limits
	// and in rules.
	From []string `yaml:"from"`
}

// expectsProxyHeader reports whether connections from a peer must begin with a PROXY
// header.
func (s *Server) expectsProxyHeader(peer net.Addr) bool {
	from := s.current.Load().proxyProtocolFrom
	return !from.Empty() && from.Has(addrOf(peer))
}

// acceptProxied finds a slot for a connection that must begin with a PROXY header, and
// reads the header in a goroutine of its own, for which Run waits. It reports true when
// the listener has ended.
func (l *listener) acceptProxied(nc net.Conn) (done bool) {
	if _, done = l.acquireSlot(netip.Addr{}); done {
		_ = nc.Close()
		return true
	}
	l.server.life.acceptors.Go(func() { l.readProxyHeader(nc) })
	return false
}

// readProxyHeader reads a connection's PROXY header, checks the limits of the client that
// it names, and serves the connection.
func (l *listener) readProxyHeader(nc net.Conn) {
	s := l.server
	stop := context.AfterFunc(s.life.handshakes, func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(s.current.Load().limits.HandshakeTimeout))
	client, err := proxyline.Read(nc)
	if err != nil {
		l.rejectProxied(nc, err)
	} else if _ = nc.SetDeadline(time.Time{}); client.IsValid() {
		nc = &lane.Named{Conn: nc, Client: net.TCPAddrFromAddrPort(client)}
	}
	if !stop() || err != nil {
		s.slots.release(netip.Addr{})
		_ = nc.Close()
		return
	}
	at := s.slots.client(nc.RemoteAddr())
	if s.slots.assign(at) == clientFull {
		mine := func(a net.Addr) bool { return clientOf(a) == at }
		if !s.slots.makeRoom(at, func() bool { return s.shed(mine) }) {
			s.slots.release(netip.Addr{})
			l.refuse(nc)
			return
		}
		s.slots.assignBeyond(at)
	}
	l.admit(nc, at)
}

// assign counts the slot of a connection, whose client was not known when it got it, for
// the client.
func (p *connSlots) assign(client netip.Addr) slotResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.peers[client]; q != nil && q.open >= p.bound.each {
		return clientFull
	}
	p.count(client)
	return acquired
}

// assignBeyond is assign beyond the client's share.
func (p *connSlots) assignBeyond(client netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(client)
}

// noProxyHeader is what connections from a load balancer's address are told that have no
// PROXY header.
const noProxyHeader = "Connections from this address must begin with a PROXY header: it is in proxy_protocol.from."

// rejectProxied logs why a connection is closed, and answers where it is plain HTTP.
func (l *listener) rejectProxied(nc net.Conn, err error) {
	s := l.server
	if errors.Is(err, io.EOF) {
		return // a health check that only connects
	}
	s.meters.Rejected.Add(0, 1)
	s.warn.proxyHeader.warn(s.errors, "a connection does not begin as proxy_protocol wants it and is closed: have the load balancer send PROXY headers, or take it out of proxy_protocol.from",
		"address", nc.RemoteAddr().String(), "listener", l.url(), "err", err)
	if errors.Is(err, proxyline.ErrNone) && !l.secure {
		_ = nc.SetDeadline(time.Now().Add(shedEvery))
		_, _ = nc.Write(pages.Unread(http.StatusBadRequest, noProxyHeader))
		_, _ = io.CopyN(io.Discard, nc, mostPlain) // else it may be reset before the answer is read
	}
}

// warnProxyHeader logs a PROXY header from an address that may not send one.
func (s *Server) warnProxyHeader(peer net.Addr) {
	s.warn.proxyHeader.warn(s.errors, "a PROXY header came from an address that is not in proxy_protocol.from, and was refused: if that is your load balancer, add it there", "address", peer.String())
}
