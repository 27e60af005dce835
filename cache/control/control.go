// Package control is how commands (millrace cache purge, explain, log) talk to
// the caches of a running server: a few JSON calls below /cache/ on its admin
// listener, and a client for them. Who may call is decided by the listener; it
// asks for no password.
//
//	POST /cache/purge    what to purge, and optionally the route, and how long to wait for the
//	                     other machines; 503 with "problems" when it holds here, but they
//	                     have not been told, or not all have it
//	GET  /cache/explain  what would happen to a request: url, method, header (repeatable)
//	GET  /cache/recent   the latest decisions: filter, n, route
//	GET  /cache/stats    the counters of each route
//
// Errors are answered as {"error": "…"} with what to do about it.
package control

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/cache"
	"millrace/cache/purge"
	"millrace/internal/observe/meter"
)

// Prefix is where a Handler belongs: it gets the whole path.
const Prefix = "/cache/"

const (
	// maxBody is the longest request for a purge: a URL of 8 KiB, escaped as
	// JSON may, and room.
	maxBody = 64 << 10

	// defaultRecent and maxRecent bound an answer of /cache/recent.
	defaultRecent = 50
	maxRecent     = 10_000

	// maxFields bounds the header of a request to explain.
	maxFields = 100
)

// Cache is what the handler asks of a cache: *cache.Handler is one.
type Cache interface {
	Purge(ctx context.Context, s purge.Selector) error
	Announce(ctx context.Context, s purge.Selector) (await func(context.Context) error, err error)
	Explain(r *http.Request) cache.Explanation
	Recent(filter string, most int) []cache.Decision
}

// Purge asks for a purge.
type Purge struct {
	purge.Selector
	// Route is the pattern of the only route to purge; empty: every one.
	Route string `json:"route,omitempty"`
	// Wait is how long to wait until all machines have it, like 10s; empty: not at all.
	Wait string `json:"wait,omitempty"`
}

// maxWait is below the time that the admin listener has for an answer.
const maxWait = 50 * time.Second

// wait is Wait as a duration.
func (p Purge) wait() (time.Duration, error) {
	if p.Wait == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(p.Wait)
	if err != nil || d <= 0 || d > maxWait {
		return 0, bad("wait is %q, but must be a time like 10s, of at most %v", p.Wait, maxWait)
	}
	return d, nil
}

// Purged says what a purge has done. It has taken effect on this server
// whatever Problems say.
type Purged struct {
	Routes   []string  `json:"routes"`
	Problems []Problem `json:"problems,omitempty"`
}

// status is 503 when there are problems, so that a script that looks at nothing
// else sees them (curl --fail).
func (p Purged) status() int {
	if len(p.Problems) > 0 {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// Problem is a route whose purge other machines may not have heard of.
type Problem struct {
	Route string `json:"route"`
	Error string `json:"error"`
	// Missing are the machines that do not have it after Wait, each with what is known.
	Missing []string `json:"missing,omitempty"`
}

// Explanation is a cache's, and the route it belongs to.
type Explanation struct {
	Route string `json:"route"`
	cache.Explanation
}

// Decision is a cache's, and the route it belongs to.
type Decision struct {
	Route string `json:"route"`
	cache.Decision
}

// Stats are the counters of a route's cache since the start of the server, and
// what it holds now.
type Stats struct {
	Route         string            `json:"route"`
	Hit           uint64            `json:"hit"`
	Stale         uint64            `json:"stale"`
	Coalesced     uint64            `json:"coalesced"`
	Miss          uint64            `json:"miss"`
	Validated     uint64            `json:"validated"`
	Pass          uint64            `json:"pass"`
	Bypass        uint64            `json:"bypass"`
	Error         uint64            `json:"error"`
	Refreshed     uint64            `json:"refreshed"`
	Purges        uint64            `json:"purges"`
	Evicted       uint64            `json:"evicted"`
	UpstreamBytes uint64            `json:"upstream_bytes"`
	Fills         int64             `json:"fills"`
	Objects       int64             `json:"objects"`
	Bytes         int64             `json:"bytes"`
	DiskObjects   int64             `json:"disk_objects"`
	DiskBytes     int64             `json:"disk_bytes"`
	Reasons       map[string]uint64 `json:"reasons,omitempty"`
	Shared        *Shared           `json:"shared,omitempty"`
}

// Shared are the counters of the store that a cache shares with other machines.
type Shared struct {
	Server       string `json:"server"`
	Up           bool   `json:"up"`
	Hit          uint64 `json:"hit"`
	Miss         uint64 `json:"miss"`
	Calls        uint64 `json:"calls"`
	Errors       uint64 `json:"errors"`
	BytesRead    uint64 `json:"bytes_read"`
	BytesWritten uint64 `json:"bytes_written"`
	// WaitingPurges are those that other machines have not been told of yet.
	WaitingPurges int64 `json:"waiting_purges"`
}

// server answers. C is a type parameter so that a map of *cache.Handler can be
// handed over as it is.
type server[C Cache] struct {
	caches func() map[string]C
	route  func(*http.Request) (string, bool)
	meters func() []*meter.Cache
}

// Handler answers below Prefix for the caches that are in use at the moment, by
// the pattern of their route; see the package's comment for the calls. route
// says which of the patterns a request would reach, or any other pattern or
// false for none of them: the request is as a server gets it, with Host, an URL
// without a host, and TLS set for https. meters are the counters of the caches
// that count ((*meter.Meters).Caches); nil for none.
func Handler[C Cache](caches func() map[string]C, route func(*http.Request) (string, bool), meters func() []*meter.Cache) http.Handler {
	s := &server[C]{caches, route, meters}
	mux := http.NewServeMux()
	mux.Handle("POST "+Prefix+"purge", handlerOf(s.purge))
	mux.Handle("GET "+Prefix+"explain", handlerOf(s.explain))
	mux.Handle("GET "+Prefix+"recent", handlerOf(s.recent))
	mux.Handle("GET "+Prefix+"stats", handlerOf(s.stats))
	mux.Handle("GET "+Prefix+"{$}", handlerOf(func(*http.Request) (any, error) {
		return map[string]any{
			"routes": s.names(),
			"calls":  []string{"POST /cache/purge", "GET /cache/explain?url=", "GET /cache/recent?filter=&n=", "GET /cache/stats"},
		}, nil
	}))
	return mux
}

// problem is an error with the status it is answered with.
type problem struct {
	status int
	error
}

func bad(format string, args ...any) error {
	return problem{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

func missing(format string, args ...any) error {
	return problem{http.StatusNotFound, fmt.Errorf(format, args...)}
}

// failure is how an error is answered.
type failure struct {
	Error string `json:"error"`
}

// handlerOf makes a handler of a function with a result.
func handlerOf(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		v, err := f(r)
		if err != nil {
			status = http.StatusInternalServerError
			if p, ok := errors.AsType[problem](err); ok {
				status = p.status
			}
			v = failure{err.Error()}
		} else if p, ok := v.(Purged); ok {
			status = p.status()
		}
		b, err := json.Marshal(v)
		if err != nil {
			status, b = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Length", strconv.Itoa(len(b)+1))
		w.WriteHeader(status)
		_, _ = w.Write(append(b, '\n')) // what a client does not read is its own loss
	})
}

// names lists the routes that have a cache, in order.
func (s *server[C]) names() []string {
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(s.caches()))))
}

// theRoutes tells a person which routes there are.
func (s *server[C]) theRoutes() string {
	names := s.names()
	if len(names) == 0 {
		return "this server has no route with a cache"
	}
	return "the routes with a cache are " + strings.Join(names, ", ")
}

// chosen are the caches of one route, or of all.
func (s *server[C]) chosen(route string) (map[string]C, error) {
	caches := s.caches()
	if len(caches) == 0 {
		return nil, missing("%s", s.theRoutes())
	}
	if route == "" {
		return caches, nil
	}
	c, ok := caches[route]
	if !ok {
		return nil, missing("the route %q has no cache: %s", route, s.theRoutes())
	}
	return map[string]C{route: c}, nil
}

// purge takes effect here before it answers, in every route.
func (s *server[C]) purge(r *http.Request) (any, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, bad("reading what to purge: %w", err)
	}
	if len(b) > maxBody {
		return nil, problem{http.StatusRequestEntityTooLarge, fmt.Errorf("what to purge has more than %d bytes", maxBody)}
	}
	var p Purge
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, bad(`reading what to purge: %w; it is JSON like {"tag": "news"}`, err)
	}
	if dec.More() {
		return nil, bad("there is more than one JSON value: purge one thing after the other")
	}
	if err := p.Check(); err != nil {
		return nil, bad("%w", err)
	}
	wait, err := p.wait()
	if err != nil {
		return nil, err
	}
	caches, err := s.chosen(p.Route)
	if err != nil {
		return nil, err
	}
	done := Purged{Routes: slices.Sorted(maps.Keys(caches))}
	failed := func(name string, err error) {
		if err == nil {
			return
		}
		problem := Problem{Route: name, Error: err.Error()}
		if missing, ok := errors.AsType[*purge.MissingError](err); ok {
			problem.Missing = missing.Machines
		}
		done.Problems = append(done.Problems, problem)
	}
	if wait == 0 {
		for _, name := range done.Routes {
			failed(name, caches[name].Purge(r.Context(), p.Selector))
		}
		return done, nil
	}
	awaits := make([]func(context.Context) error, len(done.Routes))
	for i, name := range done.Routes {
		await, err := caches[name].Announce(r.Context(), p.Selector)
		failed(name, err)
		awaits[i] = await
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for i, name := range done.Routes { // all have been announced: the time is for all together
		if awaits[i] != nil {
			failed(name, awaits[i](ctx))
		}
	}
	return done, nil
}

// explain asks the cache of the route that the request would reach.
func (s *server[C]) explain(r *http.Request) (any, error) {
	q := r.URL.Query()
	asked, err := request(r.Context(), q.Get("url"), q.Get("method"), q["header"])
	if err != nil {
		return nil, err
	}
	caches := s.caches()
	name, ok := s.route(asked)
	if !ok {
		return nil, missing("no route of this server answers for %s: %s", q.Get("url"), s.theRoutes())
	}
	c, ok := caches[name]
	if !ok {
		return nil, missing("%s is answered by the route %s, which has no cache: %s", q.Get("url"), name, s.theRoutes())
	}
	return Explanation{name, c.Explain(asked)}, nil
}

// request makes a request as a server gets it.
func request(ctx context.Context, target, method string, header []string) (*http.Request, error) {
	if target == "" {
		return nil, bad("there is no url: explain one like http://localhost:8080/feed")
	}
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return nil, bad("%q is not a URL: %w", target, errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, bad("%q needs a scheme and a host, like http://localhost:8080/feed", target)
	case strings.Contains(u.RawQuery, " "): // url.Parse lets it pass, and no server does
		return nil, bad("%q has a space in its query: write %%20", target)
	case len(header) > maxFields:
		return nil, bad("there are more than %d header fields", maxFields)
	}
	u.Path = cmp.Or(u.Path, "/")
	r, err := http.NewRequestWithContext(ctx, cmp.Or(method, http.MethodGet), "/", nil)
	if err != nil {
		return nil, bad("%w", err)
	}
	r.URL = &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}
	r.Host, r.RequestURI, r.RemoteAddr = u.Host, u.RequestURI(), "127.0.0.1:0"
	if u.Scheme == "https" {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: u.Hostname()}
	}
	for _, field := range header {
		name, value, ok := strings.Cut(field, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n\x00") {
			return nil, bad("the header field %q is not like Name: value", field)
		}
		if strings.EqualFold(name, "Host") {
			r.Host = strings.TrimSpace(value)
			continue
		}
		r.Header.Add(name, strings.TrimSpace(value))
	}
	return r, nil
}

// recent merges the decisions of all routes, youngest first.
func (s *server[C]) recent(r *http.Request) (any, error) {
	q := r.URL.Query()
	n := defaultRecent
	if text := q.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > maxRecent {
			return nil, bad("n is %q, but must be a number from 1 to %d", text, maxRecent)
		}
	}
	caches, err := s.chosen(q.Get("route"))
	if err != nil {
		return nil, err
	}
	list := []Decision{}
	for name, c := range caches {
		for _, d := range c.Recent(q.Get("filter"), n) {
			list = append(list, Decision{name, d})
		}
	}
	slices.SortStableFunc(list, func(a, b Decision) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Route, b.Route))
	})
	return list[:min(n, len(list))], nil
}

// stats reads the counters.
func (s *server[C]) stats(*http.Request) (any, error) {
	list := []Stats{}
	if s.meters == nil {
		return list, nil
	}
	for _, m := range s.meters() {
		st := Stats{
			Route: m.Route,
			Hit:   m.Hit.Load(), Stale: m.Stale.Load(), Coalesced: m.Coalesced.Load(), Miss: m.Miss.Load(),
			Validated: m.Validated.Load(), Pass: m.Pass.Load(), Bypass: m.Bypass.Load(), Error: m.Error.Load(),
			Refreshed: m.Refreshed.Load(), Purges: m.Purges.Load(), Evicted: m.Evicted.Load(),
			UpstreamBytes: m.FromUpstream.Load(), Fills: m.Fills.Load(),
			Objects: m.Objects.Load(), Bytes: m.Memory.Load(), DiskObjects: m.DiskObjects.Load(), DiskBytes: m.DiskBytes.Load(),
			Reasons: map[string]uint64{},
		}
		m.Reasons.Each(func(reason string, n uint64) { st.Reasons[reason] = n })
		if on := m.Shared.Load(); on != nil && on.Open.Load() > 0 {
			calls := on.Calls.Snapshot()
			st.Shared = &Shared{
				Server: on.Server, Up: on.Down.Load() == 0, Hit: on.Hits.Load(), Miss: on.Misses.Load(),
				Calls: calls.Count(), Errors: on.Errors.Load(), BytesRead: on.Read.Load(), BytesWritten: on.Written.Load(),
				WaitingPurges: on.Waiting.Load(),
			}
		}
		list = append(list, st)
	}
	return list, nil
}
