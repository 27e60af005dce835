// Package proxy passes requests on to an upstream and its answers back to the
// client, including uploads, streams, upgrades, trailers and interim responses.
// It is the job of a route "proxy", and the cache uses it for whatever it
// does not store.
//
// It does not use httputil.ReverseProxy, which loses request trailers, the bytes
// that a client sent after its request for an upgrade, header fields that were
// set before an interim response, query parameters that it cannot parse, and
// fields that a client must not name in Connection but does (Authorization,
// Cookie).
//
// # Ending upgraded connections
//
// An upgraded connection (a WebSocket) may stay open for ever, and a server that
// drains would wait for it in vain. Both directions are therefore closed when the
// drain begins ([lane.Drain]).
package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"millrace/internal/bytesize"
	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/route/headers"
	"millrace/internal/upstream"
	"millrace/internal/upstream/spool"
	"millrace/internal/wire/message"
	"millrace/internal/wire/netset"
)

// Options of the job.
type Options struct {
	upstream.Options `yaml:",inline"`
	// TrustForwarded lists clients, by address or network (10.0.0.0/8; unix for
	// whoever connects to a UNIX socket), whose Forwarded and X-Forwarded-For
	// are appended to, and whose X-Forwarded-Host and -Proto are passed on.
	// Everyone else's are replaced, and other fields that claim to know the
	// client or the host better (X-Real-IP, Client-IP, X-Original-URL …) are
	// removed. List only proxies that remove those of their own clients.
	TrustForwarded []string `yaml:"trust_forwarded"`

	// StripPrefix is taken from the beginning of each path, and told to the upstream
	// as X-Forwarded-Prefix: with /app/, the upstream gets /x for /app/x. A path in
	// the address comes in its place: with http://127.0.0.1:3000/inner, it gets /inner/x.
	StripPrefix string `yaml:"strip_prefix"`
	// Rewrite changes paths by regular expressions. The first that matches does.
	Rewrite []Rewrite `yaml:"rewrite"`
	// Redirects says what becomes of addresses of the upstream in Location,
	// Content-Location and Refresh, and of the Path of its cookies: rewrite turns
	// them into what clients may use (without the upstream's host, with what
	// strip_prefix has taken away), keep leaves them. Default rewrite.
	Redirects string `yaml:"redirects"`

	// RequestHeaders changes the header fields that the upstream gets. Values may
	// have variables: {client_ip}, {host}, {scheme}, {method}, {path}, {query}, {uri} and
	// {request_id}, a random one. A cache takes none of them: its answers are for
	// everyone.
	RequestHeaders headers.Options `yaml:"request_headers"`

	// Canary sends some of the visitors to another version of the upstream.
	Canary Canary `yaml:"canary"`
	// Mirror sends copies of requests to another upstream and drops its answers:
	// "mirror: http://127.0.0.1:5001".
	Mirror Mirror `yaml:"mirror"`

	// Stream passes bodies on as they come, in both directions: the upstream
	// waits for slow clients, and they hold its places. By default bodies are
	// buffered, except those of gRPC and upgraded connections, event streams, and
	// answers with "X-Accel-Buffering: no".
	Stream bool `yaml:"stream"`
	// Buffer bounds what is buffered of one request or answer.
	Buffer Buffer `yaml:"buffer"`
}

// Buffer bounds what is buffered of one request or answer. All of them together
// are bounded by "buffers".
type Buffer struct {
	// Request is how much of a request's body is kept in memory; the rest goes to
	// a temporary file. The upstream is asked when all of it has come. Default 1MiB.
	Request bytesize.Size `yaml:"request"`
	// Answer is how much of an answer's body is kept in memory, when the
	// upstream is faster than the client. Default 1MiB.
	Answer bytesize.Size `yaml:"answer"`
	// File is how much of a body goes to a temporary file. Uploads that are
	// longer get 413; an upstream with a longer answer waits for the client. Default 1GiB.
	File bytesize.Size `yaml:"file"`
}

// UnmarshalText lets a route say "proxy: http://127.0.0.1:5000", or several
// addresses with commas between them.
func (o *Options) UnmarshalText(text []byte) error {
	var to []string
	for addr := range strings.SplitSeq(string(text), ",") {
		if addr = strings.TrimSpace(addr); addr == "" {
			return errors.New("an address is missing: write http://host:port, or several with commas between them")
		}
		to = append(to, addr)
	}
	o.To = to
	return nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	maps.Copy(faults, o.Options.Check())
	if _, err := netset.Parse(o.TrustForwarded); err != nil {
		faults["trust_forwarded"] = err
	}
	o.Canary.check(o, faults)
	o.Mirror.check(o, faults)
	_, wrong := newPaths(o)
	maps.Copy(faults, wrong)
	_, wrong = newRules(o)
	maps.Copy(faults, wrong)
	return faults
}

// Handler is the reverse proxy. It is safe for concurrent use and holds nothing
// that must be closed.
type Handler struct {
	pool       upstream.Doer
	loops      *upstream.Pool // for event loops; nil: they pass nothing on
	errorLog   *slog.Logger
	trust      netset.Set     // clients whose forwarding fields are believed
	clients    *netset.Finder // nil: nobody is trusted
	host       string         // as Options.Host: client, upstream, or the name itself
	introduces bool           // the pool tells servers which address a client has connected to
	paths      paths
	rules      *headers.Rules                      // nil: none
	changed    []string                            // the fields of rules, folded
	drained    func(*http.Request) <-chan struct{} // lane.Drain; a test's own
	stream     bool
	buffer     Buffer
	room       *spool.Room
	odd        atomic.Int32 // answers in a row that were none for a loop
	tried      atomic.Uint32
	copies     *Copies // nil: none
}

// New returns a proxy to a pool, which stays the caller's: an *upstream.Pool, or
// in tests and other programs an [upstream.Over]. errorLog may be nil: slog.Default().
func New(o Options, p upstream.Doer, errorLog *slog.Logger) (*Handler, error) {
	t, err := netset.Parse(o.TrustForwarded)
	if err != nil {
		return nil, fmt.Errorf("trust_forwarded: %w", err)
	}
	if errorLog == nil {
		errorLog = slog.Default()
	}
	way, wrong := newPaths(o)
	rules, bad := newRules(o)
	maps.Copy(wrong, bad)
	for key, err := range wrong {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	loops, _ := p.(*upstream.Pool)
	return &Handler{
		pool: p, loops: loops, paths: way, rules: rules, changed: changedBy(rules), errorLog: errorLog, trust: t, clients: netset.NewFinder(t, ""),
		host: o.Host, introduces: o.ProxyProtocol != "", drained: lane.Drain,
		stream: o.Stream, buffer: o.Buffer.normal(), room: spool.NewRoom(spool.Options{}, errorLog),
	}, nil
}

// Share has bodies buffered in a room that others use as well, instead of one
// of the handler's own. It must be called before the first request.
func (h *Handler) Share(room *spool.Room) {
	if room != nil {
		h.room = room
	}
}

// heads are requests that ServeHTTP has made.
var heads = sync.Pool{New: func() any { return new(message.Request) }}

// ServeHTTP passes r on.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := heads.Get().(*message.Request)
	defer heads.Put(q)
	Head(q, r)
	h.Serve(w, r, q, nil)
}

// Serve is ServeHTTP for a request of which [Head] has made q, and whose answer e edits
// before it is sent; nil: nobody does. Fields that are already in w's header are sent too.
// If the answer has the same field, its value wins, except for Vary, where both are joined.
//
// When the upstream's answer breaks off after its header has gone out, Serve
// panics with http.ErrAbortHandler, so that the client sees that the answer is incomplete.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, q *message.Request, e Editor) {
	if h.Refuse(w, r, q) {
		return
	}
	step := trace.Begin(r.Context(), trace.Upstream)
	q.Marks = trace.From(r.Context()).Fields(q.Marks) // below that step
	o := newOutgoing()
	h.outgoing(q, o)
	out := &o.Request
	if h.introduces {
		out.Local = Local(r)
	}
	body := h.newUpload(r, out)
	if body != nil {
		// Otherwise net/http reads the rest of the upload before it sends the
		// first byte of an answer. Millrace's server always supports this.
		_ = http.NewResponseController(w).EnableFullDuplex()
		defer body.forbid()
		upload := trace.Begin(r.Context(), trace.Upload)
		if !h.takeIn(w, r, out, body) {
			upload.End("", errUpload)
			step.End("", errUpload)
			return
		}
		upload.End("", nil)
		defer body.discard()
	}
	relay := &interim{w: w}
	a, err := h.ask(r, out, body, relay)
	relay.stop()
	if err == nil {
		if err = checkAnswer(a); err != nil {
			a.Body.Close()
		}
	}
	step.End("", err)
	switch {
	case err != nil:
		h.failed(w, r, body, err)
	case a.Status == http.StatusSwitchingProtocols:
		h.upgrade(w, r, o, a, e)
	default:
		h.edit(a, o.from.asked, e)
		h.respond(w, r, a, body)
	}
}

// Local is the address that a client has connected to, for the PROXY protocol; the zero one
// where that is not known.
func Local(r *http.Request) netip.AddrPort {
	switch local := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return local.AddrPort()
	case *net.UDPAddr: // HTTP/3
		return local.AddrPort()
	}
	return netip.AddrPort{}
}

// errUpload says of a step that the request's body did not come.
var errUpload = errors.New("the request's body could not be taken in")

// ask sends out to the upstream, unless an event loop has sent it already. It relays
// interim answers if r's client knows them: in HTTP/1.0 there are none (RFC 9110,
// 15.2).
func (h *Handler) ask(r *http.Request, out *upstream.Request, body *upload, relay *interim) (*upstream.Answer, error) {
	if p, started := lane.Take[*roundTrip](r, h); started {
		return p.Continue(r.Context(), out, relay.pass) // which has p from now on
	}
	h.copies.send(out, body)
	if !r.ProtoAtLeast(1, 1) {
		return h.pool.Do(r.Context(), out, nil)
	}
	return h.pool.Do(r.Context(), out, relay.pass)
}

// failed answers for a request that failed: with Fail, unless the client's body was
// the cause.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, body *upload, err error) {
	body.closeAfter(w.Header(), r)
	if status := body.fault(); status != 0 && r.Context().Err() == nil {
		refuse(w, r, status)
		return
	}
	h.Fail(w, r, err)
}
