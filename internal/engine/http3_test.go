package engine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// overHTTP3 is a client of a server that speaks it.
func overHTTP3(t *testing.T, srv *engine.Server, pool *x509.CertPool) *way {
	t.Helper()
	return wayTo(t, "h3", srv, &tls.Config{RootCAs: pool, ServerName: "localhost"})
}

// http3Site is the config of a site of all jobs over HTTP/3, and its upstream.
func http3Site(t *testing.T) (yaml, addr string, pool *x509.CertPool) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Length", strconv.FormatInt(r.ContentLength, 10))
		fmt.Fprintf(w, "%s %s %q", r.Method, r.URL.Path, body)
	}))
	t.Cleanup(upstream.Close)
	cert, key, pool := certificate(t)
	dir := folder(t, map[string]string{"index.html": "page", "large.bin": strings.Repeat("0123456789abcdef", 1<<17)})
	pictures := t.TempDir()
	place(t, filepath.Join(pictures, "a.jpg"), photo(t, 1), time.Hour)
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	return fmt.Sprintf(`
listen: []
tls: {listen: %q, cert: %q, key: %q, http3: true}
limits: {drain_timeout: 10s}
sites:
- routes:
    /: {static: {root: %q}}
    /api/: {cache: {to: [%q]}}
    /proxy/: {proxy: {to: [%q]}}
    /photos/: {static: {root: %q}, images: {formats: [webp], store: %q, wait: 20s, no_best: true}}
`, addr, cert, key, dir, upstream.URL, upstream.URL, pictures, filepath.Join(t.TempDir(), "kept")), addr, pool
}

// All jobs answer over HTTP/3 as they do over TCP, hot or not, and every answer
// says where HTTP/3 is spoken.
func TestHTTP3(t *testing.T) {
	yaml, addr, pool := http3Site(t)
	srv := start(t, parse(t, yaml))
	c := overHTTP3(t, srv, pool)
	tcp := wayTo(t, "h2", srv, &tls.Config{RootCAs: pool})
	want := `h3=":` + addr[strings.LastIndex(addr, ":")+1:] + `"; ma=86400`
	for range 4 { // the first is not hot
		for path, body := range map[string]string{"/": "page", "/api/x": `GET /api/x ""`, "/proxy/x": `GET /proxy/x ""`, "/none": ""} {
			resp, got := c.ask(http.MethodGet, path, "")
			if body != "" && got != body || resp.ProtoMajor != 3 || resp.Header.Get("Alt-Svc") != want || resp.Header.Get("Server") != "millrace" {
				t.Errorf("%s: %s %q %v", path, resp.Proto, got, resp.Header)
			}
			for name := range resp.Header {
				if name == "Keep-Alive" || name == "Connection" {
					t.Errorf("%s: the answer has %s", path, name)
				}
			}
			other, same := tcp.ask(http.MethodGet, path, "")
			if other.StatusCode != resp.StatusCode || same != got || other.Header.Get("Alt-Svc") != want || other.Header.Get("Etag") != resp.Header.Get("Etag") {
				t.Errorf("%s over TCP: %s %q %v", path, other.Status, same, other.Header)
			}
		}
	}
	if resp, got := c.ask(http.MethodGet, "/large.bin", ""); len(got) != 2<<20 || resp.ContentLength != 2<<20 {
		t.Errorf("a large file: %d bytes", len(got))
	}
	for range 3 {
		resp, got, err := c.try(http.MethodGet, "/photos/a.jpg", "", http.Header{"Accept": {"image/webp"}})
		if err != nil || resp.Header.Get("Content-Type") != "image/webp" || len(got) == 0 {
			t.Errorf("a picture: %v, %v", resp, err)
		}
	}
	if _, got, err := c.try(http.MethodPost, "/proxy/y", "some text", nil); err != nil || got != `POST /proxy/y "some text"` {
		t.Errorf("an upload: %q, %v", got, err)
	}
	if resp, _ := c.ask(http.MethodGet, "/proxy/z", ""); resp.Header.Get("X-Length") != "0" {
		t.Errorf("a GET reaches the upstream with a body of %s bytes", resp.Header.Get("X-Length"))
	}
	page, _ := c.ask(http.MethodGet, "/", "")
	for range 2 {
		resp, got, err := c.try(http.MethodGet, "/", "", http.Header{"If-None-Match": page.Header["Etag"]})
		if err != nil || resp.StatusCode != http.StatusNotModified || got != "" {
			t.Errorf("a condition: %v, %q, %v", resp, got, err)
		}
		resp, got, err = c.try(http.MethodHead, "/", "", nil)
		if err != nil || resp.StatusCode != http.StatusOK || got != "" || resp.Header.Get("Content-Length") != "4" {
			t.Errorf("HEAD: %v, %q, %v", resp, got, err)
		}
	}
}

// A reload changes routes and keeps the connections. When http3 goes, answers no
// longer speak of it, and the port is free again.
func TestHTTP3Reload(t *testing.T) {
	yaml, _, pool := http3Site(t)
	srv := start(t, parse(t, yaml))
	c := overHTTP3(t, srv, pool)
	stop := make(chan struct{})
	var visitors sync.WaitGroup
	for range 4 {
		visitors.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if resp, _, err := c.try(http.MethodGet, "/", "", nil); err != nil || resp.StatusCode != http.StatusOK {
					t.Errorf("during the reloads: %v, %v", resp, err)
					return
				}
			}
		})
	}
	for i := range 5 {
		reload(t, srv, parse(t, strings.Replace(yaml, "/api/:", fmt.Sprintf("/api%d/:", i), 1)))
		if resp, _ := c.ask(http.MethodGet, fmt.Sprintf("/api%d/x", i), ""); resp.StatusCode != http.StatusOK {
			t.Errorf("after reload %d: %s", i, resp.Status)
		}
	}
	close(stop)
	visitors.Wait()
	reload(t, srv, parse(t, strings.Replace(yaml, "http3: true", "http3: false", 1)))
	resp, _ := wayTo(t, "tls", srv, &tls.Config{RootCAs: pool}).ask(http.MethodGet, "/", "")
	if text := resp.Header.Get("Alt-Svc"); text != "" {
		t.Errorf("Alt-Svc: %s", text)
	}
	reload(t, srv, parse(t, yaml))
	if resp, _ := overHTTP3(t, srv, pool).ask(http.MethodGet, "/", ""); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// A drain lets requests end, tells clients to go, and closes idle connections.
func TestHTTP3Drain(t *testing.T) {
	t.Parallel() // it mostly waits
	begun, finish := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/late" {
			return
		}
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "late")
	}))
	defer upstream.Close()
	cert, key, pool := certificate(t)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	srv, err := engine.New(parse(t, fmt.Sprintf("listen: []\ntls: {listen: %q, cert: %q, key: %q, http3: true}\nsites: [{routes: {/: {proxy: {to: [%q]}}}}]\n",
		addr, cert, key, upstream.URL)), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, drain := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	c := overHTTP3(t, srv, pool)
	var asked sync.WaitGroup
	asked.Go(func() {
		if _, got, err := c.try(http.MethodGet, "/late", "", nil); got != "late" {
			t.Errorf("a request in a drain: %q, %v", got, err)
		}
	})
	<-begun
	drain()
	servertest.Eventually(t, "new connections are refused", func() bool {
		_, _, err := overHTTP3(t, srv, pool).try(http.MethodGet, "/", "", nil)
		return err != nil
	})
	close(finish)
	asked.Wait()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the drain does not end")
		_ = srv.Close()
		<-ended
	}
}

// A UDP port that another program has is named, and nothing stays open.
func TestHTTP3PortInUse(t *testing.T) {
	yaml, addr, _ := http3Site(t)
	taken, err := net.ListenPacket("udp", addr) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = engine.New(parse(t, yaml), engine.Options{})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "UDP port") || !strings.Contains(err.Error(), "set tls.http3 to false") {
		t.Errorf("%v", err)
	}
}
