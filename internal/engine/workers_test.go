package engine_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/config"
	"millrace/internal/upstream/faulty"
)

// tired is an application with few workers, each of which stays with a connection until
// it is closed, and takes work for an answer.
func tired(t *testing.T, workers int, secure bool, work time.Duration) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(work) // it works
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("done"))
	}))
	srv.Listener.Close()
	srv.Listener = faulty.NewWorkers(ln, workers)
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.URL
}

// crowd has clients ask paths, each one of them, again and again, until they have total
// answers, and returns how many each has.
func (w *way) crowd(clients, total int, paths ...string) []int {
	var all sync.WaitGroup
	var sum atomic.Int64
	got := make([]int, clients)
	for i := range clients {
		all.Go(func() {
			for n := 0; sum.Load() < int64(total); n++ {
				r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, fmt.Sprintf("%s%s?%d-%d", w.base, paths[i%len(paths)], i, n), nil)
				if err != nil {
					w.Error(err)
					return
				}
				res, err := w.client.Do(r)
				if err != nil {
					w.Error(err)
					return
				}
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					w.Errorf("client %d, request %d: %d", i, n, res.StatusCode)
					return
				}
				got[i]++
				sum.Add(1)
			}
		})
	}
	all.Wait()
	return got
}

// TestOneWorkerServesAll: an application with one worker answers all clients alike,
// whichever job asks it.
func TestOneWorkerServesAll(t *testing.T) {
	const sites = `
sites:
- routes:
    /plain: {proxy: {to: http://127.0.0.1:1}}
    /cached: {cache: {to: http://127.0.0.1:1}}
    /secure: {proxy: {to: https://127.0.0.1:1, tls: {insecure: true}}}
`
	amend := func(cfg *config.Config) { // each server has applications of its own: idle connections hold a worker, too
		routes := cfg.Sites[0].Routes
		to := []string{tired(t, 1, false, 5*time.Millisecond)}
		routes["/plain"].Proxy.To, routes["/cached"].Cache.To = to, to
		routes["/secure"].Proxy.To = []string{tired(t, 1, true, 5*time.Millisecond)}
	}
	everyWayWith(t, sites, amend, func(w *way) {
		var all sync.WaitGroup
		for _, paths := range [][]string{{"/plain", "/cached"}, {"/secure"}} {
			all.Go(func() {
				got := w.crowd(4, 160, paths...)
				if least, most := slices.Min(got), slices.Max(got); 2*least < most { // a client that starves has a few
					w.Errorf("%s: the clients had %v answers", paths, got)
				}
			})
		}
		all.Wait()
	})
}
