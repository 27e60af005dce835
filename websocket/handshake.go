package websocket

import (
	"bufio"
	"crypto/sha1" // RFC 6455, 1.3: it proves no identity
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/websocket/centrifuge"
	"millrace/websocket/channels"
	"millrace/websocket/conn"
	"millrace/websocket/frame"
)

// keyGUID is what every server appends to the client's key (RFC 6455, 1.3).
const keyGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// handshakeTime is how long a client has for taking the answer.
const handshakeTime = 10 * time.Second

// isConnect reports whether r is an extended CONNECT (RFC 8441, 4). net/http
// accepts it with GODEBUG=http2xconnect=1 in its environment only.
func isConnect(r *http.Request) bool {
	return r.Method == http.MethodConnect && r.ProtoMajor >= 2
}

// wantsWebSocket reports whether r asks for a WebSocket at all; check says whether it
// does so correctly.
func wantsWebSocket(r *http.Request) bool {
	if isConnect(r) {
		return strings.EqualFold(r.Header.Get(":protocol"), "websocket")
	}
	return field.Has(r.Header["Upgrade"], "websocket")
}

// check returns what is wrong with a handshake (RFC 6455, 4.2.1); nil: nothing.
func check(q *message.Request) *channels.Refusal {
	refuse := func(text string) *channels.Refusal {
		return &channels.Refusal{Status: http.StatusBadRequest, Text: text}
	}
	if version, once := alone(q, "Sec-Websocket-Version"); !once || version != "13" {
		return &channels.Refusal{Status: http.StatusUpgradeRequired, Text: "Only version 13 of the WebSocket protocol is spoken here."}
	}
	if q.Method == http.MethodConnect && q.Major >= 2 { // RFC 8441
		return nil
	}
	key, once := alone(q, "Sec-Websocket-Key")
	switch {
	case q.Method != http.MethodGet:
		return refuse("The handshake of a WebSocket is a GET.")
	case q.Major == 1 && q.Minor < 1 || q.Major < 1:
		return refuse("The handshake of a WebSocket needs HTTP/1.1.")
	case !q.Fields.Lists("Connection", "upgrade"):
		return refuse("The field Connection must name Upgrade.")
	case !once || !isKey(key):
		return refuse("Sec-WebSocket-Key must be there once, with 16 bytes in base64.")
	case q.Length != 0:
		return refuse("The handshake of a WebSocket has no body.")
	}
	return nil
}

// alone is the value of a field that stands in one line.
func alone(q *message.Request, name string) (value string, once bool) {
	for i := range q.Fields {
		if q.Fields[i].Name == name {
			if once {
				return "", false
			}
			value, once = q.Fields[i].Value, true
		}
	}
	return value, once
}

func isKey(s string) bool {
	var b [18]byte
	n, err := base64.StdEncoding.Decode(b[:], []byte(s[:min(len(s), 24)]))
	return len(s) == 24 && err == nil && n == 16
}

// accepts reports whether pages of the request's origin may connect (RFC 6455,
// 10.2): those of the same host, and those that the operator has named.
// Clients that are not browsers send no Origin.
func (h *Handler) accepts(q *message.Request) bool {
	if !q.Fields.Has("Origin") {
		return true
	}
	origin, once := alone(q, "Origin")
	if !once {
		return false
	}
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	if u.Host != "" && sameHost(u, q) {
		return true
	}
	return slices.ContainsFunc(h.options.Origins, func(allowed string) bool { return matchesOrigin(allowed, origin, u) })
}

// sameHost compares an origin with the request's Host, in which the scheme's own port
// may be missing. A page from https may come without TLS, behind a proxy that ended
// it; a page from http never comes with TLS.
func sameHost(origin *url.URL, q *message.Request) bool {
	if q.Secure && origin.Scheme != "https" {
		return false
	}
	return strings.EqualFold(trimPort(origin.Host, origin.Scheme), trimPort(q.Host, origin.Scheme))
}

func trimPort(host, scheme string) string {
	if scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// matchesOrigin compares with https://app.example, https://*.example.org or *.
func matchesOrigin(allowed, origin string, u *url.URL) bool {
	if allowed == "*" || strings.EqualFold(allowed, origin) {
		return true
	}
	scheme, host, ok := strings.Cut(allowed, "://*.")
	return ok && strings.EqualFold(scheme, u.Scheme) && len(u.Host) > len(host)+1 &&
		strings.EqualFold(u.Host[len(u.Host)-len(host)-1:], "."+host)
}

// subprotocol is the first of the route's subprotocols that the client offers; "" for
// none.
func (h *Handler) subprotocol(r *http.Request) string {
	if r.URL.Path == sdkSocket && h.sdks != nil && field.Has(r.Header["Sec-Websocket-Protocol"], centrifuge.Subprotocol) {
		return centrifuge.Subprotocol
	}
	for _, ours := range h.options.Subprotocols {
		for theirs := range field.Members(r.Header["Sec-Websocket-Protocol"]) {
			if theirs == ours { // RFC 6455, 4.1: as it is written
				return ours
			}
		}
	}
	return ""
}

// acceptKey answers a client's key (RFC 6455, 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + keyGUID))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// answerTo makes the header that accepts a handshake.
func (h *Handler) answerTo(r *http.Request) (header field.Lines, p frame.Params) {
	if !h.options.Compression.Off {
		var answer string
		if p, answer = frame.Negotiate(r.Header["Sec-Websocket-Extensions"]); p.On {
			header.Add("Sec-Websocket-Extensions", answer)
		}
	}
	if name := h.subprotocol(r); name != "" {
		header.Add("Sec-Websocket-Protocol", name)
	}
	return header, p
}

// adopt completes the handshake and hands the connection over to the engine. It returns
// after that; over HTTP/2, when the connection is over.
func (h *Handler) adopt(w http.ResponseWriter, r *http.Request, set *conn.Settings, state any, place *seat) {
	header, p := h.answerTo(r)
	if isConnect(r) {
		if s := openStream(w, r, header); s != nil {
			defer s.end()
			place.keep()
			place.release(func() {}) // a moment early: Serve returns at the end only
			_ = h.engine.Serve(s, set, p, state)
		}
		return
	}
	header.Add("Sec-Websocket-Accept", acceptKey(r.Header.Get("Sec-Websocket-Key")))
	head := switching(header)
	if s, ok := w.(lane.Switcher); ok && h.engine.TakesDescriptors() {
		if fd, early, ok := s.Switch(head); ok {
			place.keep()
			place.release(func() { _ = h.engine.AdoptDescriptor(fd, early, set, p, state) }) // closed already: as the connection is
			return
		}
	}
	raw, early, ok := h.switchProtocols(w, r, head)
	if !ok {
		return
	}
	place.keep()
	place.release(func() { _ = h.engine.Adopt(raw, early, set, p, state) }) // closed already: as the connection is
}

// switching is the head of the answer that accepts a handshake, with these fields.
func switching(header field.Lines) []byte {
	head := append(make([]byte, 0, 256), "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nServer: "+lane.ServerName+"\r\n"...)
	for i := range header {
		head = append(append(append(append(head, field.Spelling(header[i].Name)...), ": "...), header[i].Value...), "\r\n"...)
	}
	return append(head, "\r\n"...)
}

// switchProtocols answers with 101 and takes the connection out of net/http and the
// lane. early is what was read ahead.
func (h *Handler) switchProtocols(w http.ResponseWriter, r *http.Request, head []byte) (raw net.Conn, early []byte, ok bool) {
	nc, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.refuse(w, r, &channels.Refusal{Status: http.StatusInternalServerError, Text: "This connection cannot become a WebSocket."})
		return nil, nil, false
	}
	early = readAhead(buf.Reader)
	raw, more := lane.Release(nc)
	early = append(early, more...)
	// net/http leaves no deadline but one in the past, which ended its own read.
	_ = raw.SetDeadline(time.Time{})
	_ = raw.SetWriteDeadline(time.Now().Add(handshakeTime))
	if _, err := raw.Write(head); err != nil {
		_ = raw.Close()
		return nil, nil, false
	}
	_ = raw.SetWriteDeadline(time.Time{})
	return raw, early, true
}

// readAhead returns what net/http has read behind the handshake.
func readAhead(r *bufio.Reader) []byte {
	if r.Buffered() == 0 {
		return nil
	}
	b, _ := r.Peek(r.Buffered()) // cannot fail: they are there
	return append([]byte(nil), b...)
}
