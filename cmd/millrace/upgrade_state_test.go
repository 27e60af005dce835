//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// metrics is what the process that serves has counted.
func (u *upgraded) metrics() string {
	u.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(u.dir, "a.sock"))
	}}
	resp, err := (&http.Client{Transport: tr}).Get("http://admin/metrics")
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

// TestUpgradeKeepsTheLaneWarm: the new process has what clients have asked for, by
// requests that nobody sees: not the log, not the counters, not the rate limits.
func TestUpgradeKeepsTheLaneWarm(t *testing.T) {
	t.Parallel() // beside the scripts: it mostly waits
	const pages = 200
	files := t.TempDir()
	for i := range pages {
		if err := os.WriteFile(filepath.Join(files, fmt.Sprint(i)), []byte("page"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(files, "index.html"), []byte("home"), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Cache-Control", "max-age=3600")
		fmt.Fprint(w, "fetched")
	}))
	defer upstream.Close()
	u := newUpgraded(t)
	u.start(fmt.Sprintf("/: {static: {root: %q}}, /c/: {rate_limit: {rate: 10/m, burst: 4}, cache: {to: [%q], memory: 1MiB}}", files, upstream.URL))
	get := func(path string) {
		t.Helper()
		resp, err := http.Get("http://" + u.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
	}
	all := func() {
		t.Helper()
		for i := range pages {
			get(fmt.Sprintf("/%d", i))
		}
		get("/c/x")
		get("/c/x")
	}
	all()
	if text, err := u.upgrade(); err != nil {
		t.Fatal(text)
	}
	if m := u.metrics(); strings.Contains(m, `millrace_requests_total{`) {
		t.Error("requests were counted that nobody has made")
	}
	before := asked.Load()
	u.waitFor(func() bool { return len(u.processes()) == 1 })
	all()
	if n := asked.Load() - before; n != 0 {
		t.Errorf("%d requests to the upstream for what was asked before", n)
	}
	m := u.metrics()
	for _, want := range []string{
		fmt.Sprintf(`millrace_requests_total{code="200",job="static",lane="fast"} %d`, pages),
		`millrace_requests_total{code="200",job="cache",lane="fast"} 2`,
	} {
		if !strings.Contains(m, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(m) {
			if strings.HasPrefix(line, "millrace_requests_total") || strings.HasPrefix(line, "millrace_lane") {
				t.Log(line)
			}
		}
	}
}

// TestUpgradeForwardsPurges: what is purged in the old process, by a request that
// has begun there, is purged in the new one.
func TestUpgradeForwardsPurges(t *testing.T) {
	var version atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			version.Add(1)
		}
		w.Header().Set("Cache-Control", "max-age=3600")
		fmt.Fprint(w, version.Load())
	}))
	defer upstream.Close()
	u := startUpgraded(t, fmt.Sprintf("/: {respond: fine}, /c/: {cache: {to: [%q], disk: cache, stream: true}}", upstream.URL))
	get := func() string {
		t.Helper()
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + u.addr + "/c/x")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	if got := get(); got != "0" {
		t.Fatal(got)
	}
	read, write := io.Pipe()
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Post("http://"+u.addr+"/c/x", "text/plain", read)
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	if _, err := write.Write(make([]byte, 100<<10)); err != nil { // the old process has the request
		t.Fatal(err)
	}
	if text, err := u.upgrade(); err != nil {
		t.Fatal(text)
	}
	u.waitFor(func() bool { // until the new one has all who connect
		got := get()
		if got != "0" {
			t.Fatalf("before: %q", got)
		}
		return strings.Contains(u.metrics(), `millrace_requests_total{code="200",job="cache"`)
	})
	_ = write.Close()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if got := get(); got != "1" {
		t.Errorf("after: %q\n%s", got, u.log)
	}
}

// TestUpgradeKeepsCounting: who has had its share before has had it afterwards.
func TestUpgradeKeepsCounting(t *testing.T) {
	u := startUpgraded(t, "/: {respond: fine}, /few/: {respond: fine, rate_limit: 3/h}")
	status := func() int {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, "http://"+u.addr+"/few/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Close = true
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for i, want := range []int{http.StatusOK, http.StatusOK, 0, http.StatusOK, http.StatusTooManyRequests, 0, http.StatusTooManyRequests} {
		if want != 0 {
			if got := status(); got != want {
				t.Errorf("request %d: %d, not %d", i, got, want)
			}
			continue
		}
		if text, err := u.upgrade(); err != nil {
			t.Fatal(text)
		}
		u.waitFor(func() bool { return len(u.processes()) == 1 })
	}
}
