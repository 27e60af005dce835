package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"millrace/internal/observe/trace"
)

// errSpeaksHTTP2 is not a failure: the server has chosen HTTP/2, which is left to
// net/http.
var errSpeaksHTTP2 = errors.New("it chose HTTP/2")

// client keeps the connections of HTTP/1.1 to one server. No goroutine belongs
// to any of them; the one timer closes those that were idle for too long.
type client struct {
	way     *connector
	tls     *tls.Config // offers HTTP/2 as well; nil: not over TLS
	server  *server
	started time.Time // the pool's clock
	keep    time.Duration
	most    int

	mu    sync.Mutex
	idle  []*wire   // the oldest first
	lines [][]*line // the same of each loop
	lined int       // how many lines there are
	newcomers
	timer  *time.Timer
	closed bool
}

func newClient(s *server, o Options, started time.Time) *client {
	c := &client{way: s.way, server: s, started: started, keep: o.IdleTimeout, most: o.IdleConnections}
	if s.way.overTLS != nil {
		c.tls = s.way.overTLS.Clone()
		c.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	if o.ProxyProtocol != "" { // it carries one client's request, and HTTP/2 many
		c.most = 0
		if c.tls != nil {
			c.tls.NextProtos = []string{"http/1.1"}
		}
	}
	return c
}

// takeIdle takes the connection that was used last, since it is the least likely to
// have been closed by the server meanwhile; nil: none is idle.
func (c *client) takeIdle(now time.Duration) *wire {
	c.mu.Lock()
	n := len(c.idle) - 1
	if n < 0 {
		c.mu.Unlock()
		return nil
	}
	w := c.idle[n]
	c.idle[n] = nil
	c.idle = c.idle[:n]
	c.mu.Unlock()
	if now-w.since >= c.keep {
		c.giveUp(w)
		return nil // the others are older still: the timer closes them
	}
	return w
}

// put keeps a connection whose answer is complete, with no bytes after it.
func (c *client) put(w *wire, now time.Duration) {
	c.mu.Lock()
	if !c.keeps(w.newcomer, now, w.since) {
		c.mu.Unlock()
		w.close()
		return
	}
	w.since = now
	c.idle = append(c.idle, w)
	if c.timer == nil {
		c.timer = time.AfterFunc(c.keep, c.expire)
	}
	c.arm(now)
	c.mu.Unlock()
}

// keeps reports, with c.mu held, whether a connection that is free now is kept open.
// free is when it was free before; for one that no request has used yet, that is the
// same moment, and it does not give way to others.
func (c *client) keeps(n *newcomer, now, free time.Duration) bool {
	c.newcomers.remove(n)
	return !c.closed && len(c.idle)+c.lined < c.most && !c.givesWay(now, free, n.had)
}

// putPreconnected puts a connection into the pool that no request has used. From now
// on the server may end it, like one that was used.
func (c *client) putPreconnected(w *wire, now time.Duration) {
	w.uses = max(w.uses, 1)
	c.put(w, now)
}

// expire closes connections that were idle for too long.
func (c *client) expire() {
	now := time.Since(c.started)
	c.mu.Lock()
	n := 0
	for n < len(c.idle) && now-c.idle[n].since >= c.keep {
		n++
	}
	old := append([]*wire(nil), c.idle[:n]...)
	rest := copy(c.idle, c.idle[n:])
	clear(c.idle[rest:])
	c.idle = c.idle[:rest]
	lines, oldest := c.oldLines(now)
	if rest > 0 {
		oldest = min(oldest, c.idle[0].since)
	}
	switch {
	case c.closed:
	case rest+c.lined == 0:
		c.timer = nil
	default:
		c.timer.Reset(max(c.keep-(now-oldest), time.Millisecond))
	}
	c.mu.Unlock()
	for _, l := range lines {
		c.giveUpLine(l)
	}
	for _, w := range old {
		c.giveUp(w)
	}
}

// giveUp closes an idle connection, and reports it if the server has sent bytes on it
// without a request.
func (c *client) giveUp(w *wire) {
	if w.look() == unsolicited {
		w.reportUnsolicited(c.server)
	}
	w.close()
}

// closeIdle closes the idle connections.
func (c *client) closeIdle() {
	c.mu.Lock()
	old, lines := c.idle, c.allLines()
	c.idle = nil
	c.mu.Unlock()
	for _, l := range lines {
		l.close()
	}
	for _, w := range old {
		w.close()
	}
}

// close closes the idle connections, and those that become idle later.
func (c *client) close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.newcomers.timer != nil {
		c.newcomers.timer.Stop()
	}
	c.mu.Unlock()
	c.closeIdle()
}

// dial makes a connection, on which first is sent before anything else. One that switches
// protocols is not offered HTTP/2, which cannot (RFC 9113, 8.6). The error is a
// [dialError], that of a handshake, or errSpeaksHTTP2.
func (c *client) dial(ctx context.Context, first []byte, switches bool) (w *wire, err error) {
	step := trace.Begin(ctx, trace.Connect)
	defer func() {
		if errors.Is(err, errSpeaksHTTP2) {
			step.End(c.way.target, nil)
		} else {
			step.End(c.way.target, err)
		}
	}()
	began := time.Now()
	nc, err := c.way.connect(ctx, "tcp", c.way.target, first)
	if err != nil {
		return nil, err
	}
	w = newWire(nc)
	w.newcomer = &newcomer{client: c, connecting: time.Since(began)}
	w.newcomer.begin() // servers whose workers are all taken do not even speak TLS
	config := c.tls
	if config == nil {
		return w, nil
	}
	if switches {
		if w.net, err = c.way.secure(ctx, nc); err != nil {
			w.newcomer.end()
			return nil, err
		}
		w.raw = nil
		return w, nil
	}
	protocol, err := w.secure(ctx, c.way.timeout, config)
	if err == nil && protocol == "h2" {
		err = errSpeaksHTTP2
	}
	if err != nil {
		w.newcomer.end()
		w.close()
		return nil, err
	}
	return w, nil
}
