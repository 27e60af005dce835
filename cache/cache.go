// Package cache puts a slow API behind memory: a shared cache as RFC 9111 has
// it, that asks the upstream once however many clients wait, serves stale
// answers while it refreshes or when the upstream fails, and forgets at once
// what is purged. It is a plain [http.Handler]; under millrace serve it also
// teaches the fast lane.
//
// A request's life: the settings for its path say whether it may be answered
// from here at all, and by which key (rules.go). The object that it selects is
// looked up in memory (memory.go, object.go) and served if it may be (serve.go).
// Else the request joins, or starts, the one journey for that key (fetch.go):
// to the slower tiers (tiers.go), then to the upstream. What comes back is
// judged by package rfc9111, and streams to everyone who waits while it is
// being stored. What may not be shared goes to the one who asked.
package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/cache/cors"
	"millrace/cache/fill"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/lane"
	"millrace/internal/meter"
	"millrace/internal/proxy"
	"millrace/internal/upstream"
	"millrace/store"
)

// Deps are what a handler works with beside its Options; the zero value works.
type Deps struct {
	// Shared is a store that several machines have in common, with Publish to
	// tell them of purges; nil: none. They stay the caller's.
	Shared  store.Store
	Publish func(ctx context.Context, message []byte) error
	// Disk is the tier on disk, which several handlers may share one after
	// another; it stays the caller's. nil with Options.Disk set: New opens one.
	Disk     store.Store
	Meters   *meter.Cache // nil: not counted
	ErrorLog *slog.Logger // nil: slog.Default()
	// Transport replaces the way to the upstream, in tests and other programs.
	Transport http.RoundTripper
}

// closeTime is how long Close waits for fills under way.
const closeTime = 5 * time.Second

// Handler is the cache. It must be closed.
type Handler struct {
	rules     *rulebook
	cors      *cors.Policy
	languages []string
	tags      []string // fields with purge tags, canonical
	hidden    []string // fields that are for this cache alone
	mark      string   // of the options that stored answers depend on: see storeKey
	largest   int64    // body that is kept
	inMemory  int64    // the largest of them that is kept in memory
	compress  bool

	proxy     *proxy.Handler
	transport http.RoundTripper
	pool      *upstream.Pool // nil when the transport is the caller's

	memory  *memory
	slow    tiers
	fills   fill.Group[outcome]
	passes  passes
	book    *purge.Book
	purged  lane.Generation // falls with every purge
	packer  packer
	shared  sharedLog
	journal journal

	meters   *meter.Cache
	recent   ring
	errorLog *slog.Logger

	base    context.Context // ends with Close: nothing goes on after it
	end     context.CancelFunc
	running sync.WaitGroup // fills, refreshes and workers
	refresh atomic.Int64   // refreshes under way
	close   sync.Once
}

// New opens the tiers and starts the upstream's health checks.
func New(o Options, d Deps) (*Handler, error) {
	for key, fault := range o.Check() { // any of them
		return nil, fmt.Errorf("cache: %s: %w", key, fault)
	}
	if d.ErrorLog == nil {
		d.ErrorLog = slog.Default()
	}
	if d.Meters == nil {
		d.Meters = new(meter.Cache)
	}
	h := &Handler{
		languages: o.Languages, compress: !o.NoCompress, transport: d.Transport,
		book: purge.New(maxPurges), meters: d.Meters, errorLog: d.ErrorLog, tags: tagFields(o.TagHeaders),
	}
	h.base, h.end = context.WithCancel(context.Background())
	if err := h.open(o, d); err != nil {
		return nil, errors.Join(fmt.Errorf("cache: %w", err), h.Close())
	}
	h.running.Go(h.packLoop)
	h.running.Go(h.keepLoop)
	if d.Publish != nil {
		h.running.Go(h.greet)
	}
	return h, nil
}

// open makes what can fail.
func (h *Handler) open(o Options, d Deps) (err error) {
	if h.rules, err = newRulebook(o); err != nil {
		return err
	}
	h.hidden = slices.Concat(h.tags, h.rules.base.policy.Hidden())
	if h.cors, err = cors.New(o.CORS); err != nil {
		return err
	}
	if err = h.openTiers(o, d); err != nil {
		return err
	}
	if h.transport == nil {
		if h.pool, err = upstream.New(o.Options.Options, d.ErrorLog); err != nil {
			return err
		}
		h.transport = h.pool
	}
	h.proxy, err = proxy.New(o.Options, h.transport, d.ErrorLog)
	return err
}

// Close waits a few seconds for fills under way, and closes the tiers.
func (h *Handler) Close() error {
	var errs []error
	h.close.Do(func() {
		done := make(chan struct{})
		cut := time.AfterFunc(closeTime, h.end)
		go func() { defer close(done); h.running.Wait() }() // ends with what it waits for, at the latest after closeTime
		h.packer.stop()
		h.slow.stop()
		<-done
		cut.Stop()
		h.end()
		if h.pool != nil {
			errs = append(errs, h.pool.Close())
		}
		errs = append(errs, h.slow.close(), h.journal.close())
		if h.memory != nil {
			h.memory.close()
		}
	})
	return errors.Join(errs...)
}

// exchange is one request on its way through the cache.
type exchange struct {
	h       *Handler
	w       http.ResponseWriter
	r       *http.Request
	began   time.Time
	set     *settings
	key     string
	demand  rfc9111.Demand
	private string    // why it bypasses the cache, "" when it does not
	mark    lane.Mark // of the key, and of all purges: taken before anything is looked up
	also    lane.Mark

	alone           bool   // what is stored has no say in it
	personal        bool   // it has credentials that are not in the key, and reach the upstream
	taken           func() // called when a leader holds its answer
	outcome, reason string // for the log
	status          int
}

// ServeHTTP answers from the cache or the upstream.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.proxy.Refuse(w, r) || h.cors.Preflight(w, r) {
		return
	}
	x := exchange{h: h, w: w, r: r, began: time.Now(), set: h.rules.forRequest(r.URL.Path), also: h.purged.Now()}
	defer func() { h.record(&x) }()
	if x.private = x.bypass(); x.private != "" {
		x.forward()
		return
	}
	x.key = x.set.key.Key(r, "")
	x.personal = x.set.personal(r)
	x.demand = x.set.policy.Demands(r.Header)
	x.mark = h.memory.gen(x.key).Now()
	// A journey may turn out to be someone else's: then the next turn starts
	// an own one. Two more are for races that are lost.
	var o *object
	for range 3 {
		var soft bool
		o, soft = h.lookup(&x)
		use := rfc9111.Miss
		if o != nil {
			use = o.facts.Use(x.demand, x.began, soft)
		}
		if use == rfc9111.Refresh {
			h.refreshLater(&x, o) // before the answer, which may take the client long to read
		}
		switch {
		case use == rfc9111.Serve && x.serve(o, "hit"), use == rfc9111.Refresh && x.serve(o, "stale"):
			return
		case x.demand.OnlyIfCached: // RFC 9111, 5.2.1.7
			x.refuse(http.StatusGatewayTimeout, "Nothing usable is stored, and the request asks for nothing else (only-if-cached).")
			return
		case x.fetch(o):
			return
		}
	}
	if !x.pass(o) {
		x.fail(errRaces)
	}
}

// errRaces is not seen but with a disk that forgets what it has just been given.
var errRaces = errors.New("what came from the upstream was gone before it could be sent, again and again")

// bypass says why a request is none of the cache's business, or "".
func (x *exchange) bypass() string {
	r := x.r
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return "method"
	case len(r.Header["Upgrade"]) > 0:
		return "upgrade"
	case r.ContentLength != 0:
		return "body" // no key says what it holds
	case len(r.Header["If-Match"]) > 0 || len(r.Header["If-Unmodified-Since"]) > 0:
		return "precondition" // for the origin alone to judge (RFC 9111, 4.3.2)
	case hopFields(r.Header["Connection"]):
		return "connection" // they do not reach the upstream, so its answer must not be filed under their values
	case x.set.bypass:
		return "rule"
	case x.set.cookies == secret && len(r.Header["Cookie"]) > 0:
		return "cookie"
	case x.set.auth == secret && len(r.Header["Authorization"]) > 0:
		return "authorization"
	}
	return ""
}

// lookup finds what is in memory for a request, and whether it has been purged
// softly. What has been purged for good is dropped on the way.
func (h *Handler) lookup(x *exchange) (o *object, soft bool) {
	for {
		if o = h.memory.get(x.key).find(x.r, h.languages); o == nil {
			return nil, false
		}
		switch h.state(o) {
		case purge.Gone:
			h.memory.drop(x.key, o)
		case purge.Stale:
			return o, true
		default:
			return o, false
		}
	}
}

// state asks the book what became of an object.
func (h *Handler) state(o *object) purge.State {
	before := purge.Time(o.checked.Load())
	checked := before
	state := h.book.State(&o.owner, &checked)
	if checked != before {
		o.checked.Store(uint64(checked))
	}
	return state
}
