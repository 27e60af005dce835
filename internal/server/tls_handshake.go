package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/pages"
)

// serveTLS runs in a goroutine of its own for each TLS connection, from its
// handshake on until it ends or net/http gets it. The caller has counted it as
// one of the acceptors and as being served.
func (l *listener) serveTLS(nc *countedConn) {
	s := l.server
	c := l.adopt(nc)
	s.life.acceptors.Done()
	switch tc, ok := c.(*lane.TLSConn); {
	case c == nil: // it has failed, or net/http or a loop owns it now
	case ok && s.http.laneH2 != nil && tc.ConnectionState().NegotiatedProtocol == "h2":
		tc.ServeHTTP2(s.http.laneH2, s.life.conns.Done)
		return // perhaps before it has ended: an idle connection has no goroutine
	default:
		s.serveConn(c)
	}
	s.life.conns.Done()
}

// adopt does the handshake and puts the lane in front of the connection. It returns nil
// where the caller has nothing left to do: the handshake has failed, or net/http or an
// event loop owns the connection.
func (l *listener) adopt(nc *countedConn) lane.NetConn {
	s := l.server
	tc := l.handshake(nc)
	if tc == nil {
		return nil
	}
	if s.http.laneH2 == nil && tc.ConnectionState().NegotiatedProtocol == "h2" {
		s.http.h2Conns.put(tc)
		return nil
	}
	c := s.lane.NewConn(tc, &s.secure, nil)
	if on, ok := c.(*lane.TLSConn); ok && tc.ConnectionState().NegotiatedProtocol != "h2" && on.Adopt(func() { s.serveConn(c) }) {
		return nil
	}
	return c
}

// handshake is bounded in time by the handshake timeout and in number by the
// slots. It returns nil when it has failed; nc is closed then.
func (l *listener) handshake(nc *countedConn) *tls.Conn {
	s := l.server
	if tcp, ok := nc.Wire.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(true) // HTTP/2 and hijacked connections have no idle timeout of the lane
	}
	_ = nc.SetDeadline(time.Now().Add(s.current.Load().limits.HandshakeTimeout))
	tc := tls.Server(nc, s.tls.Load())
	if err := tc.HandshakeContext(s.life.handshakes); err != nil {
		s.meters.Rejected.Add(0, 1)
		s.meters.TLS.Failed.Add(0, 1)
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
			refusePlain(nc)
		} else if plain.Conn != nil && slices.Contains([]string{"PROXY", "\r\n\r\n\x00"}, string(plain.RecordHeader[:])) {
			s.warnProxyHeader(nc.RemoteAddr())
		}
		_ = nc.Close()
		return nil
	}
	if tc.ConnectionState().NegotiatedProtocol == challengeProto { // the handshake is all that the CA needs (RFC 8737)
		_ = tc.Close()
		return nil
	}
	_ = nc.SetDeadline(time.Time{})
	s.countHandshake(tc.ConnectionState())
	return tc
}

// countHandshake counts a handshake.
func (s *Server) countHandshake(state tls.ConnectionState) {
	if state.Version == tls.VersionTLS13 {
		s.meters.TLS.V13.Add(0, 1)
	} else {
		s.meters.TLS.V12.Add(0, 1)
	}
	if state.DidResume {
		s.meters.TLS.Resumed.Add(0, 1)
	}
}

// Bounds of the answer to clients that speak plain HTTP to a TLS port.
const (
	plainTimeout = time.Second
	mostPlain    = 256 << 10 // bytes
)

// refusePlain tells a client of plain HTTP that this port speaks TLS. Then it reads on
// for a while: a connection that is closed with unread bytes is reset, and the client
// could lose the answer.
func refusePlain(nc *countedConn) {
	_ = nc.SetDeadline(time.Now().Add(plainTimeout))
	_, err := nc.Write(pages.Unread(http.StatusBadRequest, "This port speaks HTTPS: use https:// in the address."))
	if err == nil && nc.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, nc, mostPlain)
	}
}

// looksLikeHTTP reports whether a connection that does not begin with a TLS
// record begins with a request.
func looksLikeHTTP(header [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "TRACE", "CONNE"}, string(header[:]))
}
