package tls

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/experiment/fileserver"
	"millrace/lab/record"
	"millrace/lab/result"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// serve starts net/http over TLS with HTTP/2.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// pageServer answers with the page of a measurement.
func pageServer(t *testing.T) (*measurement, string) {
	t.Helper()
	m := &measurement{page: []byte("a page")}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Write(m.page)
	})
	return m, s.URL + "/"
}

func testArms() []trial.Arm {
	var arms []trial.Arm
	for _, name := range append(servers(), noLane, bareNet) {
		arms = append(arms, trial.Arm{Name: name})
	}
	return arms
}

// TestPlan: every row is complete and the plan holds, in quick runs as well.
func TestPlan(t *testing.T) {
	rows := (&measurement{}).rows()
	for _, r := range rows {
		if r.name == "" || r.about == "" || r.figure == "" || r.metric == "" || r.task == nil || len(r.arms) < 2 {
			t.Errorf("%q is incomplete", r.name)
		}
		if !slices.Contains(r.arms, millraceOf(r)) {
			t.Errorf("%q is measured without millrace", r.name)
		}
	}
	for _, mode := range []result.Mode{result.Quick, result.Full} {
		p := newPlan(testArms(), rows, experiment.Env{Mode: mode})
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		if mode == result.Quick && slices.ContainsFunc(p.Arms, func(a trial.Arm) bool { return a.Name == caddy }) {
			t.Error("Caddy is in a quick run")
		}
	}
	// Arms that no row asks for are not started.
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == "cold" })
	if p := newPlan(testArms(), rows[i:i+1], experiment.Env{}); len(p.Arms) != 2 {
		t.Errorf("%d arms for the row cold", len(p.Arms))
	}
}

func TestChoose(t *testing.T) {
	m := &measurement{Stage: experiment.NewStage(experiment.Env{}, &result.Result{})}
	if _, missing := subject.Look("h2load", ""); missing != nil {
		t.Skip(missing)
	}
	for _, c := range []struct {
		only []string
		want string
	}{
		{[]string{"h2-10"}, "h2-10"},
		{[]string{"h2-*-1000", "cold"}, "h2-1-1000 h2-10-1000 h2-100-1000 cold"},
		{[]string{"nothing"}, ""},
		{[]string{"["}, ""},
	} {
		rows, err := m.choose(c.only)
		var names []string
		for _, r := range rows {
			names = append(names, r.name)
		}
		if got := strings.Join(names, " "); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v", c.only, got, err)
		}
	}
	all, err := m.choose(nil)
	if err != nil || len(all) != len(m.rows()) {
		t.Errorf("%d rows without a choice, %v", len(all), err)
	}
}

const said = `starting benchmark...
Warm-up started for thread #0.
progress: 100% of clients started
Main benchmark duration is started for thread #0.
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.50s, 148770.00 req/s, 75.48MB/s
requests: 148775 total, 148775 started, 148775 done, 148770 succeeded, 2 failed, 1 errored, 1 timeout
status codes: 148700 2xx, 1 3xx, 1 4xx, 0 5xx
traffic: 75.48MB (79146790) total, 2.32MB (2435430) headers (space savings 92.51%), 89.28MB (93616860) data
                     min         max         mean         sd        +/- sd
time for request:       27us     69.84ms      2.53ms      5.87ms    94.00%
`

// TestListen: h2load's window is the trial's, and all that it counts is read.
func TestListen(t *testing.T) {
	var windows []bool
	w := listen(strings.NewReader(said), func(open bool) { windows = append(windows, open) })
	got, err := w.result(true)
	if err != nil || !slices.Equal(windows, []bool{true, false}) {
		t.Fatalf("%v, windows %v", err, windows)
	}
	if got.Done != 148769 || got.Failed != 3 || got.FirstFailure == "" || got.Values["latency_mean_ns"] != 2.53e6 {
		t.Errorf("%+v", got)
	}
	for _, wrong := range []string{"", "requests: 1 total\n", strings.Replace(said, "Main benchmark duration is over", "x", 1)} {
		w := listen(strings.NewReader(wrong), func(bool) {})
		if _, err := w.result(true); !errors.Is(err, errSaidNothing) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestArguments(t *testing.T) {
	got := strings.Join(burst{connections: 1000, streams: 10}.arguments("https://x/", time.Second), " ")
	if want := "-t 1 -c 1000 -m 10 -D 1000ms --warm-up-time 3000ms https://x/"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	got = strings.Join(burst{connections: 1, streams: 1, http1: true, requests: 2}.arguments("https://x/", time.Second), " ")
	if want := "-t 1 -c 1 -m 1 --h1 -n 2 https://x/"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// TestVisit: the page over both protocols, again and again on one connection.
func TestVisit(t *testing.T) {
	m, at := pageServer(t)
	for _, http2 := range []bool{false, true} {
		v, err := visit(t.Context(), at, settings(http2, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer v.close()
		for range 3 {
			if err := m.right(v); err != nil {
				t.Errorf("HTTP/2 %v: %v", http2, err)
			}
		}
	}
	m.page = []byte("another page")
	other := &measurement{page: []byte("a page")}
	if err := other.look(t.Context(), at, true); !errors.Is(err, errAnswer) {
		t.Errorf("a wrong page: %v", err)
	}
}

// A server that has no HTTP/2 is told from one that has.
func TestVisitOfAnotherProtocol(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	if v, err := visit(t.Context(), s.URL, settings(true, nil)); err == nil {
		v.close()
		t.Error("HTTP/2 where there is none")
	}
}

// TestStand: ratios are taken within rounds, and what is lost is listed.
func TestStand(t *testing.T) {
	r := row{name: "r", figure: "CPU per request", metric: cpu, arms: servers(), goal: 0.5}
	res := &result.Result{Metrics: metrics()}
	for block, ns := range []float64{100, 200, 400} {
		for arm, factor := range map[string]float64{nginx: 1, millrace: 2, h2o: 4} {
			res.Samples = append(res.Samples, result.Sample{Arm: arm, Workload: "r", Block: block, Values: map[string]float64{cpu: ns * factor}})
		}
	}
	s, ok := stand(res, r, millrace, nginx)
	if !ok || s.ratio != 2 || s.least != 2 || s.most != 2 || s.rounds != 3 || s.mine != 400 {
		t.Errorf("%+v", s)
	}
	all := tables(res, []row{r})
	if rows := all[0].Rows; len(rows) != 1 || rows[0][6] != "not reached" {
		t.Errorf("standings: %v", rows)
	}
	if rows := all[1].Rows; len(rows) != 1 || rows[0][2] != nginx || rows[0][6] != "in each round" {
		t.Errorf("losses: %v", rows)
	}
	headline := r
	headline.headline, headline.goal = true, 0
	for _, rows := range [][]row{{r}, {headline}, {r, headline}} {
		if got, want := answer(res, rows), `Millrace spends 2.00 (2.00–2.00) of nginx's on "r"`; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if got := answer(&result.Result{}, []row{r}); got != "" {
		t.Errorf("an answer to nothing: %s", got)
	}
}

// TestConfigs: nginx takes its config, and the others' have all their fields.
func TestConfigs(t *testing.T) {
	dir := t.TempDir()
	m := &measurement{Servers: &fileserver.Servers{Env: experiment.Env{Work: dir, Bench: &subject.Bench{Dir: "../../../bench"}}}}
	var err error
	if m.cert, m.key, err = fileserver.Certificate(dir); err != nil {
		t.Fatal(err)
	}
	p := fileserver.Place{Site: dir, Dir: dir, Address: "127.0.0.1:8081", Socket: filepath.Join(dir, "s")}
	for peer, name := range map[string]string{"h2o": "tls.conf.tmpl", "caddy": "Caddyfile.tmpl"} {
		if err := m.config(p, peer, name); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, configName)); err != nil || !strings.Contains(string(text), "8081") || !strings.Contains(string(text), m.cert) {
			t.Errorf("%s: %v\n%s", peer, err, text)
		}
	}
	l := m.NginxWith(t.Context(), "tls.conf.tmpl", func(p fileserver.Place) map[string]string {
		return map[string]string{"Site": p.Site, "Address": p.Address, "Cert": m.cert, "Key": m.key}
	})
	if missing := (subject.Missing{}); errors.As(l.Missing, &missing) {
		t.Skip(l.Missing)
	}
	if l.Missing != nil {
		t.Fatal(l.Missing)
	}
	if err := l.Prepare(p); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), l.Exe, append(l.Args(p), "-t")...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// slotOn is a task's slot on a server that is this process.
func slotOn(t *testing.T, at string) trial.TaskSlot {
	t.Helper()
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	return trial.TaskSlot{URL: at, Target: target, Window: func(bool) {}, Length: 50 * time.Millisecond}
}

// TestShake: full handshakes are full, and resumed ones are resumed.
func TestShake(t *testing.T) {
	m, at := pageServer(t)
	m.quick = true
	for _, http2 := range []bool{false, true} {
		for _, resumed := range []bool{false, true} {
			got, err := m.shake(t.Context(), slotOn(t, at), http2, resumed)
			if err != nil || got.Done != clients*newConnectionsQuick {
				t.Errorf("HTTP/2 %v, resumed %v: %+v, %v", http2, resumed, got, err)
			}
		}
	}
}

// A server without tickets is no figure for resumed sessions.
func TestShakeWithoutTickets(t *testing.T) {
	m := &measurement{page: []byte("a page"), quick: true}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(m.page) }))
	s.TLS = &tls.Config{SessionTicketsDisabled: true}
	s.StartTLS()
	defer s.Close()
	if _, err := m.shake(t.Context(), slotOn(t, s.URL+"/"), false, true); !errors.Is(err, errNotResumed) {
		t.Error(err)
	}
}

func TestHold(t *testing.T) {
	m, at := pageServer(t)
	for _, http2 := range []bool{false, true} {
		if got, err := m.hold(t.Context(), at, slotOn(t, at).Target, http2, 20); err != nil || got.Done != 20 {
			t.Errorf("HTTP/2 %v: %+v, %v", http2, got, err)
		}
	}
}

// TestView: everything of the page is asked for, and what is missing is no figure.
func TestView(t *testing.T) {
	var asked atomic.Int64
	missing := "/none"
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == missing {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		w.Write([]byte("something"))
	})
	m := &measurement{quick: true}
	got, err := m.view(t.Context(), slotOn(t, s.URL+"/"))
	if want := int64(visitors * (viewsQuick + 2) * (assets + 1)); err != nil || got.Done != visitors*viewsQuick || asked.Load() != want {
		t.Errorf("%+v, %v, asked %d times, not %d", got, err, asked.Load(), want)
	}
	missing = pageFiles()[7].Path
	if _, err := m.view(t.Context(), slotOn(t, s.URL+"/")); !errors.Is(err, errAnswer) {
		t.Errorf("without an asset: %v", err)
	}
}

func TestEach(t *testing.T) {
	var done atomic.Int64
	if err := each(100, 7, func(int) error { done.Add(1); return nil }); err != nil || done.Load() != 100 {
		t.Errorf("%d of 100, %v", done.Load(), err)
	}
	if err := each(100, 7, func(int) error { return errAnswer }); !errors.Is(err, errAnswer) {
		t.Error(err)
	}
}
