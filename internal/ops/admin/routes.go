package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/internal/ops/exposition"
)

const (
	// maxScrapes is how many clients may read the metrics at once.
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

const index = `Millrace admin

GET  /metrics        metrics for Prometheus
GET  /healthz        200 while the server takes requests, 503 while it drains
GET  /debug/pprof/   profiles of the Go runtime
GET  /addrs          the URLs under which the site is served, as JSON
GET  /certs          the certificates that come by themselves, as JSON
POST /reload         read the config again
POST /upgrade        start the program anew and give it the sockets
`

// indexOf is the front page: our own routes and those of others.
func indexOf(routes map[string]http.Handler) string {
	var page strings.Builder
	page.WriteString(index)
	for _, prefix := range slices.Sorted(maps.Keys(routes)) {
		page.WriteString("     " + prefix + "\n")
	}
	return page.String()
}

// mount adds the routes of others.
func mount(mux *http.ServeMux, routes map[string]http.Handler) error {
	for _, prefix := range slices.Sorted(maps.Keys(routes)) {
		name, ok := strings.CutPrefix(prefix, "/")
		name, closed := strings.CutSuffix(name, "/")
		if !ok || !closed || name == "" || strings.ContainsAny(name, "{} \t") || path.Clean(prefix) != "/"+name {
			return fmt.Errorf("mounting %q on the admin listener: a prefix is like /cache/", prefix)
		}
		if _, taken := mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: prefix}}); taken != "" {
			return fmt.Errorf("mounting %q on the admin listener: %q is there already", prefix, taken)
		}
		mux.Handle(prefix, routes[prefix])
	}
	return nil
}

// bodyLimit is how many bytes a request's body may have.
func bodyLimit(routes map[string]http.Handler, path string) int64 {
	for prefix := range routes {
		if strings.HasPrefix(path, prefix) {
			return maxRouteBytes
		}
	}
	return maxBodyBytes
}

// newHandler puts the routes together, with the limits and guards before them. gated
// puts what asks for a token before the routes; nil: nothing does.
func newHandler(d Deps, allowed hosts, gated func(http.Handler) http.Handler) (http.Handler, error) {
	mux := http.NewServeMux()
	front := indexOf(d.Routes)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, front) })
	mux.Handle("GET /metrics", exposition.Handler(newCollector(d).collect, maxScrapes, scrapeTimeout))
	mux.HandleFunc("GET /healthz", healthz(d.Ready, d.Degraded))
	mux.HandleFunc("POST /reload", reload(d.Reload))
	mux.HandleFunc("POST /upgrade", upgrade(d.Upgrade))
	mux.HandleFunc("GET /addrs", addrs(d.Addrs))
	mux.HandleFunc("GET "+ProcessPath, process())
	mux.HandleFunc("GET "+CertsPath, d.serveCerts)
	profiles(mux, d.Profiled)
	if err := mount(mux, d.Routes); err != nil {
		return nil, err
	}

	var inside http.Handler = mux
	if gated != nil {
		inside = gated(mux)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed != nil && !allowed(r.Host) {
			text(w, http.StatusMisdirectedRequest, fmt.Sprintf(
				"The admin listener does not answer to the name %q. Use its address, or start the server with --admin NAME:PORT.\n", r.Host))
			return
		}
		if fromOtherSite(r) {
			text(w, http.StatusForbidden, "The admin listener does not answer to pages of other sites. Open this address by itself, or use a program like curl.\n")
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		// Deadlines fail only on a writer that is not net/http's own: a test's.
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if r.ContentLength != 0 {
			_ = rc.SetReadDeadline(time.Now().Add(readTimeout))
			r.Body = http.MaxBytesReader(w, r.Body, bodyLimit(d.Routes, r.URL.Path))
		}
		inside.ServeHTTP(w, r)
	}), nil
}

// fromOtherSite reports whether a page of another origin in the operator's
// browser made the request, whatever its method: a GET may be expensive (a
// profile), and some routes change something. Browsers say so in
// Sec-Fetch-Site, which is "none" when somebody typed the address. To addresses
// that they do not trust (plain HTTP beyond loopback) they send at most Origin
// and Referer. Programs send none of these.
func fromOtherSite(r *http.Request) bool {
	if site := r.Header["Sec-Fetch-Site"]; len(site) > 0 {
		return len(site) > 1 || site[0] != "same-origin" && site[0] != "none"
	}
	for _, name := range []string{"Origin", "Referer"} {
		for _, value := range r.Header[name] {
			u, err := url.Parse(value)
			if err != nil || !strings.EqualFold(u.Host, r.Host) { // "null" has no host
				return true
			}
		}
	}
	return false
}

// text answers with a few words. Write errors are ignored: the client has gone.
func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, s)
}

// healthz answers 200 also where a shared store is down: all machines would else be taken
// out of service at once, which go on without it.
func healthz(ready func() bool, degraded func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if ready != nil && !ready() {
			text(w, http.StatusServiceUnavailable, "draining\n")
			return
		}
		answer := "ok\n"
		if degraded != nil {
			if what := degraded(); what != "" {
				answer += "degraded: not reached: " + what + "\n"
			}
		}
		text(w, http.StatusOK, answer)
	}
}

// addrs answers with a JSON array of strings.
func addrs(list func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		urls := []string{}
		if list != nil {
			urls = append(urls, list()...)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(urls) // strings always encode; the rest is the client's loss
	}
}

func reload(reload func() error) http.HandlerFunc {
	var running sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request) {
		if reload == nil {
			text(w, http.StatusNotImplemented, "This server has no config to read again.\n")
			return
		}
		if !running.TryLock() {
			text(w, http.StatusConflict, "A reload is under way already.\n")
			return
		}
		defer running.Unlock()
		if err := reload(); err != nil {
			text(w, http.StatusInternalServerError, "Not reloaded; the config that was in use still is.\n"+err.Error()+"\n")
			return
		}
		text(w, http.StatusOK, "reloaded\n")
	}
}
