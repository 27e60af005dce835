package conn

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/observe/meter"
	"millrace/websocket/frame"
)

// App is what connections are for. Its methods must not block: a loop has
// thousands of connections.
type App interface {
	// Open is called once, first.
	Open(c *Conn)
	// Message brings a whole message of text (valid UTF-8) or binary. data is
	// the callee's until it returns.
	Message(c *Conn, op frame.Opcode, data []byte)
	// Closed is called once, last; nothing can be sent any more. code is that
	// of the peer's or of our own close frame, whichever came first;
	// frame.Abnormal if there was none.
	Closed(c *Conn, code frame.Code)
}

// Streamer is an App that takes messages in pieces, as they come, so that they
// may be larger than memory. Message is then called only for messages that
// came compressed.
type Streamer interface {
	App
	// Piece brings the next part of a message; text was checked as far as it
	// came, but may end within a character. last ends the message; its data
	// may be empty.
	Piece(c *Conn, op frame.Opcode, data []byte, first, last bool)
}

// Leaver is an App that wants to say something before a connection is ended
// from here in good order.
type Leaver interface {
	Leaving(c *Conn, code frame.Code, reconnect time.Duration)
}

// Ender is a state whose End is called when its connection is over: as the last thing,
// and also if App never heard of the connection.
type Ender interface{ End() }

// ended calls a state's End, if it has one.
func ended(state any) {
	if e, ok := state.(Ender); ok {
		e.End()
	}
}

// Overflow is what happens when a client reads more slowly than others write for it.
type Overflow uint8

// The ways to deal with a client that is too slow.
const (
	Disconnect Overflow = iota // close with TryAgainLater
	DropOldest                 // forget the messages that wait longest
)

// Beat is a message that asks a peer whether it is there. The zero value is none.
type Beat struct {
	Op   frame.Opcode
	Data []byte
}

// Settings are the same for all connections of a route. They must not change.
type Settings struct {
	App App
	// MaxMessage is the most bytes of a message; a larger one is answered with
	// TooBig. 0: no limit, for a Streamer.
	MaxMessage int64
	// MaxHeld is the most bytes of a message that has to be held whole although
	// there is no MaxMessage: a compressed one. 0: 16 MiB.
	MaxHeld int64
	// Ping is after how much silence a ping is sent; 0: never. PongTimeout is
	// after how much more the connection is dead. These and the other times
	// are kept to the second.
	Ping, PongTimeout time.Duration
	// Beat is sent instead of a ping, for peers that cannot see pings: at every interval
	// of Ping, silence or not. Whatever comes after it is an answer. A connection with
	// it has no Idle.
	Beat Beat
	// Idle is after how long without a message a connection is closed
	// (Timeout); 0: never.
	Idle time.Duration
	// WriteTimeout is after how long without taking a byte a client gets a close
	// frame, for which it has as long again; 0: never.
	WriteTimeout time.Duration
	// Queue and QueueLength are how many bytes and messages may wait for one
	// client. 0: no limit.
	Queue, QueueLength int
	Overflow           Overflow
	// CompressFrom is the size in bytes from which on Send compresses, where
	// that was agreed; 0: never.
	CompressFrom int
	Budget       *Budget // nil: no bound
	Meters       *meter.WebSocket

	once     sync.Once
	streamer Streamer     // App, if it is one
	open     atomic.Int64 // connections
	leaving  atomic.Pointer[leaveOrder]
}

// defaultHeld is MaxHeld where it is not given: as much as a large message of
// the usual clients.
const defaultHeld = 16 << 20

// prepare makes ready what every message needs.
func (s *Settings) prepare() {
	s.once.Do(func() {
		s.streamer, _ = s.App.(Streamer)
		if s.Meters == nil {
			s.Meters = &meter.WebSocket{}
		}
		if s.MaxHeld <= 0 {
			s.MaxHeld = defaultHeld
		}
		if s.streamer == nil && s.MaxMessage <= 0 {
			s.MaxMessage = s.MaxHeld
		}
	})
}

// Open is how many connections have these settings.
func (s *Settings) Open() int { return int(s.open.Load()) }

// heldLimit is the most bytes of one message that are held.
func (s *Settings) heldLimit() int64 {
	if s.MaxMessage > 0 {
		return s.MaxMessage
	}
	return s.MaxHeld
}

// Budget bounds what all connections of a route may hold of messages that have
// not come whole. Safe for concurrent use; nil has no bound.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	b := &Budget{}
	b.left.Store(bytes)
	return b
}

func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	if b.left.Add(-int64(n)) < 0 {
		b.left.Add(int64(n))
		return false
	}
	return true
}

func (b *Budget) give(n int) {
	if b != nil {
		b.left.Add(int64(n))
	}
}
