package protocols

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	quichttp "github.com/quic-go/quic-go/http3"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/link"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// TestRows: every row is complete, the plan holds, and without a link those on the
// machine itself are left.
func TestRows(t *testing.T) {
	m := &measurement{divisor: 1}
	for _, r := range m.rows() {
		if r.Name == "" || r.About == "" || r.Figure == "" || r.Task == nil || len(r.Arms) != 3 || !slices.Contains(r.Arms, r.Ours) {
			t.Errorf("%q is incomplete", r.Name)
		}
	}
	var arms []trial.Arm
	for _, p := range peers() {
		arms = append(arms, trial.Arm{Name: p.Arm})
	}
	plan := experiment.Schedule{Rounds: rounds, Slot: time.Second}.Plan(arms, m.rows(), metrics(), experiment.Env{Mode: record.Full})
	if err := plan.Check(); err != nil {
		t.Error(err)
	}
	m.noLink = link.ErrUnsupported
	var notes []string
	chosen, err := experiment.ChooseRows(m.rows(), nil, true, func(format string, _ ...any) { notes = append(notes, format) })
	if err != nil || len(chosen) != len(m.kinds()) || len(notes) != 1 {
		t.Errorf("without a link: %d rows, notes %q, %v", len(chosen), notes, err)
	}
}

// server answers over all protocols, in the link's network where there is one, with
// what the experiment asks for; missing names a path that it does not have.
func server(t *testing.T, m *measurement, missing *string) (url string) {
	t.Helper()
	files := map[string][]byte{experiment.LargePath: make([]byte, m.large)}
	for _, f := range slices.Concat(experiment.Site(), experiment.PageFiles()) {
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
	m := &measurement{divisor: 100, large: 100_000}
	var err error
	if m.link, err = link.Open(1); err != nil && !errors.Is(err, link.ErrUnsupported) {
		t.Fatal(err)
	}
	where := places()[:1]
	if m.link != nil {
		defer m.link.Close()
		where = places()
	}
	var missing string
	at := server(t, m, &missing)
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	for _, arm := range []string{http1, http2, http3} {
		slot := trial.TaskSlot{Arm: arm, URL: at, Target: target, Window: func(bool) {}}
		if err := m.look(t.Context(), arm, at); err != nil {
			t.Errorf("%s: %v", arm, err)
		}
		for _, p := range where {
			for _, k := range m.kinds() {
				got, err := k.task(m, t.Context(), slot, p)
				if err != nil || got.Done == 0 || got.Values[usual] <= 0 || got.Values[slow] < got.Values[usual] {
					t.Errorf("%s, %s%s: %+v, %v", arm, k.name, p.suffix, got, err)
				}
				if least := 2 * p.conditions.Delay; got.Values[usual] < float64(least) {
					t.Errorf("%s, %s%s takes %v, less than a round trip", arm, k.name, p.suffix, time.Duration(got.Values[usual]))
				}
			}
		}
		missing = experiment.PageFiles()[7].Path
		if _, err := m.page(t.Context(), slot, where[0]); !errors.Is(err, experiment.ErrAnswer) {
			t.Errorf("%s, without an asset: %v", arm, err)
		}
		missing = ""
	}
	m.large++
	if _, err := m.download(context.Background(), trial.TaskSlot{Arm: http3, URL: at, Window: func(bool) {}}, where[0]); !errors.Is(err, experiment.ErrAnswer) {
		t.Errorf("a file that is too short: %v", err)
	}
}

// The answer names what was measured, and the table all rows.
func TestConclude(t *testing.T) {
	res := &record.Result{Metrics: metrics()}
	m := &measurement{Stage: experiment.NewStage(experiment.Env{}, res)}
	all := m.rows()
	for i, p := range peers() {
		for _, r := range all {
			res.Samples = append(res.Samples, record.Sample{Arm: p.Arm, Workload: r.Name, Values: map[string]float64{experiment.CPU: float64(i+1) * 1000, usual: float64(i+1) * 1e6, slow: float64(i+1) * 2e6}})
		}
	}
	m.conclude(res, all)
	for _, want := range []string{"“small” costs the server 1 µs over HTTP/1.1", "“page-lossy” takes 1 ms over HTTP/1.1, 2 ms over HTTP/2 and 3 ms over HTTP/3"} {
		if !strings.Contains(res.Answer, want) {
			t.Errorf("the answer is %q, without %q", res.Answer, want)
		}
	}
	some := all[1:2]
	if m.conclude(res, some); !strings.Contains(res.Answer, "“"+some[0].Name+"” takes 1 ms over HTTP/1.1") {
		t.Errorf("the answer about %s alone is %q", some[0].Name, res.Answer)
	}
	if n := len(res.Tables[0].Rows); n != 3*len(all) {
		t.Errorf("%d lines in the table for %d rows", n, len(all))
	}
}
