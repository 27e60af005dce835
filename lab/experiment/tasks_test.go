package experiment

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/site"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// serve starts net/http over TLS with HTTP/2, and is a slot on it.
func serve(t *testing.T, h http.HandlerFunc) trial.TaskSlot {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	url := s.URL + "/"
	return trial.TaskSlot{
		URL: url, Instance: &trial.Instance{URL: map[string]string{"": url, "secure": url}}, Target: target, Window: func(bool) {}, Length: 100 * time.Millisecond,
	}
}

// bareRun is one whose right page is a text.
func bareRun(t *testing.T) *Run {
	r := NewRun(Env{Work: t.TempDir()}, &Spec{}, &record.Result{})
	r.Right = func(string) []byte { return []byte("a page") }
	return r
}

// TestQuiet: connections are open at once and were asked over, and another page is
// no figure.
func TestQuiet(t *testing.T) {
	slot := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page") })
	r := bareRun(t)
	for _, protocol := range []load.Protocol{load.HTTP1, load.HTTP2} {
		w := Workload{Protocol: protocol, Connections: 30, Count: 5, Idle: time.Millisecond}
		if got, err := r.idle(t.Context(), slot, w); err != nil || got.Done != 30 || got.Values["rss_bytes"] <= 0 {
			t.Errorf("%s: %+v, %v", protocol, got, err)
		}
	}
	r.Right = func(string) []byte { return []byte("another") }
	if _, err := r.idle(t.Context(), slot, Workload{Connections: 3, Count: 1}); !errors.Is(err, ErrAnswer) {
		t.Error(err)
	}
}

// TestRest: a server has no connection while it rests, and one that answers wrongly is no
// figure.
func TestRest(t *testing.T) {
	var asked atomic.Int64
	status := http.StatusOK
	slot := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "something")
	})
	w := Workload{Protocol: load.HTTP1, Count: 3, Paths: []string{"/x"}, Every: time.Millisecond, Idle: 20 * time.Millisecond}
	got, err := bareRun(t).rest(t.Context(), slot, w)
	if _, known := got.Values[CPU]; err != nil || !known || got.Done != 1 || got.Values["rss_bytes"] <= 0 || asked.Load() != 3 {
		t.Errorf("%+v, %v, asked %d times", got, err, asked.Load())
	}
	status = http.StatusBadGateway
	if got, err := bareRun(t).rest(t.Context(), slot, w); !errors.Is(err, ErrAnswer) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPage: everything of the page is asked for, and what is missing is not a figure.
func TestPage(t *testing.T) {
	var asked atomic.Int64
	missing := "/none"
	slot := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == missing {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		_, _ = io.WriteString(w, "something")
	})
	w := Workload{Protocol: load.HTTP2, Count: 3, Browser: true}
	got, err := bareRun(t).page(t.Context(), slot, w)
	if want := int64(visitors * (3 + 2) * (site.Assets + 1)); err != nil || got.Done != visitors*3 || asked.Load() != want {
		t.Errorf("%+v, %v, asked %d times, not %d", got, err, asked.Load(), want)
	}
	missing = site.Page()[7].Path
	if _, err := bareRun(t).page(t.Context(), slot, w); !errors.Is(err, ErrAnswer) {
		t.Errorf("without an asset: %v", err)
	}
}

// TestH2load: its answers are counted and timed, and a wrong answer is not a figure.
func TestH2load(t *testing.T) {
	r := bareRun(t)
	var err error
	if r.Tools["h2load"], err = subject.Look("h2load", "nghttp2-client"); err != nil {
		t.Skip(err)
	}
	text := "a page"
	slot := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	for _, protocol := range []load.Protocol{load.HTTP1, load.HTTP2} {
		got, err := r.h2load(t.Context(), slot, Workload{Protocol: protocol, Connections: 2, Over: "secure", Paths: []string{"/x"}})
		if err != nil || got.Done == 0 || got.Values["latency_p99_ns"] <= 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	text = "another"
	if _, err := r.h2load(t.Context(), slot, Workload{Connections: 2}); !errors.Is(err, ErrAnswer) {
		t.Error(err)
	}
}

// TestServers: a server is started with its config at a place, and nothing of that is
// left when it has stopped.
func TestServers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := NewRun(Env{Work: t.TempDir(), Millrace: self}, &Spec{Probe: []string{"/", "/second"}, Arms: []Arm{
		{Name: "server", Run: "millrace {config} {address} {empty}", Text: "the config of {address}", URL: map[string]string{"other": "unix:{dir}/x"}, Memory: true},
		{Name: "tool", Run: "no-such-tool -x", Package: "a-package"},
		{Name: "peer", Run: "millrace", Config: "nginx/x.tmpl"},
	}}, &record.Result{})
	r.Fields["Empty"] = ""
	t.Setenv(serveEnv, "1")
	in, err := r.Start(t.Context(), "server")
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Probes()["server"]; len(p) != 2 || p[0].Body != len("the config of "+in.URL["address"]) || !strings.HasPrefix(in.URL["other"], "unix:"+r.Env.Work) {
		t.Errorf("%+v, %+v", p, in.URL)
	}
	if err := in.Stop(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(r.Env.Work); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	err = r.Alone(t.Context(), "server", func(in *trial.Instance, target *record.Target) error {
		_, err := target.Read()
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := r.Start(t.Context(), "tool"); !errors.As(err, new(subject.Missing)) {
		t.Error(err)
	}
	for _, arm := range []string{"peer", "nobody"} {
		if _, err := r.StartWith(context.Background(), arm, nil, nil); err == nil {
			t.Errorf("%s runs", arm)
		}
	}
}

// serveEnv makes this binary a server that answers with its config.
const serveEnv = "EXPERIMENT_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) == "" {
		os.Exit(m.Run())
	}
	text, err := os.ReadFile(os.Args[1])
	if err == nil && len(os.Args) == 3 {
		_ = http.ListenAndServe(os.Args[2], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
	}
	os.Exit(1)
}
