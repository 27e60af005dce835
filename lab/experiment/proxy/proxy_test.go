package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"millrace/lab/experiment"
	"millrace/lab/load/client"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// answering is the application, and an echo of WebSockets.
func answering(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/echo" {
		_, _ = w.Write(content(r.URL.Path))
		return
	}
	conn, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		message, op, err := wsutil.ReadClientData(conn)
		if err != nil || wsutil.WriteServerMessage(conn, op, message) != nil {
			return
		}
	}
}

func TestOpen(t *testing.T) {
	w := experiment.Workload{Protocol: "websocket", Paths: []string{"/echo"}, Count: 200, Connections: 50}
	s := httptest.NewServer(http.HandlerFunc(answering))
	defer s.Close()
	got, err := open(t.Context(), trial.TaskSlot{URL: s.URL + "/", Window: func(bool) {}}, w)
	if err != nil || got.Done != 200 || got.Values["requests_per_second"] <= 0 || got.Values["latency_p99_ns"] <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	none := httptest.NewServer(http.NotFoundHandler())
	defer none.Close()
	if _, err := open(t.Context(), trial.TaskSlot{URL: none.URL + "/", Window: func(bool) {}}, w); err == nil {
		t.Error("no WebSocket, and no error")
	}
}

// A server that answers nobody else while uploads wait fails its good client, and one
// that does not is well.
func TestWatch(t *testing.T) {
	var uploads atomic.Int64
	var selfish atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			uploads.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			uploads.Add(-1)
		case selfish.Load() && uploads.Load() > 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			answering(w, r)
		}
	}))
	defer s.Close()
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	a := client.AbuseConfig{URL: s.URL + "/upload", Connections: 3, Length: 8192, Piece: 1, Every: time.Second, Again: time.Second}
	for _, bad := range []bool{false, true} {
		for uploads.Load() > 0 { // of the round before
			time.Sleep(time.Millisecond)
		}
		selfish.Store(bad)
		got, first, err := watch(t.Context(), a, s.URL, target, 100*time.Millisecond, 200*time.Millisecond)
		if err != nil || got.Done != 10 || got.Values[held] <= 0 || got.Values[mostRSS] <= 0 || got.Values[goodIdle] <= 0 {
			t.Errorf("%+v, %v", got, err)
		}
		if failed := got.Values[goodFailed]; bad != (failed > 0) || bad != (first != nil) {
			t.Errorf("selfish %v: %v failed, %v", bad, failed, first)
		}
	}
	selfish.Store(false)
	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := watch(ended, a, s.URL, target, time.Second, time.Second); err == nil {
		t.Error("a run that was stopped goes on")
	}
}

func TestContent(t *testing.T) {
	for path, want := range map[string]int{small: 501, "/32768": 32768, "/cached/501": 501, "/upload": 0} {
		if got := len(content(path)); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
	if got := string(content("/18")); got != "0123456789abcdef01" {
		t.Error(got)
	}
}

// The bar is about all rounds, and a loss is said plainly.
func TestReport(t *testing.T) {
	w := experiment.Workload{Name: "a", Metric: goodP99, Arms: []string{"nginx", "millrace", "caddy"}}
	res := &record.Result{Answer: "Something"}
	add := func(arm string, failed, p99 float64) {
		res.Samples = append(res.Samples, record.Sample{Arm: arm, Workload: "a", Values: map[string]float64{
			goodFailed: failed, goodIdle: 5e6, goodP99: p99, idleRSS: 1e6, mostRSS: 2e6, held: 3,
		}})
	}
	add("nginx", 0, 29e6)
	add("millrace", 0, 29e6)
	report(res, []experiment.Workload{w})
	if want := "Something; a good client is well under “a”"; res.Answer != want {
		t.Errorf("%s, not %s", res.Answer, want)
	}
	res.Tables, res.Answer = nil, ""
	add("millrace", 2, 39e6)
	report(res, []experiment.Workload{w})
	if rows := res.Tables[0].Rows; len(rows) != 2 || rows[0][6] != "reached" || rows[1][6] != "not reached: 2 failed, too slow" {
		t.Errorf("%q", rows)
	}
	if want := "a good client suffers under “a” (2 failed, too slow)"; res.Answer != want {
		t.Errorf("%s, not %s", res.Answer, want)
	}
}
