package lane

import (
	"context"
	"net/http"
	"time"

	"millrace/internal/h2"
)

// drainLinger is how long an idle connection stays open in a drain: a client
// in the middle of an exchange sends its next request within it, and is then told "Connection:
// close" instead of being cut. For as long a client of HTTP/2 may still open streams.
const drainLinger = time.Second

// Drain is DrainRequests, and ends what has no end: WebSockets and streams of
// events, which look at the function Drain. Connections on which nothing comes
// any more are closed.
func (l *Lane) Drain() {
	l.DrainRequests()
	l.drainOnce.Do(func() { close(l.drain) })
	l.closing.Store(true)
	soon := time.Now().Add(drainLinger).UnixNano() | idleMark
	l.each(func(c *Conn) {
		// Only deadlines that are there are moved: a connection without
		// one is being answered, and an upload has its own.
		if d := c.deadline.Load(); d > soon && c.state.load() == stateReading {
			c.deadline.CompareAndSwap(d, soon)
		}
	})
}

// DrainRequests begins the end: the next answer on every connection is its last
// and says "Connection: close", and clients of HTTP/2 get GOAWAY. Idle connections
// stay open for as long as they always do: in HTTP/1.1 a server that closes one
// cannot know whether a request is on its way, which its client may not repeat
// (RFC 9112, 9.5).
func (l *Lane) DrainRequests() {
	if !l.draining.Swap(true) {
		l.lingerEnds.Store(time.Now().Add(drainLinger).UnixNano())
	}
	l.each(func(c *Conn) {
		if front := c.h2conn.Load(); front != nil {
			c.notifyDrain(front)
		}
	})
}

// shutdownHTTP2 tells a client of HTTP/2 that the server drains. Its streams are
// answered for drainLinger from the beginning of the drain: those that were on
// their way (RFC 9113, 6.8).
func (l *Lane) shutdownHTTP2(front *h2.Conn) {
	if l.cutsShort(time.Now()) {
		front.Shutdown()
	} else {
		front.Warn()
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

// cutsShort reports whether the drain no longer answers what a client has sent
// after the request at hand: one that never stops would hold it up to the end.
// The client asks elsewhere what was not answered (RFC 9112, 9.3.2).
func (l *Lane) cutsShort(now time.Time) bool {
	end := l.lingerEnds.Load()
	return end != 0 && now.UnixNano() > end
}

// Fault says, in words for the client, why r must be refused with status 400 and
// its connection be closed: the fields that say where it ends contradict each
// other. Empty means that nothing is wrong.
func Fault(r *http.Request) string {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		return string(c.fault)
	}
	return ""
}

// Draining reports whether Drain was called.
func (l *Lane) Draining() bool { return l.draining.Load() }

// EndInput says that nothing more will be read on r's connection, which closes
// after the answer: nobody waits for what the client has not sent yet. r's handler
// must call it itself, before it returns.
func EndInput(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		c.closeAfter = true
		c.inputEnded.Store(true) // net/http's background read looks at it
	}
}

type drainKey struct{}

// WithDrain is for http.Server.BaseContext: it lets the function Drain find the lane,
// over HTTP/2 as well.
func (l *Lane) WithDrain(ctx context.Context) context.Context {
	return context.WithValue(ctx, drainKey{}, l)
}

// Drain returns a channel that is closed when the server that r came to begins
// to drain; nil, which is never ready, where there is no such server. A handler
// whose answer has no end (an upgraded connection, a stream of events) must end
// soon after: the drain waits for it, also for connections that were hijacked,
// until drain_timeout cuts them.
func Drain(r *http.Request) <-chan struct{} {
	if l, ok := r.Context().Value(drainKey{}).(*Lane); ok {
		return l.drain
	}
	return nil
}
