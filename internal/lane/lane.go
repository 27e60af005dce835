// Package lane is the fast lane: it sits in front of net/http on every
// HTTP/1.1 connection, answers what it already has as finished bytes, and lets
// everything else through untouched. The slow lane teaches it by Offer.
//
// The life of a hot request, in the order of the code:
//
//	loop          connections that nothing slow was asked of yet wait here (loop_linux.go)
//	Conn.Read     later net/http asks for bytes (conn.go); between requests the lane looks at them first
//	match         a strict subset of HTTP/1.1, or nothing (match.go)
//	table.find    site + path (+ query) + variant → finished answer (table.go)
//	response      its bytes with this second's Date, or 304 (response.go)
//	send.Socket   one system call (package send)
//
// What keeps it safe:
//
//   - There is one full HTTP parser in the product, net/http's. The lane can
//     only be less permissive: any doubt goes to net/http, byte for byte.
//   - The lane looks at bytes only while it knows that net/http holds none
//     (tracker.go); where it has lost count it stays out for good.
//   - No answer outlives its rule: an offer is filed under the site that the
//     request was answered by, and under a Version taken before its content was read.
//   - Time between requests is the lane's own: net/http has no timeouts here,
//     since it never hears of lane answers (sweep.go).
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

	"millrace/internal/accesslog"
	"millrace/internal/bytesize"
	"millrace/internal/epoll"
	"millrace/internal/lean"
	"millrace/internal/meter"
	"millrace/internal/realip"
	"millrace/internal/site"
	"millrace/internal/stall"
	"millrace/internal/trace"
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
	Write  time.Duration // an answer of which the client takes nothing
	Idle   time.Duration // between requests
	Log    *accesslog.Log
	// BodyRate is the least an upload may send, in bytes a second. 0: any
	// progress will do.
	BodyRate int64
	// WriteRate is the least a client may take of an answer that waits for it, in
	// bytes a second. 0: any progress will do.
	WriteRate int64
	Errors    *slog.Logger // nil: nothing is told
	// Clients finds who is behind a proxy, for the log. nil: nobody is.
	Clients *realip.Finder
	// Announced is told who begins a connection with a PROXY header, which should
	// not get here. nil: nobody is.
	Announced func(net.Addr)

	// Tracer says which requests' ids are taken over, for the log. nil: none.
	Tracer *trace.Tracer

	clientHeader headerID // what Clients reads
	idHeader     headerID // the field of ids; numKept: there are none that are known
}

// Scope is what one kind of listener serves: the plain ones, the TLS ones.
type Scope struct {
	// Sites is the routing table now in use.
	Sites atomic.Pointer[site.Table]
	// Secure is true behind TLS.
	Secure bool
	// Always are the fields that every answer has, in place of what the job says
	// in them: Alt-Svc (RFC 7838), Strict-Transport-Security (RFC 6797). Nil:
	// none. They may change only together with the numbers of the sites, under
	// which answers are filed. Nobody changes the header itself.
	Always atomic.Pointer[http.Header]
}

// always are the fields of Always.
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
	closing    atomic.Bool   // idle connections are closed soon
	lingerEnds atomic.Int64  // Unix nanoseconds; 0: not draining. From then on pipelines are cut short
	drain      chan struct{} // closed by Drain
	drainOnce  sync.Once     // closes it
	scopes     []*Scope
	serial     atomic.Uint32
	// handshakes is how many TLS connections there have been.
	handshakes atomic.Int64

	through *lean.Server    // nil: net/http has all that is not hot
	baseCtx context.Context // of its requests
	workers workerPool

	forwarder Forwarder     // nil: the loops pass nothing on
	forwarded atomic.Uint64 // requests that loops have passed on
	unsent    atomic.Int64  // bytes of answers that were passed on and that clients have not yet taken

	loops      []*loop
	loopsOnce  sync.Once                    // the loops, by the first loop-owned connection
	loopsDone  sync.WaitGroup               // the loops
	parker     atomic.Pointer[epoll.Parker] // nil: nothing is parked
	parkerOnce sync.Once                    // the parker, by the first connection that it may have
	leaving    sync.WaitGroup               // connections whose time on a loop has ended
	owned      ownedConns

	budget *stall.Budget // of streams; nil: they are not counted
	conns  [connShards]connSet
	stop   chan struct{}
	done   sync.WaitGroup
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
	s.idHeader = numKept
	l.settings.Store(&s)
	l.done.Add(1)
	go l.sweeper()
	return l
}

// Set changes the settings, for open connections too.
func (l *Lane) Set(s Settings) {
	if s.Clients != nil {
		s.clientHeader = lookupHeader([]byte(s.Clients.Header()))
	}
	s.idHeader = numKept
	if field := s.Tracer.Header(); field != "" {
		s.idHeader = lookupHeader([]byte(field))
	}
	l.settings.Store(&s)
}

// recoverPanic keeps a mistake on one connection from ending them all: it is closed,
// and the error log has the cause. Use it deferred.
func (c *Conn) recoverPanic() {
	if cause := recover(); cause != nil {
		c.closeAfterPanic(cause)
	}
}

// closeAfterPanic closes a connection after a mistake, and lets go of the answer that it
// still had to send.
func (c *Conn) closeAfterPanic(cause any) {
	if r := c.reading.pending; r != nil {
		c.reading.pending = nil
		if r.file != nil {
			r.file.answer.File.Release()
		}
		r.release()
	}
	_ = c.Close()
	if log := c.lane.settings.Load().Errors; log != nil {
		log.Error("a connection failed in the fast lane", "cause", cause, "stack", string(debug.Stack()))
	}
}

func (l *Lane) on() bool { return l.table != nil }

// Forget drops the answers of sites that no scope has any more.
func (l *Lane) Forget() {
	if l.on() {
		l.table.sweep(time.Now().Unix(), l.siteGone)
	}
}

func (l *Lane) siteGone(id uint64) bool {
	for _, s := range l.scopes {
		if t := s.Sites.Load(); t != nil && t.Has(id) {
			return false
		}
	}
	return true
}

// Close cuts every connection, waits for those that no net/http has, and drops
// every answer.
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
