package lane

import (
	"context"
	"net/http"
	"time"

	"millrace/internal/wire/h2"
)

// drainLinger is how long an idle connection stays open in a drain. A client that sends a
// series of requests sends the next one within it, and gets "Connection: close" with the
// answer instead of being cut off. A client of HTTP/2 may open streams for as long.
const drainLinger = time.Second

// Drain is DrainRequests, and also ends answers without an end, such as WebSockets and event
// streams, whose handlers watch the function Drain. It closes idle connections after
// drainLinger.
func (l *Lane) Drain() {
	l.DrainRequests()
	l.drainOnce.Do(func() { close(l.drain) })
	l.closing.Store(true)
	soon := time.Now().Add(drainLinger).UnixNano() | idleMark
	l.each(func(c *Conn) {
		// A connection without a deadline is being answered, and an upload has
		// its own.
		if d := c.deadline.Load(); d > soon && c.state.load() == stateReading {
			c.deadline.CompareAndSwap(d, soon)
		}
	})
}

// DrainRequests begins a drain: the next answer on every connection is its last and says
// "Connection: close", and clients of HTTP/2 get GOAWAY. Idle connections keep their usual
// timeout: a server of HTTP/1.1 that closes one cannot know whether a request is on its
// way, and the client may not repeat that (RFC 9112, 9.5).
func (l *Lane) DrainRequests() {
	if !l.draining.Swap(true) {
		l.lingerEnds.Store(time.Now().Add(drainLinger).UnixNano())
	}
	l.each(func(c *Conn) {
		if h2conn := c.h2conn.Load(); h2conn != nil {
			c.notifyDrain(h2conn)
		}
	})
}

// shutdownHTTP2 tells a client of HTTP/2 that the server drains. New streams are answered
// until drainLinger has passed since the drain began: they were on their way (RFC 9113,
// 6.8).
func (l *Lane) shutdownHTTP2(h2conn *h2.Conn) {
	if l.cutsShort(time.Now()) {
		h2conn.Shutdown()
	} else {
		h2conn.Warn()
	}
}

// LastAnswer reports whether the answer to r should close the connection.
func (l *Lane) LastAnswer(r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(*Conn)
	if ok && c.closeAfter {
		return true
	}
	return l.draining.Load() && (!ok || !c.pipelined || l.cutsShort(time.Now()))
}

// cutsShort reports whether the drain no longer answers pipelined requests: a client that
// never stops sending would delay it to its end. The client repeats elsewhere what was not
// answered (RFC 9112, 9.3.2).
func (l *Lane) cutsShort(now time.Time) bool {
	end := l.lingerEnds.Load()
	return end != 0 && now.UnixNano() > end
}

// Fault returns, in words for the client, why r must be refused with status 400 and its
// connection be closed: for instance because its Content-Length and its Transfer-Encoding
// contradict each other. Empty: nothing is wrong.
func Fault(r *http.Request) string {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		return string(c.fault)
	}
	return ""
}

// Draining reports whether Drain was called.
func (l *Lane) Draining() bool { return l.draining.Load() }

// EndInput says that no more of r's body will be read. The connection closes after the
// answer, without waiting for what the client has not sent yet. r's handler must call it
// before it returns.
func EndInput(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		c.closeAfter = true
		c.inputEnded.Store(true) // readActive, also as net/http's background read, looks at it
	}
}

type drainKey struct{}

// WithDrain is for http.Server.BaseContext: it returns a context in which the function
// Drain finds the lane, also over HTTP/2.
func (l *Lane) WithDrain(ctx context.Context) context.Context {
	return context.WithValue(ctx, drainKey{}, l)
}

// Drain returns a channel that is closed when r's server begins to drain; nil, which is
// never ready, where there is no such server. A handler whose answer has no end (an
// upgraded connection, an event stream) must end soon after: the drain waits for it, also
// for hijacked connections, until drain_timeout cuts them.
func Drain(r *http.Request) <-chan struct{} {
	if l, ok := r.Context().Value(drainKey{}).(*Lane); ok {
		return l.drain
	}
	return nil
}
