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
	"millrace/lab/record"
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
	for _, name := range append(servers(), noLane, bareNet, caddyH3, millraceH3) {
		arms = append(arms, trial.Arm{Name: name})
	}
	return arms
}

// TestRows: every row is complete and the plan holds, in quick runs as well.
func TestRows(t *testing.T) {
	all := (&measurement{}).rows()
	for _, r := range all {
		if r.Name == "" || r.About == "" || r.Figure == "" || r.Metric == "" || r.Task == nil && r.Load.Connections == 0 || len(r.Arms) < 2 {
			t.Errorf("%q is incomplete", r.Name)
		}
		if !slices.Contains(r.Arms, r.Ours) {
			t.Errorf("%q is measured without millrace", r.Name)
		}
	}
	for _, mode := range []record.Mode{record.Quick, record.Full} {
		p := schedule().Plan(testArms(), all, metrics(), experiment.Env{Mode: mode})
		if err := p.Check(); err != nil {
			t.Error(err)
		}
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
	if err := other.look(t.Context(), at, true); !errors.Is(err, experiment.ErrAnswer) {
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

// TestConfigs: nginx takes its config, and the others' have all their fields.
func TestConfigs(t *testing.T) {
	dir := t.TempDir()
	m := &measurement{Servers: &experiment.Servers{Env: experiment.Env{Work: dir, Bench: &subject.Bench{Dir: "../../bench"}}}}
	var err error
	if m.cert, m.key, err = experiment.Certificate(dir); err != nil {
		t.Fatal(err)
	}
	p := experiment.Place{Site: dir, Dir: dir, Address: "127.0.0.1:8081", Second: "127.0.0.1:8082", Socket: filepath.Join(dir, "s")}
	for peer, name := range map[string]string{"h2o": "tls.conf.tmpl", "caddy": "Caddyfile.tmpl"} {
		if err := m.WriteConfig(p, m.peer(peer, name, "h1")); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(experiment.ConfigFile(p)); err != nil || !strings.Contains(string(text), "8081") || !strings.Contains(string(text), m.cert) {
			t.Errorf("%s: %v\n%s", peer, err, text)
		}
	}
	l := m.NginxWith(t.Context(), "tls.conf.tmpl", func(p experiment.Place) map[string]string {
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

// A server without tickets is not a figure for resumed sessions.
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

// TestView: everything of the page is asked for, and what is missing is not a figure.
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
	if want := int64(visitors * (viewsQuick + 2) * (experiment.Assets + 1)); err != nil || got.Done != visitors*viewsQuick || asked.Load() != want {
		t.Errorf("%+v, %v, asked %d times, not %d", got, err, asked.Load(), want)
	}
	missing = experiment.PageFiles()[7].Path
	if _, err := m.view(t.Context(), slotOn(t, s.URL+"/")); !errors.Is(err, experiment.ErrAnswer) {
		t.Errorf("without an asset: %v", err)
	}
}
