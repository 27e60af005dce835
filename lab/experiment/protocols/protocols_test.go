package protocols

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	quichttp "github.com/quic-go/quic-go/http3"

	"millrace/lab/experiment"
	"millrace/lab/link"
	"millrace/lab/record"
	"millrace/lab/site"
	"millrace/lab/trial"
)

const largeSize = 100_000

// server answers over all protocols, in the link's network where there is one, with
// what the experiment asks for; missing names a path that it does not have.
func server(t *testing.T, m *measurement, missing *string) (url string) {
	t.Helper()
	files := map[string][]byte{site.LargePath: make([]byte, largeSize)}
	for _, f := range slices.Concat(site.Small(), site.Page()) {
		files[f.Path] = f.Content()
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := files[r.URL.Path]
		if !ok || r.URL.Path == *missing {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	})
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	_ = s.Listener.Close()
	var socket net.PacketConn
	open := func() (err error) {
		if s.Listener, err = net.Listen("tcp4", "0.0.0.0:0"); err != nil {
			return err
		}
		socket, err = net.ListenPacket("udp4", s.Listener.Addr().String())
		return err
	}
	if m.link != nil {
		if err := m.link.Within(open); err != nil {
			t.Fatal(err)
		}
	} else if err := open(); err != nil {
		t.Fatal(err)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	quic := &quichttp.Server{Handler: h, TLSConfig: quichttp.ConfigureTLSConfig(&tls.Config{Certificates: s.TLS.Certificates})}
	var wait sync.WaitGroup
	wait.Go(func() { _ = quic.Serve(socket) }) // ends with Close
	t.Cleanup(func() {
		_ = quic.Close()
		_ = socket.Close()
		wait.Wait()
	})
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return "https://127.0.0.1:" + port + "/"
}

// Everything is asked for over each protocol, near and over the link where there can
// be one, and what is missing is not a figure.
func TestVisits(t *testing.T) {
	spec, err := experiment.Read("protocols", record.Quick)
	if err != nil {
		t.Fatal(err)
	}
	m := &measurement{Run: experiment.NewRun(experiment.Env{Work: t.TempDir(), Seed: 1}, spec, &record.Result{})}
	if err := m.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.link != nil {
		defer m.link.Close()
	} else if !errors.Is(m.Missing["link"], link.ErrUnsupported) {
		t.Fatal(m.Missing["link"])
	}
	if err := os.Mkdir(m.Site, 0o755); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(m.Site, site.LargePath)
	if err := os.WriteFile(large, make([]byte, largeSize), 0o600); err != nil {
		t.Fatal(err)
	}
	var missing string
	at := server(t, m, &missing)
	tasks := map[string]experiment.Task{"small": m.small, "view": m.page, "download": m.download}
	for _, p := range spec.Peers {
		slot := trial.TaskSlot{Arm: p.Arm, URL: at, Window: func(bool) {}}
		if err := m.look(t.Context(), p.Arm, at); err != nil {
			t.Errorf("%s: %v", p.Arm, err)
		}
		for _, w := range spec.Workloads {
			if w.Needs == "link" && m.link == nil {
				continue
			}
			w.Count = max(1, w.Count/100)
			got, err := tasks[w.Task](t.Context(), slot, w)
			if err != nil || got.Done == 0 || got.Values["time_ns"] <= 0 || got.Values["slow_ns"] < got.Values["time_ns"] {
				t.Errorf("%s, %s: %+v, %v", p.Arm, w.Name, got, err)
			}
			if w.Over != "near" && got.Values["time_ns"] < float64(2*delay) {
				t.Errorf("%s, %s takes %v, less than a round trip", p.Arm, w.Name, time.Duration(got.Values["time_ns"]))
			}
		}
		missing = site.Page()[7].Path
		if _, err := m.page(t.Context(), slot, experiment.Workload{Over: "near", Connections: 1, Count: 1}); !errors.Is(err, experiment.ErrAnswer) {
			t.Errorf("%s, without an asset: %v", p.Arm, err)
		}
		missing = ""
	}
	if err := os.Truncate(large, largeSize+1); err != nil {
		t.Fatal(err)
	}
	w := experiment.Workload{Over: "near", Paths: []string{site.LargePath}, Connections: 1, Count: 1}
	if _, err := m.download(t.Context(), trial.TaskSlot{Arm: "http3", URL: at, Window: func(bool) {}}, w); !errors.Is(err, experiment.ErrAnswer) {
		t.Errorf("a file that is too short: %v", err)
	}
}
