package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"millrace/internal/wire/field"
)

// Why Upgrade refuses a request, or cannot use a server.
var (
	errNoUpgrade   = errors.New("the request asks for no other protocol: it needs the fields Connection: Upgrade and Upgrade")
	errUpgradeBody = errors.New("a request to switch protocols must have no body")
	errNoSwitching = errors.New("HTTP/2 cannot switch protocols: write http:// for the address instead of h2c://")
	errField       = errors.New("not a header field")
	errMethod      = errors.New("not a method")
)

// Tunnel is a connection to a server that has switched protocols. It counts as
// one of the server's Streams until Close, and outlives the request's context
// and the Pool.
//
// It costs 64 bytes besides the connection and Early: nothing of net/http is
// kept.
type Tunnel struct {
	// Conn is the connection itself, without anything around it and with no
	// deadline: a [*net.TCPConn], [*net.UnixConn] or [*crypto/tls.Conn].
	//
	// Who takes the descriptor out of it closes Conn and sets it to nil, before
	// anyone else may call Close, which then only gives the stream back.
	net.Conn
	// Early is what the server sent right behind the header of its answer, at
	// most 4 KiB; nil mostly. It comes before anything read from Conn. Set it to
	// nil when it was passed on, and its memory is free.
	Early []byte

	pool   *Pool
	server *server
	ended  atomic.Bool
}

// Close closes the connection and gives the stream back. Only the first call
// does; a later one returns what closing a closed connection does.
func (t *Tunnel) Close() error {
	var err error
	if t.Conn != nil {
		err = t.Conn.Close()
	}
	if !t.ended.Swap(true) {
		t.pool.streamEnded(place{server: t.server})
	}
	return err
}

// Upgrade asks one of the servers to switch protocols (RFC 9110, 7.8), over
// HTTP/1.1 and a connection of its own. r must have the fields Connection, with
// upgrade in it, and Upgrade, and no body. Its method, target, Host and header
// are sent as RoundTrip sends them: the caller removes what is not for the server.
//
// If the answer has status 101, the Tunnel is the connection, and the caller's
// to close; the body is empty then. The protocol is one of those that r asked for;
// whether the rest of the answer is as that protocol wants it (for WebSockets
// Sec-WebSocket-Accept) is for the caller to see. Any other answer comes with a
// nil Tunnel and a body that must be closed, as RoundTrip's; the connection ends
// with it.
//
// Balancing, places, the queue, health, the breaker, timeouts, retries and the
// errors are those of RoundTrip, with these differences: a server whose Streams
// are all taken is not asked, and where that is true of all, the error is
// [ErrBusy] at once; least_connections and two_choices count streams as well;
// h2c:// addresses cannot do it.
//
// r's context counts until Upgrade returns a Tunnel, or until the body is closed.
// Its httptrace hook Got1xxResponse is called; none of the others is.
func (p *Pool) Upgrade(r *http.Request) (*http.Response, *Tunnel, error) {
	target, err := upgradeTarget(r)
	if err != nil {
		return nil, nil, err
	}
	var tunnel *Tunnel
	resp, err := p.repeat(r, nil, p.demandFor(r, true), place{}, func(c place, _ *upload) (*http.Response, *failure) {
		var resp *http.Response
		var f *failure
		resp, tunnel, f = p.tryUpgrade(r, target, c)
		return resp, f
	})
	return resp, tunnel, err
}

// upgradeTarget is the target of a request that Upgrade can send.
func upgradeTarget(r *http.Request) (string, error) {
	if r.Body != nil && r.Body != http.NoBody || r.ContentLength != 0 {
		if r.Body != nil {
			r.Body.Close() // as RoundTrip does
		}
		return "", errUpgradeBody
	}
	if !field.Has(r.Header["Connection"], "upgrade") || len(protocols(r.Header)) == 0 {
		return "", errNoUpgrade
	}
	if r.Method != "" && !field.Token(r.Method) {
		return "", fmt.Errorf("%w: %.64q", errMethod, r.Method)
	}
	for name, values := range r.Header {
		if !field.Token(name) {
			return "", fmt.Errorf("%w: %.64q", errField, name)
		}
		for _, value := range values {
			if !field.Value(value) {
				return "", fmt.Errorf("%w: the value of %.64q", errField, name)
			}
		}
	}
	return targetOf(r)
}

// protocols are those that a header's Upgrade names.
func protocols(h http.Header) []string { return slices.Collect(field.Members(h["Upgrade"])) }

// switched returns what is wrong with an answer with status 101; nil: nothing. The
// server must name the protocol, and it must be one that was asked for (RFC 9110,
// 7.8).
func switched(asked, answer http.Header) error {
	to := protocols(answer)
	if len(to) == 0 || !field.Has(answer["Connection"], "upgrade") {
		return fmt.Errorf("%w: it does not say to which", errSwitched)
	}
	for _, one := range to {
		if !field.Has(asked["Upgrade"], one) {
			return fmt.Errorf("%w: to %.64q, which nobody asked for", errSwitched, one)
		}
	}
	return nil
}

// tryUpgrade asks the server of c, and gives the place back unless there is an
// answer, whose body or Tunnel does that.
func (p *Pool) tryUpgrade(r *http.Request, target string, c place) (*http.Response, *Tunnel, *failure) {
	h := &handshake{pool: p, place: c}
	resp, err := h.exchange(r, target)
	if err != nil {
		h.abandon()
		f := h.failure(r.Context(), err)
		p.recordTry(c, f)
		return nil, nil, f
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp, f := h.answer(r, resp)
		return resp, nil, f
	}
	p.recordAnswer(c, false)
	if !p.stream(c) { // others were faster
		h.abandon()
		p.recordEnd(c, undecided, nil)
		return nil, nil, &failure{err: &upstreamError{ErrBusy, c.server.name, errAllStreams}, final: true}
	}
	return resp, &Tunnel{Conn: h.conn, Early: h.early(), pool: p, server: c.server}, nil
}
