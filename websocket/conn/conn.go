// Package conn drives WebSockets: it moves the bytes, keeps to RFC 6455, and
// tells an [App] what was said. There is one type of connection above two
// drivers: on Linux plain ones are served by a few epoll loops and cost a
// hundred bytes while they are quiet; TLS, HTTP/2 and other systems have a
// goroutine each.
//
// # Turns
//
// Everything that happens to one connection happens in its turn: one thing
// after the other, on its loop, or under its lock. An App's methods are called
// in the turn, and the methods of Conn may be called only there. Whoever comes
// from elsewhere keeps a [Handle] and uses [Handle.Do]. The exceptions are
// Deliver, see there, and what says so.
package conn

import (
	"errors"
	"io"
	"net"
	"time"

	"millrace/internal/meter"
	"millrace/websocket/frame"
)

// ErrClosed is returned by Adopt and Serve after Close.
var ErrClosed = errors.New("the WebSockets of this server are closed")

// App is what connections are for. Its methods must not block: a loop has
// thousands of connections.
type App interface {
	// Open is called once, first.
	Open(c *Conn)
	// Message brings a whole message of text (valid UTF-8) or binary. data is the callee's until it returns.
	Message(c *Conn, op frame.Opcode, data []byte)
	// Closed is called once, last; nothing can be sent any more. code is that of the peer's or of our own close
	// frame, whichever came first; frame.Abnormal if there was none.
	Closed(c *Conn, code frame.Code)
}

// Streamer is an App that takes messages in pieces, as they come, so that they may be larger than memory.
// Message is then called only for messages that came compressed.
type Streamer interface {
	App
	// Piece brings the next part of a message; text was checked as far as it came. last ends the message (its data may be empty).
	Piece(c *Conn, op frame.Opcode, data []byte, first, last bool)
}

// Leaver is an App that wants to say something before a connection is ended from here in good order.
type Leaver interface {
	Leaving(c *Conn, code frame.Code, reconnect time.Duration)
}

// What happens when a client does not read as fast as others write for it.
type Overflow uint8

const (
	Disconnect Overflow = iota // close with TryAgainLater
	DropOldest                 // forget the messages that wait longest
)

// Settings are the same for all connections of a route. They must not change.
type Settings struct {
	App          App
	MaxMessage   int64         // bytes, larger ones are answered with TooBig; 0: no limit (for a Streamer; what has to be held is then bounded by MaxHeld)
	MaxHeld      int64         // of one message that has to be held whole, for a Streamer without MaxMessage: a compressed one
	Ping         time.Duration // after so much silence a ping is sent; 0: never
	PongTimeout  time.Duration // after so much more silence the connection is dead
	Idle         time.Duration // after so long without a message it is closed (Timeout); 0: never
	WriteTimeout time.Duration // after so long without the client taking a byte it is dead
	Queue        int           // bytes that may wait for one client
	QueueLength  int           // messages that may
	Overflow     Overflow
	CompressFrom int // bytes; shorter messages are not compressed
	Budget       *Budget
	Meters       *meter.WebSocket
}

// Engine drives all WebSockets of a process.
type Engine struct{}

// NewEngine returns an engine that starts what it needs when it is needed.
func NewEngine() *Engine { panic("not built") }

// Runners is how many runners there are: one for each loop, and the last one for all connections that have a goroutine.
func (e *Engine) Runners() int { panic("not built") }

// Post has f called on runner i, soon, in the order of the calls. It may be called from anywhere, never blocks, and does not call f itself.
// Code on a loop delays all of its connections: do a part, and post the rest again.
func (e *Engine) Post(i int, f func()) { panic("not built") }

// Adopt takes over a connection that has done its handshake, nc with what was read already. state is for App (see Conn.State).
// It returns at once. The connection is closed by the engine, also when Adopt fails.
func (e *Engine) Adopt(nc net.Conn, early []byte, s *Settings, p frame.Params, state any) error {
	panic("not built")
}

// Serve is Adopt for a stream that ends with the caller's function (HTTP/2): it returns when the connection is over.
func (e *Engine) Serve(rw io.ReadWriteCloser, s *Settings, p frame.Params, state any) error {
	panic("not built")
}

// Leave ends all connections with these settings in good order: Leaver is called, a close frame is sent, and after
// at most grace they are cut. reconnect is drawn for each connection between 0 and within. It returns when all are closed.
func (e *Engine) Leave(s *Settings, code frame.Code, within, grace time.Duration) { panic("not built") }

// Close cuts what is still open and stops the loops.
func (e *Engine) Close() error { panic("not built") }

// Conn is one WebSocket.
type Conn struct{}

// State is what Adopt was given, or SetState.
func (c *Conn) State() any { panic("not built") }

// SetState replaces it.
func (c *Conn) SetState(state any) { panic("not built") }

// Settings are those of Adopt.
func (c *Conn) Settings() *Settings { panic("not built") }

// Runner is the number of the runner that the connection is on.
func (c *Conn) Runner() int { panic("not built") }

// Send sends a message, compressed if that was agreed and it is long enough. data is copied or written before it returns.
func (c *Conn) Send(op frame.Opcode, data []byte) { panic("not built") }

// SendPiece sends the next part of a message as a frame of its own.
func (c *Conn) SendPiece(op frame.Opcode, data []byte, first, last bool) { panic("not built") }

// Deliver sends what was prepared, without a copy. It never calls back into App (a connection that is too slow is closed a moment later),
// and it may be called by code that Post has called on the connection's runner, not only in the turn.
func (c *Conn) Deliver(p *frame.Prepared) { panic("not built") }

// Close begins the closing handshake; Closed is called when it is over, or after a few seconds.
func (c *Conn) Close(code frame.Code, reason string) { panic("not built") }

// Handle returns what may be kept and used from anywhere, also after the connection's end.
func (c *Conn) Handle() Handle { panic("not built") }

// Handle is a connection from outside its turn.
type Handle struct{}

// Do has f called in the connection's turn, soon; never, if it is over by then. It may be called from anywhere and does not block.
func (h Handle) Do(f func(c *Conn)) { panic("not built") }

// Budget bounds what all connections of a route may hold of messages that have not come whole. Safe for concurrent use; nil has no bound.
type Budget struct{}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { panic("not built") }
