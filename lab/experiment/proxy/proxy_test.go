package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"millrace/lab/experiment"
	"millrace/lab/load/client"
	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// TestRows: every row is complete and the plan holds, in quick runs as well.
func TestRows(t *testing.T) {
	for _, mode := range []record.Mode{record.Quick, record.Full} {
		all := (&measurement{quick: mode == record.Quick}).rows()
		seen := map[string]bool{}
		for _, r := range all {
			if r.Name == "" || r.About == "" || r.Figure == "" || r.Metric == "" || len(r.Arms) < 2 || r.Task == nil && r.Load.Paths == nil || seen[r.Name] {
				t.Errorf("%q is incomplete, or there twice", r.Name)
			}
			if seen[r.Name] = true; !slices.Contains(r.Arms, r.Ours) {
				t.Errorf("%q is measured without millrace", r.Name)
			}
			if cfg := r.Load; r.Task == nil {
				cfg.URL = "http://127.0.0.1:1/"
				if err := cfg.Check(); err != nil {
					t.Errorf("%q: %v", r.Name, err)
				}
			}
		}
		var arms []trial.Arm
		for _, name := range append(proxies(), gws, sockets) {
			arms = append(arms, trial.Arm{Name: name})
		}
		p := schedule().Plan(arms, all, metrics(), experiment.Env{Mode: mode})
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		if timed, attacks := split(all); len(timed)+len(attacks) != len(all) || len(attacks) != 3 {
			t.Errorf("%d rows are %d and %d attacks", len(all), len(timed), len(attacks))
		}
	}
}

// TestConfigs: nginx and HAProxy take their configs, and the others' have all their
// fields. That millrace takes its own is seen when it is measured.
func TestConfigs(t *testing.T) {
	dir := t.TempDir()
	m := &measurement{
		Servers: &experiment.Servers{Env: experiment.Env{Work: dir, Bench: &subject.Bench{Dir: "../../bench"}, Millrace: "millrace"}},
		app:     "127.0.0.1:8083", echo: "127.0.0.1:8084",
	}
	var err error
	if m.cert, m.key, err = experiment.Certificate(dir); err != nil {
		t.Fatal(err)
	}
	p := experiment.Place{Dir: dir, Memory: dir, Address: "127.0.0.1:8081", Second: "127.0.0.1:8082"}
	for _, c := range []experiment.Config{m.config(caddy, "proxy.Caddyfile.tmpl"), m.config(millrace, "proxy.yaml.tmpl")} {
		if err := m.WriteConfig(p, c); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(experiment.ConfigFile(p))
		for _, want := range []string{"8081", "8082", m.app, m.echo, m.cert, m.key} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: no %s, %v\n%s", c.Peer, want, err, text)
			}
		}
	}
	for flag, l := range map[string]experiment.Launch{"-t": m.nginx(t.Context()), "-c": m.haproxy(t.Context())} {
		if missing := (subject.Missing{}); errors.As(l.Missing, &missing) {
			t.Log(l.Missing)
			continue
		}
		if l.Missing != nil {
			t.Fatal(l.Missing)
		}
		if err := l.Prepare(p); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), l.Exe, append(l.Args(p), flag)...).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// answering is the application, and an echo of WebSockets.
func answering(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != echoPath {
		_, _ = w.Write(content(sizeOf(r.URL.Path)))
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

// slotOn is a task's slot on a server that is this process.
func slotOn(plain, overTLS string) trial.TaskSlot {
	return trial.TaskSlot{
		URL: plain, Instance: &trial.Instance{URL: map[string]string{"": plain, secure: overTLS}},
		Window: func(bool) {}, Length: 100 * time.Millisecond,
	}
}

func TestOpen(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(answering))
	defer s.Close()
	got, err := open(t.Context(), slotOn(s.URL+"/", ""), 200)
	if err != nil || got.Done != 200 || got.Values["requests_per_second"] <= 0 || got.Values["latency_p99_ns"] <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	none := httptest.NewServer(http.NotFoundHandler())
	defer none.Close()
	if _, err := open(t.Context(), slotOn(none.URL+"/", ""), 200); err == nil {
		t.Error("no WebSocket, and no error")
	}
}

// TestPress: h2load's answers are counted and timed, and a wrong answer is not a figure.
func TestPress(t *testing.T) {
	m := &measurement{Servers: &experiment.Servers{Env: experiment.Env{Work: t.TempDir()}}}
	if m.h2load, m.missing = experiment.LookForH2load(); m.missing != nil {
		t.Skip(m.missing)
	}
	var wrong atomic.Bool
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wrong.Load() {
			_, _ = io.WriteString(w, "x")
		}
		answering(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	for _, http1 := range []bool{false, true} {
		b := experiment.H2loadBurst{Connections: 2, Streams: 1, HTTP1: http1}
		got, err := m.press(t.Context(), slotOn("", s.URL+"/"), b)
		if err != nil || got.Done == 0 || got.Values["latency_p99_ns"] <= 0 {
			t.Errorf("%+v, %v", got, err)
		}
		wrong.Store(true)
		if _, err := m.press(t.Context(), slotOn("", s.URL+"/"), b); !errors.Is(err, errAnswer) {
			t.Error(err)
		}
		wrong.Store(false)
	}
}

// TestWatch: a server that answers nobody else while uploads wait fails its good
// client, and one that does not is well.
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
	a := attack{name: "a", AbuseConfig: client.AbuseConfig{
		URL: s.URL + upload, Connections: 3, Length: 8192, Piece: 1, Every: time.Second, Again: time.Second,
	}}
	for _, bad := range []bool{false, true} {
		for uploads.Load() > 0 { // of the round before
			time.Sleep(time.Millisecond)
		}
		selfish.Store(bad)
		got, first, err := a.watch(t.Context(), s.URL, target, 100*time.Millisecond, 200*time.Millisecond)
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
	if _, _, err := a.watch(ended, s.URL, target, time.Second, time.Second); err == nil {
		t.Error("a run that was stopped goes on")
	}
}

func TestContent(t *testing.T) {
	for path, want := range map[string]int{small: 501, medium: 32768, cached: 501, upload: -1} {
		if got := sizeOf(path); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
	if got := string(content(18)); got != "0123456789abcdef01" {
		t.Error(got)
	}
}

// TestAttackTable: the bar is about all rounds, and a loss is said plainly.
func TestAttackTable(t *testing.T) {
	row := experiment.Row{Name: "a", Metric: goodP99, Ours: millrace, Arms: []string{nginx, millrace, caddy}}
	res := &record.Result{Metrics: metrics()}
	add := func(arm string, failed, p99 float64) {
		res.Samples = append(res.Samples, record.Sample{Arm: arm, Workload: "a", Values: map[string]float64{
			goodFailed: failed, goodIdle: 5e6, goodP99: p99, idleRSS: 1e6, mostRSS: 2e6, held: 3,
		}})
	}
	add(nginx, 0, 29e6)
	add(millrace, 0, 31e6)
	add(millrace, 2, 32e6)
	got := attackTable(res, []experiment.Row{row}).Rows
	if len(got) != 2 || got[0][6] != "reached" || got[1][6] != "not reached: 2 failed, too slow" {
		t.Errorf("%q", got)
	}
	if got, want := attacksHeld(res, []experiment.Row{row}), `a good client suffers under "a" (2 failed, too slow)`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	row.Ours = nginx
	if got, want := answer(res, nil, []experiment.Row{row}), `a good client is well under "a"`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got := attackTable(&record.Result{}, []experiment.Row{row}).Rows; len(got) != 1 || got[0][0] != "none" {
		t.Errorf("%q", got)
	}
}
