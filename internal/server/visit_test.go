package server

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/observe/trace"
	"millrace/internal/ops/slow"
	"millrace/internal/route/site"
)

// undecided is a job that lets no loop send its requests: each goes on in a handler.
type undecided struct{ passed atomic.Int64 }

func (u *undecided) Pass(*lane.ForwardRequest) lane.RoundTrip {
	u.passed.Add(1)
	return nil
}

func (u *undecided) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Seen", strconv.Itoa(len(r.Header["Millrace-Passage"]))+" "+trace.From(r.Context()).ID())
}

// TestVisitGoesOn: what a loop has found out about a request holds in the handler. Its gate
// is asked once, its id stays, and no handler sees how the two were brought together.
func TestVisitGoesOn(t *testing.T) {
	for _, proto := range []string{"tcp", "tls", "h2"} {
		t.Run(proto, func(t *testing.T) {
			job, meters := new(undecided), meter.New()
			once, err := admit.NewTable().Limit(admit.Rate{Rate: "1/24h", Burst: 1}, "test")
			if err != nil {
				t.Fatal(err)
			}
			table := func(id uint64) *site.Table {
				s := site.NewTable()
				s.Add(site.New(id, []*site.Route{{
					Pattern: "/", Handler: job, Job: meters.Job("test"), Passes: true, Gate: admit.New(admit.Rules{Rates: []*admit.Limit{once}}),
				}}), nil)
				return s
			}
			r := start(t, plan{plain: table(1), secure: table(2), meters: meters})
			now := *r.srv.current.Load()
			now.tracing.Tracer = trace.New(nil, &trace.IDOptions{}, false)
			r.srv.current.Store(&now)
			conf := r.clientTLS.Clone()
			tr := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: proto == "h2"}
			defer tr.CloseIdleConnections()
			at := "http://" + r.tcp
			if proto != "tcp" {
				at = "https://" + r.secure
			}
			for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				req, err := http.NewRequest(http.MethodGet, at+"/a", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				id := resp.Header.Get("X-Request-Id")
				if resp.StatusCode != want || id == "" || i == 0 && resp.Header.Get("X-Seen") != "0 "+id {
					t.Errorf("request %d: %s, %v", i, resp.Status, resp.Header)
				}
			}
			if n := job.passed.Load(); n != 1 && runtime.GOOS == "linux" {
				t.Errorf("the job was asked %d times whether a loop may send", n)
			}
			if n := meters.Refused.Rate.Load(); n != 1 {
				t.Errorf("%d requests were counted as refused", n)
			}
		})
	}
}

// TestSlowOnALoop: a slow request that a loop has passed on is kept, also where there is no
// access log.
func TestSlowOnALoop(t *testing.T) {
	meters := meter.New()
	store, job := slow.New(slow.Options{}, meters, func(err error) { t.Error(err) }), meters.Job("proxy")
	job.SlowFrom.Store(1)
	v := visits.Get().(*visit)
	v.now = &current{tracing: Tracing{Tracer: trace.New(nil, nil, true), Slow: store}}
	v.route, v.began, v.through = &site.Route{Job: job}, time.Now().Add(-time.Second), true
	v.done(http.StatusOK, 5, 0, time.Now())
	kept := store.List().Entries
	if len(kept) != 1 || kept[0].Lane != "through" || len(kept[0].Steps) != 1 || kept[0].Steps[0].Kind != trace.Upstream || kept[0].Took < time.Second {
		t.Errorf("%+v", kept)
	}
}
