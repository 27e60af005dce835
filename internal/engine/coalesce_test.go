package engine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCoalesceShared: three machines with one Redis ask the API once for an answer, whether
// loops may answer or not, and each for itself where that was not asked for.
func TestCoalesceShared(t *testing.T) {
	const machines, clients, paths, took = 3, 4, 5, 200 * time.Millisecond
	for _, c := range []struct {
		coalesce string
		off      bool // the lane
		want     int64
	}{{"shared", false, paths}, {"shared", true, paths}, {"machine", false, machines * paths}} {
		t.Run(fmt.Sprintf("%s, lane off %v", c.coalesce, c.off), func(t *testing.T) {
			redis := startSnapshots(t)
			var asked atomic.Int64
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=3600")
				if r.URL.Path[1] == 'x' {
					asked.Add(1)
					time.Sleep(took)
				}
				_, _ = fmt.Fprint(w, r.URL.Path, " ", time.Now().UnixNano()) // what the cache does not read is its own loss
			}))
			t.Cleanup(api.Close)
			yaml := fmt.Sprintf("listen: 127.0.0.1:0\nlane: {off: %v}\nsites: [{routes: {/: {cache: {to: %q, shared: \"redis://127.0.0.1:%s\", coalesce: %s}}}}]", c.off, api.URL, redis.port, c.coalesce)
			var at []string
			for range machines {
				at = append(at, start(t, parse(t, yaml)).Addrs()[0])
			}
			for i := range machines {
				believe(t, dial(t, at[i]), dial(t, at[(i+1)%machines]))
			}
			for n := range paths {
				path := fmt.Sprint("/x", n)
				var mu sync.Mutex
				bodies := map[string]int{}
				var slowest time.Duration
				var all sync.WaitGroup
				for i := range machines * clients {
					nc := dial(t, at[i%machines])
					all.Go(func() {
						began := time.Now()
						_, body := nc.get("s", path)
						mu.Lock()
						defer mu.Unlock()
						bodies[body]++
						slowest = max(slowest, time.Since(began))
					})
				}
				all.Wait()
				t.Logf("%s: %d different answers, the slowest client waited %v", path, len(bodies), slowest.Round(time.Millisecond))
				if c.coalesce == "shared" && len(bodies) != 1 {
					t.Errorf("%s: %d different answers", path, len(bodies))
				}
			}
			if n := asked.Load(); n != c.want {
				t.Errorf("the API was asked %d times, want %d", n, c.want)
			}
		})
	}
}
