package lane

import (
	"net"
	"net/http"
	"time"

	"millrace/internal/route/site"
	"millrace/internal/wire/epoll"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// ForwardWith lets the loops forward requests to upstreams where c does so, without a
// goroutine. It must be called before the first connection comes.
func (l *Lane) ForwardWith(c Forwarder) { l.forwarder = c }

// Forwarder forwards requests to upstreams.
type Forwarder interface {
	// Forward sends a request to an upstream, if that can be done at once, and if
	// neither the request nor its answer needs an [http.Handler]. Otherwise sent is
	// false, and x is what the handler goes on with, which it finds by [Take]; nil:
	// nothing.
	Forward(q *ForwardRequest) (x RoundTrip, sent bool)
}

// Passer is a job whose requests may be forwarded like this.
type Passer interface {
	// Pass does the job's part of [Forwarder.Forward]. nil: it has sent nothing.
	Pass(q *ForwardRequest) RoundTrip
}

// ForwardRequest is a request to forward. The loop uses the same one again for the next.
type ForwardRequest struct {
	Head     *message.Request // its strings live as long as the request
	Body     []byte           // the whole body
	Scope    *Scope
	Client   net.Addr
	Remote   string    // the same, for the log
	Local    net.Addr  // the address that the client has connected to
	Loop     int       // the number of the loop
	Received time.Time // when the loop has read the request, or has begun anew with it
	Out      []byte    // an empty buffer for the request as it is sent
	// Pages are the site's error pages: an answer whose status has one is for the handler.
	Pages site.Pages
	// Waiting.Ready is called when a request that waits for a connection to the
	// upstream may have one: see [RoundTrip.Waits]. nil: it must not wait.
	Waiting interface{ Ready() }
}

// Reply is an answer for the client, as a handler would have sent it.
type Reply struct {
	Status   int
	Lines    []field.Line // for [lean.Server.AppendHead]
	Body     []byte
	Received time.Time // when the loop has read it
}

// Progress is the outcome of [RoundTrip.Take].
type Progress int

// The outcomes.
const (
	Incomplete   Progress = iota // more of the answer must come
	Complete                     // the answer is in the Reply
	NeedsHandler                 // a handler must go on with it
	Switched                     // another protocol begins: see [Switching]
)

// RoundTrip is a request that was forwarded, until its answer has come. Only the loop calls
// its methods, until a handler goes on with it: see [Take]. One that wraps another has a
// method Inner.
type RoundTrip interface {
	// Waits reports whether the request was not sent yet, as all connections to the
	// upstream are in use.
	Waits() bool
	// Connects reports whether the request was not sent yet, as Line is a connection that is
	// being made: it is there, or has failed, when it is writable.
	Connects() bool
	// Start sends it, after Ready was called or Line was writable. q is the same request as
	// before. If it returns false, a handler must go on. The request may have to wait again
	// then for a connection that is made.
	Start(q *ForwardRequest) bool
	// Line returns the descriptor on which the answer comes, and a number that differs
	// from that of the connection which had this descriptor before. If unknown is
	// true, the loop must begin to watch it, edge-triggered; what w does is its end.
	Line(w epoll.Watch) (fd int, serial uint32, unknown bool)
	// Take reads what has come. If the answer is Complete, the strings and the body of r
	// are valid until buf is used again, and only Sent may be called after it.
	Take(buf []byte, r *Reply) Progress
	// Sent is called when the answer was sent, or is buffered for the client.
	Sent(client *Conn, r *Reply)
	// Discard ends the round trip: nobody wants the answer.
	Discard()
}

// Switching is a RoundTrip that may be Switched, for requests with [message.Request.Upgrades].
type Switching interface {
	RoundTrip
	// Switched is called in place of Sent when the client has got the Body of r, which is
	// then the whole answer with its head. fd is its connection, which is the callee's as
	// after [Release]; early were read already.
	Switched(c *Conn, r *Reply, fd int, early []byte)
}

// Take takes what a loop has begun for r, if that is a T which belongs to owner: its
// handler goes on with it, and must not send the request again. What the T wraps is left
// for whoever takes next. [Begin] must have been called.
func Take[T interface {
	RoundTrip
	Owner() O
}, O comparable](r *http.Request, owner O) (started T, ok bool) {
	at := infoOf(r)
	if at == nil {
		return started, false
	}
	if started, ok = at.started.(T); !ok || started.Owner() != owner {
		return started, false
	}
	at.started = nil
	if outer, wraps := RoundTrip(started).(interface{ Inner() RoundTrip }); wraps {
		at.started = outer.Inner()
	}
	return started, true
}

// DiscardStarted discards what a loop has begun for r and no handler has taken.
func DiscardStarted(r *http.Request) {
	if at := infoOf(r); at != nil {
		discard(&at.started)
	}
}

func discard(p *RoundTrip) {
	if was := *p; was != nil {
		*p = nil
		was.Discard()
	}
}

// Forwarded returns how many requests the loops have forwarded.
func (l *Lane) Forwarded() uint64 { return l.forwarded.Load() }

// Shard returns the connection's number, for counters that are kept in shards.
func (c *Conn) Shard() uint32 { return c.shard }

// loggedAs returns the address of the connection's other end for the log.
func (c *Conn) loggedAs() string {
	if c.remote == "" {
		c.remote = RemoteHost(c.RemoteAddr())
	}
	return c.remote
}

// Unsent returns how many bytes of upstreams' answers the loops buffer for their clients.
func (l *Lane) Unsent() int64 { return l.unsent.Load() }
