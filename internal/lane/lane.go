// Package lane is the fast lane: it reads every connection before net/http does.
// It answers a request by itself where it keeps the finished answer, as for
// "GET /logo.png" a moment after it was first asked for; such a request is called
// hot. Every other request it hands off unchanged. Jobs fill it by Offer.
//
// The way of a hot request, in the order of the code:
//
//	loop          serves connections on which only hot requests have come (loop_linux.go)
//	Conn.Read     serves those that net/http has: it calls Read, and the lane looks first (conn.go)
//	match         parses a strict subset of HTTP/1.1; anything else is not hot (match.go)
//	table.find    site + path (+ query) + variant → finished answer (table.go)
//	choose        all of the answer, a part of it, or 304 in its place (choice.go)
//	response      the answer's bytes with this second's Date (response.go)
//	send.Socket   one system call (package send)
//
// A request that is not hot goes one of three ways. A loop forwards it to an upstream
// (carry_linux.go). A worker or the connection's goroutine calls the handler without
// net/http (through.go). Or net/http serves it.
//
// What keeps it safe:
//
//   - There is one full HTTP parser in the product, net/http's. The lane can
//     only be less permissive: any doubt goes to net/http, byte for byte.
//   - The lane reads requests only while it knows that net/http holds no byte of
//     an unfinished one (tracker.go). On a connection where it has lost count it
//     leaves all requests to net/http.
//   - A header field that the lane does not keep matters to answers that name it
//     (demands in table.go): requests that have it are not hot for them.
//   - No answer outlives its rule: an offer is stored under the site that has
//     answered the request, with a Version taken before its content was read.
//   - The lane has all timeouts: net/http cannot, as it does not see the requests
//     that the lane answers (sweep.go).
package lane

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
	"millrace/internal/observe/trace"
	"millrace/internal/route/site"
	"millrace/internal/wire/epoll"
	"millrace/internal/wire/lean"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/stall"
)

// DefaultMemory is the budget for finished answers, in bytes, when Options name none.
const DefaultMemory = 64 << 20

// Options of the fast lane. The zero value is on, with the default budget.
type Options struct {
	// Off sends every request through net/http.
	Off bool `yaml:"off"`
	// Memory is how many bytes of finished answers are kept. Default 64MiB.
	Memory bytesize.Size `yaml:"memory"`
}

// Settings may change while the lane runs.
type Settings struct {
	Header time.Duration // from a request's first byte to the end of its head
	Body   time.Duration // how far an upload may be behind BodyRate
	Write  time.Duration // for how long the client may take nothing of an answer
	Idle   time.Duration // between requests
	Log    *accesslog.Log
	// BodyRate is the least an upload may send, in bytes a second. 0: any
	// progress will do.
	BodyRate int64
	// WriteRate is the least a client may take of an answer that waits for it, in
	// bytes a second. 0: any progress will do.
	WriteRate int64
	Errors    *slog.Logger // nil: errors are not logged
	// Clients finds the address of a client behind a trusted proxy, for the log.
	// nil: the connection's other end is the client.
	Clients *netset.Finder
	// Announced is called with the peer of a connection that begins with a PROXY
	// header where none is expected. nil: nothing is called.
	Announced func(net.Addr)

	// Tracer says from which requests an id is taken over, for the log. nil: none.
	Tracer *trace.Tracer

	clientHeader headerID // the field that Clients reads; hdrRefuse: none, or it is in unkept
	idHeader     headerID // the field with a request's id, likewise
	unkept       []string // fields whose values the lane does not keep: a request that has one is not hot
}

// Scope is what one kind of listener serves: the plain ones, the TLS ones.
type Scope struct {
	// Sites is the routing table now in use.
	Sites atomic.Pointer[site.Table]
	// Secure is true behind TLS.
	Secure bool
	// Always has fields that replace the job's in every answer, such as Alt-Svc
	// (RFC 7838) and Strict-Transport-Security (RFC 6797). Nil: none. Store another
	// header only together with new site numbers, as answers are stored under these
	// with the fields in them. Never change a header that was stored.
	Always atomic.Pointer[http.Header]
}

// always returns the header of Always, nil for none.
func (s *Scope) always() http.Header {
	if p := s.Always.Load(); p != nil {
		return *p
	}
	return nil
}

// Lane is shared by all connections of a server.
type Lane struct {
	table      *table // nil when off
	meters     *meter.Meters
	settings   atomic.Pointer[Settings]
	draining   atomic.Bool
	closing    atomic.Bool   // idle connections are closed after drainLinger
	lingerEnds atomic.Int64  // Unix nanoseconds from which pipelines are cut short; 0: not draining
	drain      chan struct{} // closed by Drain
	drainOnce  sync.Once     // closes it
	scopes     []*Scope
	serial     atomic.Uint32
	handshakes atomic.Int64 // TLS connections so far

	through *lean.Server    // serves simple requests that are not hot; nil: net/http does
	baseCtx context.Context // of its requests
	workers workerPool

	forwarder Forwarder     // nil: the loops forward nothing
	forwarded atomic.Uint64 // requests that loops have forwarded
	unsent    atomic.Int64  // bytes of upstreams' answers that loops buffer for their clients

	loops      []*loop
	loopsOnce  sync.Once                    // starts the loops, with the first connection for them
	loopsDone  sync.WaitGroup               // ends with the loops
	parker     atomic.Pointer[epoll.Parker] // nil: no connection was parked yet
	parkerOnce sync.Once                    // starts the parker, with the first connection for it
	leaving    sync.WaitGroup               // goroutines of connections that have left their loop
	owned      ownedConns

	budget *stall.Budget // of streams; nil: they are not counted
	conns  [connShards]connSet
	stop   chan struct{}  // closed to end the sweeper
	done   sync.WaitGroup // the sweeper, the parker, and what they have started
}

// New returns a lane and starts its sweeper, which Close ends.
func New(o Options, s Settings, scopes []*Scope, m *meter.Meters) *Lane {
	l := &Lane{meters: m, scopes: scopes, stop: make(chan struct{}), drain: make(chan struct{})}
	if !o.Off {
		budget := int64(o.Memory)
		if budget <= 0 {
			budget = DefaultMemory
		}
		l.table = newTable(budget, m)
	}
	for i := range l.conns {
		l.conns[i].conns = map[*Conn]struct{}{}
	}
	l.Set(s)
	l.done.Add(1)
	go l.sweeper()
	return l
}

// Set changes the settings, for open connections too.
func (l *Lane) Set(s Settings) {
	s.watch()
	l.settings.Store(&s)
}

// recoverPanic closes the connection after a panic, which is logged: a mistake with one
// connection must not end the process. Use it deferred.
func (c *Conn) recoverPanic() {
	if cause := recover(); cause != nil {
		c.closeAfterPanic(cause)
	}
}

// closeAfterPanic closes the connection, releases the answer that it was sending, and
// logs the cause.
func (c *Conn) closeAfterPanic(cause any) {
	if r := c.reading.pending; r != nil {
		c.reading.pending = nil
		if r.file.of != nil {
			r.file.of.answer.File.Release()
		}
		r.release()
	}
	_ = c.Close()
	if log := c.lane.settings.Load().Errors; log != nil {
		log.Error("a connection failed in the fast lane", "cause", cause, "stack", string(debug.Stack()))
	}
}

func (l *Lane) on() bool { return l.table != nil }

// Forget drops the answers of sites that are in no scope's routing table any more.
func (l *Lane) Forget() {
	if l.on() {
		l.table.sweep(time.Now().Unix(), l.siteGone)
	}
}

// siteGone reports whether no scope's routing table has the site.
func (l *Lane) siteGone(id uint64) bool {
	for _, s := range l.scopes {
		if t := s.Sites.Load(); t != nil && t.Has(id) {
			return false
		}
	}
	return true
}

// Close cuts every connection, waits until those that net/http does not have are
// closed, and drops every answer.
func (l *Lane) Close() {
	l.CloseAll()
	l.stopLoops()
	l.workers.close()
	l.CloseAll() // those that have just left their loop
	l.leaving.Wait()
	close(l.stop)
	l.parkerOnce.Do(func() {}) // from here on there is none
	l.parker.Load().Close()
	l.done.Wait()
	if l.on() {
		l.table.close()
	}
}
