package proxy

import (
	"maps"
	"net/http"
	"net/netip"
	"net/url"

	"millrace/internal/lane"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// This file has the forms of the rules for net/http's types that the cache still needs.

// firstAddress has a scheme and a host that every http.RoundTripper accepts.
func firstAddress(to []string) url.URL {
	u := url.URL{Scheme: "http", Host: "localhost"}
	if len(to) == 0 {
		return u
	}
	if addr, err := url.Parse(to[0]); err == nil && addr.Host != "" {
		u.Host = addr.Host
		if addr.Scheme == "https" {
			u.Scheme = "https"
		}
	}
	return u
}

func headOf(r *http.Request) *message.Request {
	q := new(message.Request)
	Head(q, r)
	return q
}

func inLines(header http.Header, f func(l *field.Lines)) {
	l := field.Of(header)
	f(&l)
	clear(header)
	maps.Copy(header, l.Header())
}

// RefuseHTTP is Refuse.
func (h *Handler) RefuseHTTP(w http.ResponseWriter, r *http.Request) bool {
	return h.Refuse(w, r, headOf(r))
}

// SharedHTTP is Shared.
func (h *Handler) SharedHTTP(r *http.Request, hostCounts bool) *http.Request {
	out := h.Shared(headOf(r), hostCounts).HTTP(r.Context())
	out.URL.Scheme, out.URL.Host = h.first.Scheme, h.first.Host
	return out
}

// AskedHTTP is Asked.
func (h *Handler) AskedHTTP(r *http.Request) (scheme, host string) { return h.Asked(headOf(r)) }

// TrustsHTTP is Trusts.
func (h *Handler) TrustsHTTP(r *http.Request) bool { return h.Trusts(headOf(r)) }

// ConstantHTTP is Constant.
func (h *Handler) ConstantHTTP(header http.Header) { inLines(header, h.Constant) }

// RestoreHTTP is Restore.
func (h *Handler) RestoreHTTP(header http.Header, r *http.Request) {
	scheme, host := h.AskedHTTP(r)
	inLines(header, func(l *field.Lines) { h.Restore(*l, scheme, host) })
}

// StripHTTP is Strip.
func StripHTTP(header http.Header) { inLines(header, Strip) }

// AppendViaHTTP is AppendVia.
func AppendViaHTTP(header http.Header, major, minor int) {
	inLines(header, func(l *field.Lines) { AppendVia(l, major, minor) })
}

// CheckHeaderHTTP is CheckHeader.
func CheckHeaderHTTP(header http.Header) error { return CheckHeader(field.Of(header)) }

// SendBodyHTTP is SendBody.
func (h *Handler) SendBodyHTTP(w http.ResponseWriter, resp *http.Response) (sent int64, readErr, writeErr error) {
	return h.SendBody(w, upstream.AnswerOf(resp))
}

// hook is an Editor.
type hook func(*http.Response)

// Edit implements [Editor].
func (f hook) Edit(status int, lines []field.Line) []field.Line {
	l := field.Lines(lines)
	resp := &http.Response{StatusCode: status, Header: l.Header()}
	f(resp)
	return field.Of(resp.Header)
}

// ServeHooked is Serve.
func (h *Handler) ServeHooked(w http.ResponseWriter, r *http.Request, seen func(*http.Response)) {
	h.Serve(w, r, headOf(r), hook(seen))
}

// BeginHTTP is Begin for a request of which only the URL is known yet.
func (h *Handler) BeginHTTP(t *Trip, q *lane.ForwardRequest, key string) bool {
	path, query, _ := h.paths.moved(q.Head.Path, q.Head.Query)
	out := upstream.Request{
		Method: q.Head.Method, Client: netip.AddrPortFrom(q.Head.Peer, 0), Secure: q.Head.Secure,
		Path: path, Query: query, Asks: q.Head.HasQuery || query != "", Key: key,
	}
	return h.Begin(t, q, &out)
}

// AskHTTP is Ask.
func (t *Trip) AskHTTP(r *http.Request, room []byte, onSuspect func()) bool {
	text, err := t.Write(room, r)
	if err != nil {
		t.Cancel()
		return false
	}
	if !t.SendText(text) {
		return false
	}
	if !t.Waits() {
		t.OnSuspect(onSuspect)
	}
	return true
}

// AnswerHTTP is Answer.
func (t *Trip) AnswerHTTP(buf []byte) (*http.Response, []byte, lane.Progress) {
	a, body, progress := t.Answer(buf)
	if progress != lane.Complete {
		return nil, nil, progress
	}
	return a.Response(), body, progress
}
