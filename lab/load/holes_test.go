package load

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuiet(t *testing.T) {
	t.Parallel()
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	var q gaps
	q.answered(ms(5)) // before the window
	q.answered(ms(500))
	q.open(ms(1000))
	for _, at := range []int64{1001, 1040, 1100, 1101} {
		q.answered(ms(at))
	}
	q.close(ms(1400))
	q.answered(ms(2000)) // and after it
	want := []span{{ms(1040), ms(1100)}, {ms(1101), ms(1400)}}
	if d := cmp.Diff(want, q.spans, cmp.AllowUnexported(span{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// A second thread had answers in the first of them.
	other := []span{{ms(1000), ms(1060)}, {ms(1080), ms(1250)}, {ms(1300), ms(1400)}}
	both := together(want, other)
	if d := cmp.Diff([]span{{ms(1101), ms(1250)}, {ms(1300), ms(1400)}}, both, cmp.AllowUnexported(span{})); d != "" {
		t.Errorf("in both (-want +got):\n%s", d)
	}
	// What is no longer than answers usually take is not a hole.
	if got := holes(both, ms(1000), 12*time.Millisecond); len(got) != 1 || got[0] != (Hole{101 * time.Millisecond, 149 * time.Millisecond}) {
		t.Errorf("holes: %v", got)
	}
}

// TestCorrected has the published example of HdrHistogram: 100 s of a request
// each 10 ms that takes 1 ms, then a stall of 100 s.
func TestCorrected(t *testing.T) {
	t.Parallel()
	var h Histogram
	for range 10_000 {
		h.Record(time.Millisecond)
	}
	h.Record(100 * time.Second)
	if got := h.Quantile(0.99); got > 2*time.Millisecond {
		t.Fatalf("raw: %v", got)
	}
	c := h.Corrected(10 * time.Millisecond)
	if got := c.Count(); got != 20_000 {
		t.Errorf("%d durations, want 20,000", got)
	}
	for q, want := range map[float64]time.Duration{0.5: time.Millisecond, 0.75: 50 * time.Second, 0.99: 98 * time.Second} {
		if got := c.Quantile(q); got < want-want/50 || got > want+want/50 {
			t.Errorf("the %v quantile is %v, want about %v", q, got, want)
		}
	}
	if same := h.Corrected(0); same.Count() != h.Count() || same.Max() != h.Max() {
		t.Error("without an interval something was corrected")
	}
}

// TestRunFindsHoles: a server that stands still for a while, which hardly shows
// in a closed loop's percentiles.
func TestRunFindsHoles(t *testing.T) {
	var standstill sync.RWMutex
	stands := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		standstill.RLock()
		standstill.RUnlock() //nolint:staticcheck // waits for whoever holds it
	})
	slow := httptest.NewTLSServer(stands) // asked by goroutines, not by epoll loops
	defer slow.Close()
	for _, url := range []string{serve(t, stands), slow.URL} {
		var once sync.Once
		c := Config{URL: url, Insecure: true, Connections: 4, Duration: 1500 * time.Millisecond}
		c.Progress = func(k Tick) {
			if k.At > 0 {
				once.Do(func() {
					standstill.Lock()
					time.AfterFunc(600*time.Millisecond, standstill.Unlock)
				})
			}
		}
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if all, longest := r.Silent(); longest < 500*time.Millisecond || all < longest {
			t.Errorf("%s: holes %v with an interval of %v", url, r.Holes, r.Interval)
		}
		corrected := r.Latency.Corrected(r.Interval)
		if corrected.Quantile(0.9) < 100*time.Millisecond {
			t.Errorf("%s: corrected to %v", url, corrected)
		}
	}
}
