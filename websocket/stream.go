package websocket

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"millrace/internal/wire/field"
)

// stream is a WebSocket over HTTP/2 (RFC 8441): the request's body is one direction,
// the answer's body the other. net/http allows neither to be used after the handler
// has returned; see end.
type stream struct {
	io.Reader
	w  io.Writer
	rc *http.ResponseController

	mu   sync.RWMutex // held for reading while the answer is used
	over bool
}

// openStream answers an extended CONNECT. It returns nil if the client has gone.
func openStream(w http.ResponseWriter, r *http.Request, header field.Lines) *stream {
	for i := range header {
		w.Header()[header[i].Name] = append(w.Header()[header[i].Name], header[i].Value)
	}
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if rc.Flush() != nil {
		return nil
	}
	return &stream{Reader: r.Body, w: w, rc: rc}
}

// end is called when the handler returns. It waits until nobody uses the stream; later
// uses fail.
func (s *stream) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// use calls f unless the handler has returned.
func (s *stream) use(f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.over {
		return net.ErrClosed
	}
	return f()
}

// Write implements [net.Conn]. Nothing is kept back.
func (s *stream) Write(b []byte) (n int, err error) {
	err = s.use(func() error {
		if n, err = s.w.Write(b); err != nil {
			return err
		}
		// To net/http a deadline is the moment to reset the stream, whether
		// anything is being written or not.
		return errors.Join(s.rc.Flush(), s.rc.SetWriteDeadline(time.Time{}))
	})
	return n, err
}

// Close implements [net.Conn]: nothing more is read. The stream ends, with what
// was written, when the handler returns.
func (s *stream) Close() error { return s.SetReadDeadline(time.Now().Add(-time.Second)) }

// Cut resets the stream: also a writer for which there is no window has its end.
func (s *stream) Cut() error {
	return errors.Join(s.Close(), s.SetWriteDeadline(time.Now().Add(-time.Second)))
}

// LocalAddr implements [net.Conn]; nobody asks.
func (*stream) LocalAddr() net.Addr { return nil }

// RemoteAddr implements [net.Conn]; nobody asks.
func (*stream) RemoteAddr() net.Addr { return nil }

// SetDeadline implements [net.Conn].
func (s *stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (s *stream) SetReadDeadline(t time.Time) error {
	return s.use(func() error { return s.rc.SetReadDeadline(t) })
}

// SetWriteDeadline implements [net.Conn].
func (s *stream) SetWriteDeadline(t time.Time) error {
	return s.use(func() error { return s.rc.SetWriteDeadline(t) })
}
