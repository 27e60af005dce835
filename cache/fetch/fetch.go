// Package fetch gets an answer for a key, once however many wait: from the slower
// tiers, else from the upstream. It decides whether what has come is for everyone
// or for the one who asked, streams it to all who wait, and stores it.
//
// The life of a fetch: [Fetcher.Join] leads a request to the fetch of its key, or
// makes it the leader of a new one. The leader calls [Fetcher.New], reads there
// the number that all it will store carries, and [Fetch.Start] (run.go). The
// fetch asks (request.go), and what the answer is becomes its [Outcome]: a body
// that grows (grow.go) and is stored when it is whole (store.go), an object that
// was stored, a failure; or [Outcome.Private]: then the leader takes the answer
// from [Fetch.Answer], and everyone else asks for themselves.
package fetch

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/cache/fill"
	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/cache/rules"
	"millrace/cache/tier"
	"millrace/internal/access/signin"
	"millrace/internal/observe/meter"
	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/proxy"
)

const (
	// Linger is how long a fetch goes on after its last client has left: most
	// clients that leave come back for the same answer.
	Linger = 30 * time.Second
	// limit is the longest that a fetch may take.
	limit = time.Hour
	// maxRefreshes bounds the refreshes in the background; beyond it stale
	// answers are served without one, and a later request tries again.
	maxRefreshes = 256
	// maxHints bounds the interim answers of one request that wait to be
	// passed on (RFC 8297).
	maxHints = 8
)

// ErrClosed is the cause where Close came before an answer.
var ErrClosed = errors.New("the cache is being closed")

// Config is what a Fetcher works with.
type Config struct {
	Proxy        *proxy.Handler // says what was asked for, and makes what is sent
	Upstream     upstream.Doer
	Rules        *rules.Rules
	Tiers        *tier.Tiers
	Purges       *purge.Purger
	Leases       Leases           // of the machines that share a store; nil: each asks for itself
	Languages    []string         // see rfc9111.Normal
	Tags         []string         // fields of an answer with purge tags, canonical
	Hidden       []string         // fields that no client gets, those among them
	Dictionaries dictionary.Rules // paths whose answers are dictionaries for each other
	CORS         bool             // the cache decides who may read, and not the upstream
	Name         string           // of this cache, for the upstream
	Meters       *meter.Cache
	ErrorLog     *slog.Logger
	Context      context.Context // ends every fetch
	Start        func(func())    // begins a goroutine that the owner waits for
}

// Fetcher leads all requests for a key to one fetch.
type Fetcher struct {
	c         Config
	fills     fill.Group[Outcome]
	passes    passes
	refreshes atomic.Int64 // under way
}

// NewFetcher makes a Fetcher.
func NewFetcher(c Config) *Fetcher { return &Fetcher{c: c} }

// Request is what a fetch is for: the leader's request, which outlives its client.
type Request struct {
	Head         *message.Request
	Proof        signin.Proof    // for which a gate has admitted it
	Scheme, Host string          // that were asked for
	Gone         <-chan struct{} // closed when the leader's client has left; nil: that is not known

	Settings *rules.Settings
	Demand   rfc9111.Demand
	Key      string
	Personal bool // it has credentials that are not in the key, and reach the upstream

	Trace *trace.Request // of the client who waits; nil: nobody follows it
	Marks []field.Line   // of the trace, where only an event loop knows it
}

// passKey is the key under which it is remembered that an answer was not to be shared.
// Requests with credentials have one of their own, since answers to them are often
// private where those to others are not.
func passKey(key string, personal bool) string {
	if personal {
		return key + "\x00personal"
	}
	return key
}

// Outcome is what a fetch has led to. It is known with the header of the answer.
type Outcome struct {
	Object   *object.Object // what to answer with; its body is in it, or
	Body     *fill.Body     // still growing
	How      string         // miss, validated, disk, shared
	Status   int            // of the upstream's answer
	Aged     bool           // that came from another cache, and says so
	Withheld field.Lines    // fields that must not be kept, for the leader alone
	Reason   string         // why it will not be stored; "" when it will
	Err      error          // the upstream's failure
	Private  bool           // for the one who asked alone: everyone else asks anew
}

// Fetch is one fetch on behalf of all who wait for a key.
type Fetch struct {
	Request
	c       *Config
	fetcher *Fetcher
	fill    *fill.Fill[Outcome]
	pass    bool             // alone, and as the client sent it
	stored  []*object.Object // what may be validated
	at      purge.Time       // read before the request leaves

	out     *upstream.Request // to the upstream
	sent    time.Time         // when it left
	started *proxy.RoundTrip  // what a loop has started, for the goroutine; nil: nothing
	lease   *lease            // keeps other machines from asking; nil: it does not

	// Between the leader and the goroutine, from Start on.
	over   chan struct{}         // closed when the fetch has ended
	taken  chan struct{}         // closed when the leader reads the answer, or will not
	answer chan *upstream.Answer // to the leader, unbuffered
	hints  chan Hint             // to the leader
	take   sync.Once
}

// Hint is an interim answer (RFC 9110, 15.2), for the leader's client.
type Hint struct {
	Status int
	Fields field.Lines
}

// URL is the URL of the request as its client, and a purge, names it.
func (q *Request) URL() string { return q.Scheme + "://" + q.Host + q.Head.URI() }

// Running is the number of fetches under way.
func (f *Fetcher) Running() int { return f.fills.Running() }

// Passes reports whether the last answer to such a request was not to be shared
// (hit-for-miss): then nobody should wait for another's.
func (f *Fetcher) Passes(q *Request) bool {
	return f.passes.has(passKey(q.Key, false)) || q.Personal && f.passes.has(passKey(q.Key, true))
}

// Join returns the fill of the fetch that is under way for a request, or a new
// one, which the caller has to lead.
func (f *Fetcher) Join(q *Request) (fl *fill.Fill[Outcome], leader bool) {
	return f.fills.Join(f.fillKey(q))
}

// fillKey is the cache key, with the values of the fields that its answers are known
// to vary by: a request that will get another answer must not wait for this one.
func (f *Fetcher) fillKey(q *Request) string {
	s := f.c.Tiers.Look(q.Key)
	if s == nil || len(s.Objects[0].Vary) == 0 {
		return q.Key
	}
	var b strings.Builder
	b.WriteString(q.Key)
	for _, name := range s.Objects[0].Vary {
		b.WriteByte(0)
		b.WriteString(strconv.Quote(rfc9111.Normal(name, q.Head.Fields, f.c.Languages)))
	}
	return b.String()
}

// New prepares the fetch of a fill that the caller leads. o is what is stored for
// the request, nil for nothing.
func (f *Fetcher) New(fl *fill.Fill[Outcome], q *Request, o *object.Object) *Fetch {
	t := f.prepare(fl, q)
	t.stored = f.c.Tiers.Look(q.Key).Living(f.c.Purges.Index(), o)
	return t
}

// NewPass prepares a fetch that nobody joins. The caller owes its fill a Leave.
func (f *Fetcher) NewPass(q *Request) (fl *fill.Fill[Outcome], t *Fetch) {
	fl, _ = f.fills.Join(q.Key + "\x00alone " + strconv.FormatUint(f.passes.serial.Add(1), 10))
	fl.Enter()
	t = f.prepare(fl, q)
	t.pass = true
	return fl, t
}

func (f *Fetcher) prepare(fl *fill.Fill[Outcome], q *Request) *Fetch {
	return &Fetch{Request: *q, c: &f.c, fetcher: f, fill: fl, at: f.c.Purges.Index().Now()}
}

// Refresh fetches in the background what is stored and stale, unless a fetch for it is
// under way.
func (f *Fetcher) Refresh(q Request, o *object.Object) {
	if f.refreshes.Add(1) > maxRefreshes {
		f.refreshes.Add(-1)
		return
	}
	fl, leader := f.Join(&q)
	if !leader || !fl.Enter() {
		f.refreshes.Add(-1)
		return
	}
	f.c.Meters.Refreshed.Add(0, 1)
	q.Head = q.Head.Clone()
	q.Head.Method, q.Trace, q.Gone = http.MethodGet, nil, gone() // whoever came is not waited for; an answer for one alone is for nobody
	t := f.New(fl, &q, o)
	t.open()
	f.c.Start(func() {
		defer f.refreshes.Add(-1)
		defer fl.Leave()
		t.run()
	})
}

// Start begins the fetch, which goes on without its leader.
func (t *Fetch) Start() {
	t.open()
	t.c.Start(t.run)
}

// open makes the channels. A fetch that an event loop drives to its end needs none.
func (t *Fetch) open() {
	t.over, t.taken = make(chan struct{}), make(chan struct{})
	t.answer, t.hints = make(chan *upstream.Answer), make(chan Hint, maxHints)
}

// Wait returns the outcome, or ctx's error, or fill.ErrBroken.
func (t *Fetch) Wait(ctx context.Context) (Outcome, error) { return t.fill.Wait(ctx) }

// Hints are the interim answers, for the leader.
func (t *Fetch) Hints() <-chan Hint { return t.hints }

// Answer delivers to the leader an answer that is for its client alone. Whoever
// receives it closes its body and calls Finish.
func (t *Fetch) Answer() <-chan *upstream.Answer { return t.answer }

// Over is closed when the fetch has ended.
func (t *Fetch) Over() <-chan struct{} { return t.over }

// Take says, after Start, that the leader reads the answer, or never will. It may be
// called again.
func (t *Fetch) Take() { t.take.Do(func() { close(t.taken) }) }

// Finish ends a fetch whose answer its leader has taken.
func (t *Fetch) Finish() { t.fill.Finish() }

// Pass reports whether the fetch is for its leader alone, with the client's request as
// it came.
func (t *Fetch) Pass() bool { return t.pass }
