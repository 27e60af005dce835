package pgo

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRecord: over TCP and UNIX sockets, with the seconds asked for, and
// progress that has ended with it.
func TestRecord(t *testing.T) {
	want := newBuilder().add(10, "main.f").bytes(t)
	var asked string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		_, _ = w.Write(want)
	})
	tcp := httptest.NewServer(handler)
	defer tcp.Close()
	dir, err := os.MkdirTemp("", "pgo")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	unix := &httptest.Server{Listener: ln, Config: &http.Server{Handler: handler}}
	unix.Start()
	defer unix.Close()
	for target, url := range map[string]string{
		tcp.URL:                                "/debug/pprof/profile?seconds=2",
		strings.TrimPrefix(tcp.URL, "http://"): "/debug/pprof/profile?seconds=2",
		tcp.URL + "/":                          "/debug/pprof/profile?seconds=2",
		tcp.URL + "/internal/debug/pprof/profile?x": "/internal/debug/pprof/profile?seconds=2&x=",
		"unix:" + socket: "/debug/pprof/profile?seconds=2",
	} {
		calls := 0
		data, err := Record(t.Context(), Recording{Target: target, Duration: 1100 * time.Millisecond, Progress: func(_, total time.Duration) {
			calls++
			if total != 2*time.Second {
				t.Errorf("%v in all", total)
			}
		}})
		if err != nil || string(data) != string(want) || asked != url {
			t.Errorf("%s: asked for %s, %v", target, asked, err)
		}
		if calls == 0 {
			t.Errorf("%s: no progress", target)
		}
	}
}

// TestRecordRefused: each reason has its own error, and no profile comes.
func TestRecordRefused(t *testing.T) {
	idle := newBuilder().bytes(t)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		is     error
		says   string
	}{
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Could not enable CPU profiling: cpu profiling already in use", http.StatusInternalServerError)
		}, ErrBusy, ""},
		"none":    {http.NotFound, ErrNoProfiles, "404"},
		"refused": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not\nfor you", http.StatusForbidden) }, nil, "it answered 403: not for you"},
		"idle":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(idle) }, ErrEmpty, ""},
		"page":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<!doctype html>")) }, ErrNotCPU, ""},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, ErrNotCPU, "is empty"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("x"))
		}, nil, "unexpected EOF"},
	} {
		s := httptest.NewServer(c.answer)
		_, err := Record(t.Context(), Recording{Target: s.URL, Duration: time.Second})
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
	for _, target := range []string{"", "ftp://x", "http://", "unix:/no/such/socket", "127.0.0.1:1", "a b:c"} {
		if _, err := Record(t.Context(), Recording{Target: target, Duration: time.Second}); err == nil {
			t.Errorf("%q was recorded", target)
		}
	}
	for _, d := range []time.Duration{-1, MaxRecording + 1} {
		if _, err := Record(t.Context(), Recording{Target: "127.0.0.1:1", Duration: d}); err == nil || !strings.Contains(err.Error(), "between") {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// TestRecordStopped: when the caller gives up, so does the recording.
func TestRecordStopped(t *testing.T) {
	started := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-started; stop() }()
	if _, err := Record(ctx, Recording{Target: s.URL}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
