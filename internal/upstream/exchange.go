package upstream

import (
	"context"
	"sync/atomic"
	"time"

	"millrace/internal/upstream/http1"
)

// Exchange is one request of HTTP/1.1 to one server, and its answer. Two drive it, by the
// same steps:
//
//	      Begin, on a loop                     Do, on a goroutine
//	             │                                     │ a place
//	┌────────────┴─ all is taken ─▶ waiting ── Enter ──│─────┐
//	│ a place        ▲                                 ▼     │
//	└──────────────▶ └─ no connection ──────────────  placed │
//	                               a connection        │     │
//	                 ┌─────────────────────────────────┴─────┘
//	                 ▼       Send              Take
//	              connected ──────▶ sent ──────────────▶ answered ──▶ headed ──▶ ended
//
// An event loop never waits: epoll tells it that something has come, and a [Waker] that a
// place or a connection is there. It reads plain answers that are not long as a whole, and
// never comes to headed. All others, and whatever goes wrong, are for a goroutine, which
// goes on with [Pool.Continue] from the step that the loop has come to: what was sent is
// not sent again, and what has come is not lost.
//
// A goroutine waits for everything itself. Only a body that is not small has another one,
// which sends it (send.go).
//
// The zero Exchange is for Begin. It belongs to its loop, which may use it again when it
// has ended, until Continue; from then on to the answer's body, and is not used again.
type Exchange struct {
	pool   *Pool
	step   step
	place  place   // the zero one: none, or given back
	server *server // its, or the one that a probe is for
	what   demand

	line *line // the connection as loops have it; nil: none
	wire *wire // the same for a goroutine

	// Of a loop:
	loop    int
	secure  bool    // the client is there over TLS
	counted bool    // for the retries' budget
	waited  bool    // whoever goes on with it keeps its place
	waker   Waker   // nil: the request cannot wait
	waiter  *waiter // while it waits
	lost    error   // why there is no connection
	taken   taken

	// Of a goroutine:
	caller  context.Context
	request *Request
	interim Interim // nil: nobody wants to know
	tunnels bool    // the connection is for a [Tunnel], and a new one
	upload  *upload // nil: no body
	sender  *sender // nil: the body was sent with the head, or there is none
	first   []byte  // of a new connection, see proxyHeader

	buffer *[]byte // what in reads into; nil: given back
	in     http1.Reader
	head   http1.Head
	gives  Answer
	body   http1.Body
	out    outgoing

	listens bool        // stop detaches the context from the connection, if there is one
	stop    func() bool // nil: none
	early   bool        // bytes came before they were asked for
	stuck   atomic.Bool // the server does not take the body
	stream  bool        // it holds a stream, not a place
	late    bool        // so it does, since its reader waits for somebody; see Yield
	state   atomic.Int32
	reading atomic.Pointer[wire] // the connection, for a Close beside a Read
	err     error                // of the body's last Read

	// While a sender is at work, guarded by its mutex.
	limit time.Duration // when the head, or this read of the body, is late; 0: never
}

// step is how far an exchange has come.
type step uint8

const (
	unplaced  step = iota // there is no place for it
	waiting               // for a place; a loop's also for a connection, in its place
	placed                // it has a place at a server
	connected             // and a connection, on which nothing was sent
	sent                  // on which some of the request may have reached the server
	answered              // and a byte of an answer has come
	headed                // the head of the answer was read
	ended                 // it has nothing more to give back
)
