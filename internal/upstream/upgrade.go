package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"millrace/internal/upstream/http1"
	"millrace/internal/wire/field"
)

// Why Upgrade refuses a request, or cannot use a server.
var (
	errNoUpgrade   = errors.New("the request asks for no other protocol: it needs the fields Connection: Upgrade and Upgrade")
	errUpgradeBody = errors.New("a request to switch protocols must have no body")
	errNoSwitching = errors.New("HTTP/2 cannot switch protocols: write http:// for the address instead of h2c://")
	errField       = errors.New("not a header field")
	errMethod      = errors.New("not a method")
	errSwitched    = errors.New("it switched protocols")
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
	// most 8 KiB; nil mostly. It comes before anything read from Conn. Set it to
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

// Upgrade asks one of the servers to switch protocols (RFC 9110, 7.8), over HTTP/1.1 and
// a connection of its own. q must have the fields Connection, with upgrade in it, and
// Upgrade, and no body. It is sent as Do sends it: the caller removes what is not for the
// server.
//
// If the answer has status 101, the Tunnel is the connection, and the caller's to close;
// the answer has no body then. The protocol is one of those that q asked for; whether the
// rest of the answer is as that protocol wants it (for WebSockets Sec-WebSocket-Accept) is
// for the caller to see. Any other answer comes with a nil Tunnel and a body that must be
// closed, as Do's; the connection ends with it. Interim answers are dropped.
//
// Balancing, places, the queue, health, the breaker, timeouts, retries and the
// errors are those of Do, with these differences: a server whose Streams
// are all taken is not asked, and where that is true of all, the error is
// [ErrBusy] at once; least_connections and two_choices count streams as well;
// h2c:// addresses cannot do it.
//
// ctx counts until Upgrade returns a Tunnel, or until the body is closed.
func (p *Pool) Upgrade(ctx context.Context, q *Request) (*Answer, *Tunnel, error) {
	return p.ContinueUpgrade(ctx, q, nil)
}

// ContinueUpgrade is Upgrade for a request that an event loop has begun with
// [Pool.BeginUpgrade], in whatever state it is; see [Pool.Continue].
func (p *Pool) ContinueUpgrade(ctx context.Context, q *Request, x *Exchange) (*Answer, *Tunnel, error) {
	if err := q.checkUpgrade(); err != nil {
		if q.Body != nil {
			q.Body.Close() // as Do does
		}
		if x != nil {
			x.Discard()
		}
		return nil, nil, err
	}
	var tunnel *Tunnel
	k := &call{pool: p, ctx: ctx, request: q}
	has := place{}
	if x == nil {
		k.what = p.demandOf(q, true)
	} else if err := k.goOn(x); err != nil {
		return nil, nil, err
	} else {
		has = x.place
	}
	a, err := p.repeat(k, nil, has, func(k *call, c place, _ *upload) (*Answer, *failure) {
		x := k.started
		if k.started = nil; x == nil {
			x = &Exchange{pool: p, server: c.server, step: placed, tunnels: true}
		}
		x.place, x.caller, x.request = c, ctx, q
		err := x.run()
		if err == nil && x.head.Framing == http1.Switched {
			err = switched(q.Fields, x.head.Fields)
		}
		switch {
		case err != nil:
			return nil, x.fail(err)
		case x.head.Framing != http1.Switched:
			x.head.Keep = false
			return x.answer()
		}
		early, f := x.detach()
		if f != nil {
			return nil, f
		}
		tunnel = &Tunnel{Conn: x.wire.net, Early: early, pool: p, server: c.server}
		a := *x.given() // and nothing else of the exchange
		a.Body = http.NoBody
		return &a, nil
	})
	return a, tunnel, err
}

// checkUpgrade returns why Upgrade cannot send a request; nil: it can.
func (q *Request) checkUpgrade() error {
	switch {
	case q.Body != nil || q.Length != 0:
		return errUpgradeBody
	case !q.Fields.Lists("Connection", "upgrade") || len(protocols(q.Fields)) == 0:
		return errNoUpgrade
	case q.Method != "" && !field.Token(q.Method):
		return fmt.Errorf("%w: %.64q", errMethod, q.Method)
	}
	for i := range q.Fields {
		l := &q.Fields[i]
		if !field.Token(l.Name) {
			return fmt.Errorf("%w: %.64q", errField, l.Name)
		}
		if !field.Value(l.Value) {
			return fmt.Errorf("%w: the value of %.64q", errField, l.Name)
		}
	}
	return q.check()
}

// protocols are those that a header's Upgrade names.
func protocols(h field.Lines) []string { return slices.Collect(field.Members(h.Values("Upgrade"))) }

// switched returns what is wrong with an answer with status 101; nil: nothing. The
// server must name the protocol, and it must be one that was asked for (RFC 9110,
// 7.8).
func switched(asked, answer field.Lines) error {
	to := protocols(answer)
	if len(to) == 0 || !answer.Lists("Connection", "upgrade") {
		return fmt.Errorf("%w: it does not say to which", errSwitched)
	}
	for _, one := range to {
		if !asked.Lists("Upgrade", one) {
			return fmt.Errorf("%w: to %.64q, which nobody asked for", errSwitched, one)
		}
	}
	return nil
}
