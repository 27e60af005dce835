package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"

	"millrace/internal/wire/field"
)

// maxInterim bounds the interim responses (1xx) to one request: a server sends
// one or two 103, or 102 now and then; more is noise that would keep everyone busy.
const maxInterim = 100

// framing are the fields that say where a message ends (RFC 9112, 6).
var framing = []string{"Connection", "Content-Length", "Trailer", "Transfer-Encoding", "Upgrade"}

// try is one request to one server. It is the context of that request, so that
// it can hook into net/http beside the caller's own hooks: with
// httptrace.WithClientTrace on top of them each hook would be called through reflection.
type try struct {
	context.Context // the caller's, or one that cancel ends
	traced          context.Context
	hooks           httptrace.ClientTrace
	interim         Interim // nil: nobody wants to know
	onSuspect       func()  // the same

	pool   *Pool
	place  place
	upload *upload                 // nil: no body
	cancel context.CancelCauseFunc // nil: no body
	body   body

	conn      atomic.Pointer[conn]
	reused    atomic.Bool // the connection had answered before
	tlsFailed atomic.Bool
	first     atomic.Bool // a byte of an answer came
	early     atomic.Bool // and it came before it was asked for
	interims  atomic.Int32
}

// failure is a try without an answer.
type failure struct {
	err     error
	outcome outcome
	final   bool // must not be repeated
	sent    bool // bytes of the request may have reached the server
}

// cause is why there is no answer; nil for no failure.
func (f *failure) cause() error {
	if f == nil {
		return nil
	}
	return f.err
}

func newTry(k *call, c place, up *upload) *try {
	t := &try{Context: k.ctx, pool: k.pool, place: c, upload: up, interim: k.interim}
	if up != nil {
		t.Context, t.cancel = context.WithCancelCause(t.Context)
		up.onStall(func() { t.cancel(errUploadStuck) })
	}
	if t.interim != nil {
		t.hooks.Got1xxResponse = t.gotInterim
	}
	t.hooks.GotConn, t.hooks.GotFirstResponseByte, t.hooks.PutIdleConn = t.gotConn, t.gotFirstByte, t.putConn
	if c.server.scheme == "https" {
		t.hooks.TLSHandshakeDone = func(_ tls.ConnectionState, err error) { t.tlsFailed.Store(err != nil) }
	}
	t.onSuspect = k.request.OnSuspect
	t.traced = httptrace.WithClientTrace(context.Background(), &t.hooks)
	return t
}

// Value implements context.Context: the hooks, and the values of the caller's.
func (t *try) Value(key any) any {
	if v := t.traced.Value(key); v != nil {
		return v
	}
	return t.Context.Value(key)
}

func (t *try) gotConn(info httptrace.GotConnInfo) {
	if c := connOf(info.Conn); c != nil {
		t.conn.Store(c)
		t.place.server.speaks.Store(c.speaks.Load())
		c.begin(t.onSuspect)
		if c.spoke.Load() && c.speaks.Load() == speaksHTTP1 {
			_ = c.Close() // net/http finds that out, and takes another one
		}
	}
	t.reused.Store(info.Reused)
}

func (t *try) gotFirstByte() {
	t.first.Store(true)
	if c := t.conn.Load(); c != nil && c.speaks.Load() == speaksHTTP1 && c.phase.Load() != replied {
		t.early.Store(true)
		c.reportEarly()
		_ = c.Close() // it is useless whatever that says
	}
}

func (t *try) putConn(err error) {
	if c := t.conn.Load(); c != nil && err == nil {
		c.back()
	}
}

func (t *try) gotInterim(code int, header textproto.MIMEHeader) error {
	switch {
	case t.early.Load():
		return errEarly
	case t.interims.Add(1) > maxInterim:
		return errInterims
	}
	return t.interim(code, field.Of(header))
}

// request is a request as net/http sends it to s, but for the body.
func (s *server) request(ctx context.Context, q *Request) *http.Request {
	out := q.HTTP(ctx)
	to := s.urlFor(q)
	out.URL, out.GetBody = &to, nil // repeating is our affair
	out.Host = cmp.Or(s.hostField, q.Host)
	if !q.Fields.Has("User-Agent") {
		out.Header["User-Agent"] = nil // a client that does not name itself is not Go's
	}
	return out
}

// try sends a request to the server of c, and gives the place back unless there is an
// answer, whose body does that.
func (p *Pool) try(k *call, c place, up *upload) (*Answer, *failure) {
	if s := c.server; s.client != nil && s.speaks.Load() != speaksHTTP2 {
		return p.ask(k, c, up)
	}
	k.started = nil // which has a place, and nothing more
	return p.pass(k, c, up)
}

// pass is try by net/http, which is for HTTP/2.
func (p *Pool) pass(k *call, c place, up *upload) (*Answer, *failure) {
	t := newTry(k, c, up)
	out := c.server.request(t, k.request)
	if out.Body = nil; up != nil {
		out.Body = up
	}
	resp, err := c.server.transporter().RoundTrip(out)
	if err == nil {
		if err = t.refuse(k.request, resp); err != nil {
			resp.Body.Close()
		}
	}
	if err != nil {
		f := t.failure(k.ctx, err)
		t.release()
		p.recordTry(c, f)
		return nil, f
	}
	return t.answer(resp)
}

// refuse returns why an answer that net/http accepts is not acceptable; nil: it is.
func (t *try) refuse(q *Request, resp *http.Response) error {
	switch {
	case t.early.Load():
		return errEarly
	case resp.StatusCode == http.StatusSwitchingProtocols:
		if !q.Fields.Has("Upgrade") { // RFC 9110, 15.2.2
			return errUnasked
		}
	case resp.StatusCode < 200:
		return fmt.Errorf("%w: %s", errStatus, resp.Status)
	}
	return repairNames(resp.Header)
}

// repairNames removes spaces between a field's name and its colon, which
// net/http keeps in the name (RFC 9112, 5.1: a proxy must remove them). Where
// the length or the end of the body might hang on them, or the space is in the
// middle, the answer is refused: who comes after us may read it in another way.
func repairNames(h http.Header) error {
	for name, values := range h {
		if strings.IndexByte(name, ' ') < 0 {
			continue
		}
		trimmed := textproto.CanonicalMIMEHeaderKey(strings.TrimRight(name, " "))
		if trimmed == "" || strings.Contains(trimmed, " ") || slices.Contains(framing, trimmed) {
			return fmt.Errorf("%w: %q", errName, name)
		}
		delete(h, name)
		h[trimmed] = append(h[trimmed], values...)
	}
	return nil
}

// answer hands the answer over with a body that gives the place back.
func (t *try) answer(resp *http.Response) (*Answer, *failure) {
	p, c := t.pool, t.place
	a := AnswerOf(resp)
	if resp.Body == http.NoBody {
		p.recordAnswer(c, p.now(), true)
		t.release()
		return a, nil
	}
	p.recordAnswer(c, p.now(), false)
	t.body.inner, t.body.try, t.body.timeout = a.Body, t, p.options.BodyTimeout
	upgraded := resp.StatusCode == http.StatusSwitchingProtocols
	if upgraded || isEventStream(resp.Header.Get("Content-Type")) {
		if !p.stream(c) {
			resp.Body.Close()
			t.release()
			p.recordEnd(c, undecided, nil)
			return nil, &failure{err: &upstreamError{ErrBusy, c.server.name, errAllStreams}, final: true}
		}
		t.body.stream, t.body.timeout = true, 0
	}
	a.Body = &t.body
	if upgraded {
		a.Body = &duplex{body: &t.body}
	}
	return a, nil
}

// release ends what the try itself has started.
func (t *try) release() {
	if t.cancel != nil {
		t.cancel(nil)
	}
}

// isEventStream reports whether a Content-Type is that of an event stream.
func isEventStream(kind string) bool {
	kind, _, _ = strings.Cut(kind, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// failure says what an error of net/http's Transport means.
func (t *try) failure(caller context.Context, err error) *failure {
	name := t.place.server.name
	c := t.conn.Load()
	f := &failure{outcome: outcomeOf(err), sent: c != nil && (c.speaks.Load() != speaksHTTP1 || c.phase.Load() != given)}
	wrap := func(kind, cause error) *failure {
		f.err = &upstreamError{kind, name, cause}
		return f
	}
	dial, connecting := errors.AsType[*dialError](err)
	switch {
	case t.early.Load(), c != nil && c.spoke.Load():
		return wrap(ErrProtocol, errEarly)
	case errors.Is(context.Cause(t.Context), errUploadStuck):
		f.final = true
		return wrap(ErrTimeout, errUploadStuck)
	case caller.Err() != nil:
		f.err, f.final, f.outcome = interrupted(caller), true, undecided
		return f
	case t.upload.failed() != nil:
		f.err, f.final, f.outcome = fmt.Errorf("reading the request's body: %w", t.upload.failed()), true, undecided
		return f
	case connecting:
		if isTimeout(err) {
			return wrap(ErrTimeout, dial)
		}
		return wrap(ErrUnreachable, dial)
	case isTimeout(err):
		f.final = f.sent // the server is still busy with it: do not send it again
		return wrap(ErrTimeout, err)
	case t.tlsFailed.Load():
		return wrap(ErrUnreachable, err)
	case t.first.Load(), c != nil && c.speaks.Load() == speaksHTTP2 && isHTTP2Fault(err):
		f.final = true
		return wrap(ErrProtocol, err)
	case !t.isServers(c, err):
		f.err, f.final, f.outcome = fmt.Errorf("sending the request to %s: %w", name, err), true, undecided
		return f
	}
	if t.reused.Load() && (c == nil || c.speaks.Load() != speaksHTTP2) {
		f.outcome = undecided // a server may close an idle connection at any moment
	}
	return wrap(ErrUnreachable, err)
}

// isServers reports whether an error without an answer is the server's doing,
// not that of a request which cannot be sent: a Host that is none, a header too
// large for the peer. Clients must not be able to eject servers with those.
func (t *try) isServers(c *conn, err error) bool {
	if c == nil {
		return false
	}
	if c.broken.Load() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && !errors.Is(op, net.ErrClosed) {
		return true // such as an alert of TLS
	}
	// net/http keeps its types for these to itself. HTTP/2 may end a request and
	// keep the connection (RFC 9113, 5.4.2).
	text := err.Error()
	return strings.Contains(text, "received from peer") || strings.Contains(text, "GOAWAY") ||
		strings.Contains(text, "server closed idle connection")
}

// isHTTP2Fault reports whether we have ended a stream or connection of HTTP/2
// since the server broke the rules (RFC 9113, 5.4), for which net/http has no
// exported type either.
func isHTTP2Fault(err error) bool {
	text := err.Error()
	return strings.Contains(text, "connection error: ") ||
		strings.Contains(text, "stream error: ") && !strings.Contains(text, "received from peer")
}
