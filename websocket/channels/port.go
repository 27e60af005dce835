package channels

import (
	"millrace/websocket/conn"
	"millrace/websocket/frame"
)

// port is what a session needs of its connection; see [conn.Conn] for when
// which may be called.
type port interface {
	Send(op frame.Opcode, data []byte)
	Deliver(p *frame.Prepared)
	Answer(p *frame.Prepared)
	Close(code frame.Code, reason string)
	Runner() int
	// Later returns what has a function called in the connection's turn, from
	// anywhere: conn.Handle's Do.
	Later() func(f func())
}

// wire is a WebSocket as a port. It has the size of a pointer, so that it is
// in the interface itself.
type wire struct{ *conn.Conn }

// Later implements port.
func (w wire) Later() func(f func()) {
	h := w.Handle()
	return func(f func()) { h.Do(func(*conn.Conn) { f() }) }
}
