// Package dashboard shows a running server to its operator: one page with the key figures
// first, then what is wrong, what is asked for and by whom, how long it takes, and what the
// parts of the server do. Each panel of it can also be had as JSON and as CSV.
//
//	GET  /dashboard/               the page; it needs no scripts
//	GET  /dashboard/PANEL          one panel; by Accept, or with .json or .csv
//	                               behind it, as JSON or CSV
//	GET  /dashboard/all.json       all of them
//	GET  /dashboard/NAME           a page of its own ([Page]), which is made only then; as
//	                               JSON a list of its panels, as CSV the first
//	GET  /dashboard/events         changes, once a second (Server-Sent Events)
//	GET  /dashboard/profile.svg    the flame graph of the last CPU profile
//	POST /dashboard/do             purge, drain, maintenance or reload
//
// # Where the figures come from, and what they cost
//
// Requests, bytes and times are the counters that every request is counted in
// anyway (internal/observe/meter), read once a second by one goroutine ([Dashboard.Run]).
// Paths, clients and the log's tail come from accesslog.Recent, which looks at no
// more than some hundred requests a second. Everything else is asked of the server
// when a page is made, at most once a second for all who look ([maxWatchers]).
//
// Who may see it is decided by the listener (internal/ops/admin).
package dashboard

import (
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
)

// Prefix is where a Dashboard belongs: it gets the whole path.
const Prefix = "/dashboard/"

// Upstream is a server that is asked for a route.
type Upstream struct {
	Pool             string // all servers that are used together
	Address          string
	Healthy, Drained bool
	Open             bool // its circuit breaker
	Running, Streams int
	Waiting          int // requests in the pool's queue
	Latency          time.Duration
	Requests, Fails  uint64
}

// Certificate is that of a name, or was read from a file.
type Certificate struct {
	Name, Issuer, Error  string
	File                 string // empty: it comes by itself
	From, Until, Renewal time.Time
	Attempts, Failures   uint64
}

// Source is what is shown. Meters is required; functions may be nil, are called by
// one goroutine at a time, at most once a second, and must be quick.
type Source struct {
	Meters  *meter.Meters
	Recent  *accesslog.Recent
	Version string
	Started time.Time

	Gather       func() // sets gauges that are not kept up to date
	Upstreams    func() []Upstream
	Stores       func() []Store
	Certificates func() []Certificate
	Maintenance  func() (on bool, since time.Time)
	Draining     func() bool
	Addrs        func() []string
	// Warning is what is wrong with the listener; empty: nothing.
	Warning func() string
	// Unread is why the last reload failed; empty if it did not.
	Unread func() string
	// Troubles are what is wrong with what the meters do not count.
	Troubles func() []Trouble
	// Panels are more of them, of others.
	Panels func() []Panel
	// Pages have addresses of their own. They are asked for what they show by several
	// goroutines at a time.
	Pages []Page
}

// Trouble is something that is wrong, as a sentence without its full stop, and what to do
// about it. What a person types stands between backticks.
type Trouble struct {
	Level    Level
	What, Do string
}

// Page is a page of its own. What it shows is made when somebody looks at it, since it would
// be too much for every second.
type Page struct {
	ID, Title string
	Beside    string // the panel that names the page
	Filter    string // what its field for a text means
	Panels    func(ctx context.Context, query url.Values) []Panel
}

// Actions are what the page has buttons for. One that is nil has none.
type Actions struct {
	// Purge forgets a URL, what a pattern with stars matches, or ("*") everything.
	Purge func(ctx context.Context, what string) error
	Drain func(pool, address string, on bool) error

	Maintenance func(on bool) error
	Reload      func() error
}

// Dashboard is the handler. It works from Run on.
type Dashboard struct {
	source  Source
	actions Actions
	errors  *slog.Logger
	secret  string // in forms: a page of another origin cannot know it
	mux     *http.ServeMux
	pages   func() *template.Template

	profiles Profiles
	watchers watchers
	acting   sync.Mutex // one action at a time

	mu       sync.Mutex
	recorder *recorder
	built    []Panel      // of
	at       time.Time    // this moment
	done     []pastAction // the last ones, the youngest first
}

// New makes a dashboard. What its buttons do is logged to errors.
func New(s Source, a Actions, errors *slog.Logger) *Dashboard {
	d := &Dashboard{source: s, actions: a, errors: errors, secret: newSecret()}
	d.watchers.init()
	d.mux = d.routes()
	d.pages = sync.OnceValue(d.parsePages)
	return d
}

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// Run reads the counters once a second, as long as there are clients, until ctx ends.
func (d *Dashboard) Run(ctx context.Context) {
	defer d.watchers.close()
	d.mu.Lock()
	d.recorder = newRecorder(d.source.Meters, time.Now())
	d.mu.Unlock()
	d.source.Meters.Clients.Keep(ctx.Done(), meter.Upkeep{
		Every: func() time.Duration { return time.Second },
		Turn: func(now time.Time) (more bool) {
			d.mu.Lock()
			d.recorder.record(now)
			d.mu.Unlock()
			if d.watchers.any() {
				d.watchers.send(d.render(d.panels()))
			}
			return false
		},
	})
}

// panels are all there are, made anew at most once a second.
func (d *Dashboard) panels() []Panel {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.recorder == nil { // Run has not begun
		d.recorder = newRecorder(d.source.Meters, now)
	}
	if now.Sub(d.recorder.last.at) > 2*time.Second { // Run sleeps
		d.recorder.record(now)
	}
	if d.built == nil || !d.at.Equal(d.recorder.last.at) || now.Sub(d.at) > 2*time.Second {
		d.built, d.at = d.build(now), d.recorder.last.at
	}
	return d.built
}

// stale has the next page made anew: something has been done.
func (d *Dashboard) stale() {
	d.mu.Lock()
	d.built = nil
	d.mu.Unlock()
}

// Profiled keeps a CPU profile of this process, in pprof's format.
func (d *Dashboard) Profiled(profile []byte) error {
	defer d.stale()
	return d.profiles.Add(profile, time.Now())
}
