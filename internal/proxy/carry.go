package proxy

import (
	"net"
	"net/netip"
	"strings"
	"sync"

	"millrace/internal/authority"
	"millrace/internal/field"
	"millrace/internal/fieldname"
	"millrace/internal/lane"
	"millrace/internal/upstream"
	"millrace/internal/upstream/http1"
)

// passage is a request that a loop passes on. What goes out, and what comes back,
// is the same as by ServeHTTP.
type passage struct {
	upstream.Passage
	handler *Handler
	method  string
	editor  Editor // nil: none
	answer  http1.Answer
	lines   []field.Line
}

// Editor has a say about the answers that a loop takes, for a job that uses the
// proxy: it does what [Handler.Serve]'s hook does.
type Editor interface {
	// Edit changes the lines of an answer, in place or by a longer slice. They need
	// no order, but those of one name. It runs on the loop, and must not wait.
	Edit(status int, lines []field.Line) []field.Line
}

var passagePool = sync.Pool{New: func() any { return new(passage) }}

// An upstream whose last manyOdd answers were not plain enough for a loop is likely
// to give another such answer, and finding that out costs more than the other road
// takes from the start. One in tryAgain requests looks whether that has changed.
const (
	manyOdd  = 8
	tryAgain = 64
)

// carries reports whether nothing is done on a request's way that needs an
// http.Request.
func (h *Handler) carries() bool {
	_, ours := h.pool.(*upstream.Pool)
	return ours && !h.paths.changes() && h.paths.strip == "" && h.rules == nil && !h.stream
}

// Pass implements [lane.Passer].
func (h *Handler) Pass(q *lane.Question) lane.Passage { return h.PassEdited(q, nil) }

// PassEdited is Pass for a job of which e, if it is not nil, edits the answers. If
// the passage is handed over, that job finds it at [lane.Unfinished], and calls
// Serve.
func (h *Handler) PassEdited(q *lane.Question, e Editor) lane.Passage {
	if !h.simple || !h.calm(q) {
		return nil
	}
	p := passagePool.Get().(*passage)
	if !h.pool.(*upstream.Pool).Begin(&p.Passage, q.Loop, addressOf(q.Client), q.Waiting) {
		passagePool.Put(p)
		return nil
	}
	p.handler, p.method, p.editor = h, q.Head.Method, e
	if !p.Waits() && !p.send(q) {
		p.release()
		return nil
	}
	return p
}

// send sends the request. If it reports false, nothing was sent, and neither a place
// nor a connection is held.
func (p *passage) send(q *lane.Question) bool {
	text, err := p.request(q, addressOf(q.Client))
	if err != nil {
		p.Cancel()
		return false
	}
	return p.Send(text)
}

// Start implements [lane.Passage].
func (p *passage) Start(q *lane.Question) bool { return p.Enter() && p.send(q) }

// addressOf is a client's address, the zero one on a UNIX socket.
func addressOf(a net.Addr) netip.Addr {
	if a, ok := a.(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// request writes the request down as Outgoing and the pool do.
func (p *passage) request(q *lane.Question, from netip.Addr) ([]byte, error) {
	h, head := p.handler, q.Head
	asked := authority.Normal("http", head.Host)
	host := h.host
	switch host {
	case "upstream":
		host = ""
	case "client":
		host = asked
	}
	lines := p.Lines(host, head.Path, head.Query, head.Asks, head.Length)
	b, err := lines.Append(q.Out, head.Method)
	if err != nil {
		return nil, err
	}
	for i := range head.Lines {
		l := &head.Lines[i]
		if l.Name == "Content-Length" || isConnectionLevel(l.Name) || forged(l.Name) || fieldname.Claim(l.Name) {
			continue
		}
		b = appendLine(b, l.Name, l.Value)
	}
	now := hop{node: "unknown", proto: "http", host: asked}
	if from.IsValid() {
		now.node = from.String()
	}
	b = append(b, "Forwarded: "...)
	b = now.append(b)
	b = append(b, "\r\nX-Forwarded-For: "...)
	b = append(b, now.node...)
	b = append(b, "\r\nX-Forwarded-Proto: http\r\n"...)
	if asked != "" {
		b = appendLine(b, "X-Forwarded-Host", asked)
	}
	b = append(b, "Via: 1.1 "+pseudonym+"\r\n\r\n"...)
	return append(b, q.Body...), nil
}

func appendLine(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// Take implements [lane.Passage].
func (p *passage) Take(buf []byte, r *lane.Reply) lane.Taken {
	body, t := p.Passage.Take(buf, p.method, &p.answer)
	switch {
	case t == upstream.Wait:
		return lane.More
	case t == upstream.Other:
		return lane.Beyond
	case !p.restored(len(body)):
		p.Hold()
		return lane.Beyond
	}
	if p.editor != nil {
		p.lines = p.editor.Edit(p.answer.Status, p.lines)
	}
	field.SortLines(p.lines)
	r.Status, r.Lines, r.Body = p.answer.Status, p.lines, body
	p.End()
	if p.handler.odd.Load() != 0 {
		p.handler.odd.Store(0)
	}
	return lane.Whole
}

// restored puts the lines for the client together, in no order, as Serve does. It
// reports false where there is more to it.
func (p *passage) restored(body int) bool {
	const via, events = "1.1 " + pseudonym, "text/event-stream"
	lines := append(p.lines[:0], field.Line{Name: "Via", Value: via})
	typed := body == 0
	for i := range p.answer.Lines {
		l := &p.answer.Lines[i]
		switch l.Name {
		case "Server":
			continue
		case "Via":
			if lines[0].Value != via {
				return false
			}
			lines[0].Value = l.Value + ", " + via
			continue
		case "Location", "Content-Location", "Refresh":
			if p.handler.paths.answers {
				return false
			}
		case "Set-Cookie":
			if p.handler.paths.moves() {
				return false
			}
		case "Content-Encoding":
			typed = true
		case "Content-Type":
			if typed = true; len(l.Value) >= len(events) && strings.EqualFold(l.Value[:len(events)], events) {
				return false
			}
		}
		if !isConnectionLevel(l.Name) {
			lines = append(lines, *l)
		}
	}
	p.lines = lines
	return typed
}

// Sent implements [lane.Passage].
func (p *passage) Sent(*lane.Conn, *lane.Reply) {
	p.Release()
	p.release()
}

// Discard implements [lane.Passage].
func (p *passage) Discard() {
	p.Passage.Discard()
	p.release()
}

func (p *passage) release() {
	p.editor = nil
	passagePool.Put(p)
}
