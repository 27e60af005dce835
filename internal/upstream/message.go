package upstream

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"time"

	"millrace/internal/wire/field"
)

// Request is a request to one of the servers. Nothing of it is changed, but for the
// values in Trailer.
type Request struct {
	// Method is sent as it is; "": GET.
	Method string
	// Host is what Host says; "": the server's own.
	Host string
	// Path and Query are the target, escaped as they are to be sent; Asks: there is a
	// question mark between them, even before an empty Query.
	Path, Query string
	Asks        bool
	// Fields are all others, names canonical. What frames the message, and Host, are
	// the pool's own: such fields are dropped, as is a User-Agent without a value.
	Fields field.Lines

	// Length is that of the body, in bytes: 0 for none, -1 where it is not known.
	Length int64
	// Body is nil where an event loop sends it, see [Exchange.Send]. It is read once,
	// perhaps on another goroutine and after the answer has come,
	// and closed. nil: there is none.
	Body io.ReadCloser
	// Whole: all of Body is here, and reading it never waits for a client. If it is an
	// io.WriterTo, it writes itself to the connection.
	Whole bool
	// Again returns the body once more, for another try; nil: it cannot be had again.
	Again func() (io.ReadCloser, error)
	// Trailer has the names of trailers; their values are read when Body has ended.
	Trailer http.Header

	// Client is who asks, for balancing, the queue's turns and the PROXY protocol: the
	// zero one for a UNIX socket, port 0 where only the address is known.
	Client netip.AddrPort
	// Local is the address that the client has connected to, for the PROXY protocol.
	Local netip.AddrPort
	// Received is when the request was read of its client, for an event loop; the zero time: now.
	Received time.Time
	// Secure: the client is there over TLS.
	Secure bool
	// Key is what "balance: hash" goes by instead of the URL, so that a cache sends
	// different spellings of one URL to the same server; "": the URL.
	Key string
	// OnSuspect is called, at most once, when the answer may have been sent before the
	// request: bytes without a request came later on its connection, and it was not the
	// first request there. The answer is usually complete by then. It must return at
	// once, and may be called with locks of net/http held. nil: nobody wants to know.
	OnSuspect func()
}

// Answer is the answer of a server.
type Answer struct {
	Status int
	// Major and Minor are the version of HTTP in which it came.
	Major, Minor int
	// Fields are its header, names canonical. Lines of one name keep their order.
	Fields field.Lines
	// Length is that of the body, in bytes; -1: it is not known.
	Length int64
	// Body must be closed. It ends with an error that wraps ErrTimeout or ErrProtocol
	// when it is not whole. With status 101 it is an [io.ReadWriteCloser].
	Body io.ReadCloser
	// Trailer is complete when Body has ended.
	Trailer http.Header
}

// client is who asks, the zero address for a UNIX socket.
func (q *Request) client() netip.Addr { return q.Client.Addr().Unmap().WithZone("") }

// requestOf is a request of net/http as one of ours.
func requestOf(r *http.Request) *Request {
	q := &Request{
		Method: r.Method, Host: r.Host, Path: targetOf(r), Query: r.URL.RawQuery, Asks: r.URL.ForceQuery || r.URL.RawQuery != "",
		Fields: field.Of(r.Header), Length: r.ContentLength, Again: r.GetBody, Trailer: r.Trailer, Secure: r.TLS != nil,
	}
	if r.Body != nil && r.Body != http.NoBody {
		q.Body = r.Body
	}
	q.Client, _ = netip.ParseAddrPort(r.RemoteAddr) // a client on a UNIX socket has none
	switch local := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		q.Local = local.AddrPort()
	case *net.UDPAddr: // HTTP/3
		q.Local = local.AddrPort()
	}
	return q
}

// HTTP is the request as one of net/http, for what knows no other: HTTP/2 and tests. Its
// scheme and host mean nothing.
func (q *Request) HTTP(ctx context.Context) *http.Request {
	u := &url.URL{Scheme: "http", Host: "localhost", RawQuery: q.Query, ForceQuery: q.Asks && q.Query == ""}
	if plain, err := url.PathUnescape(q.Path); err == nil {
		u.Path, u.RawPath = plain, q.Path
	}
	r := (&http.Request{
		Method: q.Method, URL: u, Host: q.Host, Header: q.Fields.Header(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: q.Length, Trailer: q.Trailer, GetBody: q.Again,
	}).WithContext(ctx)
	if q.Body != nil {
		r.Body = q.Body
	}
	if q.Client.IsValid() {
		r.RemoteAddr = q.Client.String()
	}
	if q.Secure {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	return r
}

// Response is the answer as one of net/http, with the same body and the same strings.
func (a *Answer) Response() *http.Response {
	return &http.Response{
		Status: strconv.Itoa(a.Status) + " " + http.StatusText(a.Status), StatusCode: a.Status,
		Proto: "HTTP/" + strconv.Itoa(a.Major) + "." + strconv.Itoa(a.Minor), ProtoMajor: a.Major, ProtoMinor: a.Minor,
		Header: a.Fields.Header(), ContentLength: a.Length, Body: a.Body, Trailer: a.Trailer,
	}
}

// AnswerOf is what a response of net/http says.
func AnswerOf(resp *http.Response) *Answer {
	a := &Answer{
		Status: resp.StatusCode, Major: resp.ProtoMajor, Minor: resp.ProtoMinor,
		Fields: field.Of(resp.Header), Length: resp.ContentLength, Body: resp.Body, Trailer: resp.Trailer,
	}
	if _, both := a.Body.(io.Writer); a.Trailer == nil && a.Body != nil && a.Body != http.NoBody && !both {
		a.Trailer = http.Header{}
		a.Body = &trailed{a.Body, resp, a.Trailer}
	}
	return a
}

// trailed is a body behind which a trailer may come that was not announced.
type trailed struct {
	io.ReadCloser
	resp *http.Response
	into http.Header
}

// Read implements io.Reader.
func (b *trailed) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err != nil {
		maps.Copy(b.into, b.resp.Trailer)
	}
	return n, err
}

// Doer is a [Pool], or [Over].
type Doer interface {
	// Do makes a request. interim is called, one call at a time, before Do returns;
	// nil: interim answers are dropped.
	Do(ctx context.Context, q *Request, interim Interim) (*Answer, error)
}

// Over makes requests by a RoundTripper of net/http, for tests and other programs.
type Over struct {
	http.RoundTripper
	// To has the scheme and host of the requests' URLs: "http://10.0.0.1:5000"; "":
	// http://localhost.
	To string
}

// Do implements [Doer].
func (o Over) Do(ctx context.Context, q *Request, interim Interim) (*Answer, error) {
	if interim != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			return interim(code, field.Of(h))
		}})
	}
	r := q.HTTP(ctx)
	if to, err := parseAddress(o.To); err == nil {
		r.URL.Scheme, r.URL.Host = to.urlScheme(), to.host
	}
	if !q.Fields.Has("User-Agent") {
		r.Header["User-Agent"] = []string{""} // a client that does not name itself is not Go's
	}
	resp, err := o.RoundTrip(r) //nolint:bodyclose // the answer's closes it
	if err != nil {
		return nil, err //nolint:wrapcheck // the RoundTripper's own
	}
	return AnswerOf(resp), nil
}

// RoundTrip is Do for a request of net/http, of which the URL's path and query, the header
// and body count; scheme and host are chosen here, and r.Host by Options.Host. The hook
// Got1xxResponse of [httptrace.ClientTrace] in its context is called, and none of the
// others. As [http.RoundTripper] demands, r is not changed and its body is closed, perhaps
// later.
func (p *Pool) RoundTrip(r *http.Request) (*http.Response, error) {
	var interim Interim
	if hooks := httptrace.ContextClientTrace(r.Context()); hooks != nil && hooks.Got1xxResponse != nil {
		interim = func(status int, fields field.Lines) error {
			return hooks.Got1xxResponse(status, fields.Header())
		}
	}
	a, err := p.Do(r.Context(), requestOf(r), interim)
	if err != nil {
		return nil, err
	}
	resp := a.Response()
	resp.Request = r
	return resp, nil
}
