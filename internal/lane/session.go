package lane

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// session is a connection while net/http has it. net/http cannot give one back, but it closes
// one that has ended. So where net/http waits for the next request and the connection came
// from a loop, the session says that it has ended, and its Close gives the connection back.
type session struct {
	*Conn
	left atomic.Bool // net/http was told that the connection has ended
	over atomic.Bool // it was closed: from here on a loop has it. [http.Server.Close] may close it again.
}

// ConnectionState fills [http.Request.TLS].
func (s *tlsSession) ConnectionState() tls.ConnectionState { return s.tls.ConnectionState() }

// tlsSession is a session over TLS: see TLSConn.
type tlsSession struct {
	*session
	tls *TLSConn
}

// ForNetHTTP returns a connection for which Serve has returned true, as net/http is to get it.
func ForNetHTTP(nc NetConn) net.Conn {
	if tc, ok := nc.(*TLSConn); ok {
		tc.handled = false // a loop's requests have handlers, too
		return &tlsSession{&session{Conn: tc.Conn}, tc}
	}
	c := nc.(*Conn)
	c.handled = false
	return &session{Conn: c}
}

// Read implements [net.Conn].
func (s *session) Read(p []byte) (int, error) {
	if s.left.Load() || s.mayLeave() {
		s.left.Store(true)
		return 0, io.EOF
	}
	return s.Conn.Read(p)
}

// mayLeave reports whether a loop can have the connection: net/http has answered, and nothing
// of the next request is here.
func (s *session) mayLeave() bool {
	c := s.Conn
	return c.state.load() == stateReading && c.served.Load() && c.canServeDirect() && c.lane.on() && !c.lane.draining.Load() &&
		len(c.readAhead) == 0 && !c.headStarted && !c.startedOnLoop() && c.tracker.clean()
}

// Close implements [net.Conn].
func (s *session) Close() error {
	if !s.left.Load() {
		return s.Conn.Close()
	}
	if s.over.Swap(true) {
		return net.ErrClosed
	}
	c := s.Conn
	if c.answeredBy = byLane; c.posted {
		c.answeredBy = byLanePost // the loop skips empty lines then, as net/http would have
	}
	if !c.toLoop() {
		return c.Close()
	}
	return nil
}

// OnState is the hook for http.Server.ConnState.
func OnState(nc net.Conn, state http.ConnState) {
	switch s := nc.(type) {
	case *session:
		if !s.left.Load() {
			s.onState(state)
		}
	case *tlsSession:
		if !s.left.Load() {
			s.onState(state)
		}
	default:
		if c, ok := FromNet(nc); ok {
			c.onState(state)
		}
	}
}
