package websocket

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"

	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/proxy"
)

// passOn connects the client with one of the upstream's servers. The upstream's answer
// to the handshake is forwarded as it is; then the engine drives both connections.
func (h *Handler) passOn(w http.ResponseWriter, r *http.Request, q *message.Request, place *seat) {
	if h.proxy.Refuse(w, r, q) {
		return
	}
	step := trace.Begin(r.Context(), trace.Upstream)
	q.Marks = trace.From(r.Context()).Fields(q.Marks)
	out := h.proxy.Outgoing(q)
	out.Local = proxy.Local(r)
	if isConnect(r) { // the stream is ours, and its method is not HTTP/1's
		out.Method, out.Length = http.MethodGet, 0
	}
	key := handshakeOf(out)
	res, tunnel, err := h.pool.Upgrade(r.Context(), out)
	h.connect(w, r, q, &opened{res, tunnel, key, step}, err, place)
}

// handshakeOf makes a request one for a WebSocket, with a key of our own.
func handshakeOf(out *upstream.Request) (key string) {
	out.Fields.Set("Connection", "Upgrade")
	out.Fields.Set("Upgrade", "websocket")
	out.Fields.Delete(":protocol")
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key = base64.StdEncoding.EncodeToString(nonce[:])
	out.Fields.Set("Sec-Websocket-Key", key)
	return key
}

// opened is what the upstream has answered.
type opened struct {
	*upstream.Answer
	tunnel *upstream.Tunnel // nil: it refuses
	key    string           // that it was sent
	step   trace.Span
}

// connect passes the upstream's answer on, and connects it with the client where it has
// agreed; err is why there is none.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request, q *message.Request, a *opened, err error, place *seat) {
	res, tunnel := a.Answer, a.tunnel
	if err == nil && tunnel != nil {
		if err = agreed(res, a.key); err != nil {
			_ = tunnel.Close()
		}
	}
	a.step.End("", err)
	switch {
	case err != nil:
		h.proxy.Fail(w, r, err)
	case tunnel == nil:
		h.logUpstreamRefused(r, res.Status)
		h.proxy.Answer(w, r, q, res)
	default:
		h.join(w, r, res, tunnel, place)
	}
}

// agreed checks the upstream's answer to the handshake that this proxy has made (RFC
// 6455, 4.1).
func agreed(res *upstream.Answer, key string) error {
	switch {
	case !res.Fields.Lists("Upgrade", "websocket"):
		return fmt.Errorf("%w: it switches to %.64q, not to WebSocket", upstream.ErrProtocol, res.Fields.First("Upgrade"))
	case res.Fields.First("Sec-Websocket-Accept") != acceptKey(key):
		return fmt.Errorf("%w: it has not understood the WebSocket handshake", upstream.ErrProtocol)
	}
	return nil
}

// join answers the client and hands both connections over to the engine.
func (h *Handler) join(w http.ResponseWriter, r *http.Request, res *upstream.Answer, tunnel *upstream.Tunnel, place *seat) {
	header := passedOn(res)
	if isConnect(r) {
		h.joinStream(w, r, header, tunnel, place)
		return
	}
	header.Add("Sec-Websocket-Accept", acceptKey(r.Header.Get("Sec-Websocket-Key")))
	head := switching(header)
	// The engine has both connections from here on, and closes them; the tunnel is kept
	// for its place at the upstream, and must be small.
	back, backEarly := tunnel.Conn, tunnel.Early
	tunnel.Conn, tunnel.Early = nil, nil
	join := func(passOn func(release func()) error) {
		who := place.keep()
		place.release(func() {
			_ = passOn(func() {
				_ = tunnel.Close()
				who.End()
			})
		})
	}
	if s, ok := w.(lane.Switcher); ok { // which costs less than a hijack
		if detached, ok := h.engine.Detach(back); ok {
			if fd, early, ok := s.Switch(head); ok {
				_ = back.Close()
				join(func(release func()) error {
					return h.engine.JoinDetached(fd, early, detached, backEarly, h.settings, release)
				})
				return
			}
			detached.Close()
		}
	}
	raw, early, ok := h.switchProtocols(w, r, head)
	if !ok {
		_ = back.Close()
		_ = tunnel.Close()
		return
	}
	join(func(release func()) error {
		return h.engine.Join(raw, early, back, backEarly, h.settings, release)
	})
}

// passedOn are the fields of the upstream's answer that the client gets.
func passedOn(res *upstream.Answer) (header field.Lines) {
	for _, l := range res.Fields {
		switch l.Name {
		case "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "Set-Cookie":
			header = append(header, l)
		}
	}
	return header
}

// joinStream is join for HTTP/2: it returns when the stream is over.
func (h *Handler) joinStream(w http.ResponseWriter, r *http.Request, header field.Lines, tunnel *upstream.Tunnel, place *seat) {
	front := openStream(w, r, header)
	if front == nil {
		_ = tunnel.Close()
		return
	}
	defer front.end()
	over := make(chan struct{})
	back, early := tunnel.Conn, tunnel.Early
	tunnel.Conn, tunnel.Early = nil, nil
	who := place.keep()
	place.release(func() {
		_ = h.engine.Join(front, nil, back, early, h.settings, func() {
			_ = tunnel.Close()
			who.End()
			close(over)
		})
	})
	<-over
}

// passPlain forwards a request that is not for a WebSocket.
func (h *Handler) passPlain(w http.ResponseWriter, r *http.Request) { h.proxy.ServeHTTP(w, r) }
