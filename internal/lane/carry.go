package lane

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"

	"millrace/internal/field"
	"millrace/internal/lean"
	"millrace/internal/site"
)

// ForwardWith has the loops pass requests on to other servers, where c says that this
// can be done without a goroutine. It must be called before the first connection
// comes.
func (l *Lane) ForwardWith(c Forwarder) { l.forwarder = c }

// Forwarder passes requests on.
type Forwarder interface {
	// Forward sends a request to another server, if that can be done at once and
	// nothing is to be done on its way, or on the way of its answer, that needs an
	// [http.Handler]. Otherwise it returns nil, and has sent nothing.
	Forward(q *ForwardRequest) RoundTrip
}

// Passer is a job whose requests may be passed on in that way.
type Passer interface {
	// Pass is Carry, for what concerns the job alone.
	Pass(q *ForwardRequest) RoundTrip
}

// ForwardRequest is a request as it is passed on. It is used again for the next one.
type ForwardRequest struct {
	Head   *lean.Head // its strings live as long as the request
	Body   []byte     // all of it
	Scope  *Scope
	Client net.Addr
	Local  net.Addr // where the client has connected to
	Loop   int      // the number of the loop
	HTTP2  bool     // else it is HTTP/1.1
	Out    []byte   // room for the request as it is sent
	// ID is the request's id, "" for any.
	ID string
	// Fields are for other servers, in place of the request's own of the same names. One
	// without a value only takes that away.
	Fields []field.Line
	// Pages: answers with a status that has one are for the handler.
	Pages site.Pages
	// Prepared is what the handler finds at [Before] if the request is not carried.
	Prepared any
	// Waiting is told when a request that waits for a place may have one: see
	// [Passage]. nil: it must not wait.
	Waiting interface{ Ready() }
}

// From is the address of the client, the zero one on a UNIX socket.
func (q *ForwardRequest) From() netip.Addr { return addrOf(q.Client) }

// Scheme is the one that the client has used.
func (q *ForwardRequest) Scheme() string {
	if q.Scope.Secure {
		return "https"
	}
	return "http"
}

// Replaced reports whether a field of the request is one of Fields.
func (q *ForwardRequest) Replaced(name string) bool {
	for i := range q.Fields {
		if q.Fields[i].Name == name {
			return true
		}
	}
	return false
}

// Prepared is what a [Carrier] has left for the handler of r, which it did not carry;
// nil for nothing. It is for the first who asks.
func Prepared(r *http.Request) any {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		left := c.prepared
		c.prepared = nil
		return left
	}
	if mark := r.Header[roundTripField]; mark != nil {
		if c, ok := r.Context().Value(h2Key{}).(*Conn); ok && c.h2host != nil {
			return c.h2host.handoffs.prepared(mark)
		}
	}
	return nil
}

// Request is the question as a request of net/http without a body; nil if its target
// is none. Of TLS it only says that there is some.
func (q *ForwardRequest) Request(ctx context.Context) *http.Request {
	r := q.Head.Request(ctx, q.Client.String())
	if r == nil {
		return nil
	}
	if q.Scope.Secure {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	if q.HTTP2 {
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	}
	return r
}

// Reply is an answer as a client gets it: as the handler would have set it.
type Reply struct {
	Status int
	Lines  []field.Line // for [lean.Server.AppendHead]
	Body   []byte
}

// Progress says what became of bytes that came for a [Passage].
type Progress int

// The cases.
const (
	Incomplete   Progress = iota // the answer has not come to its end
	Complete                     // it is in the Reply
	NeedsHandler                 // it is one for the handler
)

// RoundTrip is a request that was sent, until its answer has come. All methods are
// for the loop alone.
type RoundTrip interface {
	// Waits reports whether the request waits for a place, and was not sent yet.
	Waits() bool
	// Start sends it, after [Question.Waiting] was told. The question is the same.
	// If it reports false, the handler goes on.
	Start(q *ForwardRequest) bool
	// Line is the connection on which the answer comes, and a number that differs
	// from that of the connection which had this descriptor before. If unknown is
	// true, the loop must begin to watch it, edge-triggered; unwatch ends that, from
	// anywhere.
	Line(unwatch func(fd int)) (fd int, serial uint32, unknown bool)
	// Take reads what has come. With Whole, the strings and the body of r hold
	// until buf is used again, and the passage has ended but for Sent.
	Take(buf []byte, r *Reply) Progress
	// Sent is called when the answer was sent, or is queued for its client.
	Sent(client *Conn, r *Reply)
	// Discard gives the request up.
	Discard()
}

// RoundTripOf is where the handler of r finds the passage of a request that a loop
// has sent already: it must wait for that answer instead of sending the request
// again. nil: the request was not sent. Whoever takes the passage sets it to nil,
// or replaces it by the inner passage that the next handler understands.
func RoundTripOf(r *http.Request) *RoundTrip {
	var p *RoundTrip
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		p = &c.roundTrip
	} else if o, ok := r.Context().Value(sourceKey{}).(*requestSource); ok {
		p = o.roundTrip
	} else if mark := r.Header[roundTripField]; mark != nil {
		if c, ok := r.Context().Value(h2Key{}).(*Conn); ok && c.h2host != nil {
			p = c.h2host.handoffs.claim(mark)
		}
	}
	if p == nil || *p == nil {
		return nil
	}
	return p
}

// DiscardRoundTrip gives the passage of r up, if there is one that its handler did not take.
func DiscardRoundTrip(r *http.Request) {
	if p := RoundTripOf(r); p != nil {
		was := *p
		*p = nil
		was.Discard()
	}
}

// Forwarded is how many requests the loops have passed on.
func (l *Lane) Forwarded() uint64 { return l.forwarded.Load() }

// Shard is a number that stays the same for the connection and differs between
// connections.
func (c *Conn) Shard() uint32 { return c.shard }

// LoggedAs is the connection's other end, as it is logged.
func (c *Conn) LoggedAs() string {
	if c.remote == "" {
		c.remote = RemoteHost(c.RemoteAddr())
	}
	return c.remote
}

// Unsent is how many bytes of answers the loops hold that clients have not yet taken.
func (l *Lane) Unsent() int64 { return l.unsent.Load() }
