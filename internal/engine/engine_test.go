package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// The parallel tests here wait for CAs and for clocks, and all can do so at once,
// however few processors there are.
const waiting = 16

func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"PEBBLE_VA_NOSLEEP":      "1",
		"PEBBLE_WFE_NONCEREJECT": "20", // every fifth, as a client must bear
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil {
		if err := f.Value.Set(strconv.Itoa(waiting)); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m,
		// The tests' CA, and certmagic's limits for a CA, never end theirs; a lock
		// of certmagic's finds out only at its next look that it is gone.
		goleak.IgnoreTopFunction("github.com/letsencrypt/pebble/v2/va.VAImpl.processTasks"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*RingBufferRateLimiter).loop"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),
	)
}

// folder makes a site of files in a temporary folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// parse reads a config, its admin listener and log off.
func parse(t *testing.T, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("admin: {listen: off}\nlog: {format: off}\n"+yaml))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// start runs a server until the test ends.
func start(t *testing.T, cfg *config.Config) *engine.Server {
	t.Helper()
	srv, err := engine.New(cfg, engine.Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = srv.Close()
		<-ended
	})
	return srv
}

// conn is one client connection, so that a test knows what shares it.
type conn struct {
	net.Conn
	t *testing.T
}

func dial(t *testing.T, url string) *conn {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(30 * time.Second))
	return &conn{nc, t}
}

// get sends one request and returns the status and the body.
func (c *conn) get(host, path string) (int, string) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host); err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestReloadAddsADenyRuleToAHotPath(t *testing.T) {
	dir := folder(t, map[string]string{"secret/plan.txt": "the plan", "open.txt": "open"})
	route := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {static: {root: %q}}\n", dir)
	srv := start(t, parse(t, route))
	c := dial(t, srv.Addrs()[0])
	for range 5 { // by now the lane has it
		if status, body := c.get("a", "/secret/plan.txt"); status != 200 || body != "the plan" {
			t.Fatalf("before the rule: %d %q", status, body)
		}
	}
	if err := srv.Reload(parse(t, route+"    /secret/: {deny: {status: 403}}\n")); err != nil {
		t.Fatal(err)
	}
	if status, _ := c.get("a", "/secret/plan.txt"); status != 403 {
		t.Errorf("after the rule: %d, want 403", status)
	}
	if status, body := c.get("a", "/open.txt"); status != 200 || body != "open" {
		t.Errorf("the rest of the site: %d %q", status, body)
	}
	if err := srv.Reload(parse(t, route)); err != nil {
		t.Fatal(err)
	}
	if status, _ := c.get("a", "/secret/plan.txt"); status != 200 {
		t.Errorf("after the rule was taken back: %d, want 200", status)
	}
}

func TestReloadThatFailsChangesNothing(t *testing.T) {
	dir := folder(t, map[string]string{"a.txt": "a"})
	srv := start(t, parse(t, fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {static: {root: %q}}\n", dir)))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	bad := parse(t, fmt.Sprintf("listen: [127.0.0.1:0, %s]\nsites:\n- routes:\n    /: {deny: {}}\n", taken.Addr()))
	if err := srv.Reload(bad); err == nil || !strings.Contains(err.Error(), "another program uses this port") {
		t.Fatalf("a reload with a taken port: %v", err)
	}
	if status, body := dial(t, srv.Addrs()[0]).get("a", "/a.txt"); status != 200 || body != "a" {
		t.Errorf("after the failed reload: %d %q", status, body)
	}
}

func TestSitesOnOneListenerKeepApart(t *testing.T) {
	one, two := folder(t, map[string]string{"index.html": "one"}), folder(t, map[string]string{"index.html": "two"})
	srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
sites:
- {hosts: [one.test], routes: {/: {static: {root: %q}}}}
- {hosts: [two.test, "*.two.test"], routes: {/: {static: {root: %q}}}}
`, one, two)))
	c := dial(t, srv.Addrs()[0])
	for range 3 {
		for host, want := range map[string]string{
			"one.test": "one", "ONE.test": "one", "one.test:80": "one", "two.test": "two", "x.two.test": "two",
		} {
			if status, body := c.get(host, "/"); status != 200 || body != want {
				t.Errorf("%s: %d %q, want %q", host, status, body, want)
			}
		}
		if status, _ := c.get("three.test", "/"); status != 404 {
			t.Errorf("an unknown host: %d, want 404", status)
		}
	}
}

func TestPlainListenerRedirectsWhereTLSServes(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "secure"})
	cert, key, pool := certificate(t)
	srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
tls: {listen: ["127.0.0.1:0"], cert: %q, key: %q, redirect: true}
sites:
- routes: {/: {static: {root: %q}}}
`, cert, key, dir)))
	plainURL, secureURL := srv.Addrs()[0], srv.Addrs()[1]
	plain := dial(t, plainURL)
	for range 4 {
		secure := tls.Client(dial(t, secureURL).Conn, &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"http/1.1"}})
		sc := &conn{secure, t}
		for range 3 {
			if status, body := sc.get("localhost", "/"); status != 200 || body != "secure" {
				t.Fatalf("over TLS: %d %q", status, body)
			}
		}
		if status, _ := plain.get("localhost", "/"); status != 308 {
			t.Fatalf("over plain HTTP: %d, want 308", status)
		}
	}
}

// TestEditsShowAtOnce writes a file over and over while its answer is hot: the
// new content must be there within a second at the most, and old content must
// never come back.
func TestEditsShowAtOnce(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "version 0"})
	srv := start(t, parse(t, fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {static: {root: %q}}\n", dir)))
	c := dial(t, srv.Addrs()[0])
	for version := 1; version <= 20; version++ {
		want := fmt.Sprintf("version %d", version)
		tmp := filepath.Join(t.TempDir(), "new")
		write(t, tmp, want)
		if err := os.Rename(tmp, filepath.Join(dir, "index.html")); err != nil {
			t.Fatal(err)
		}
		seen := false
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
			_, body := c.get("a", "/")
			if body == want {
				seen = true
				break
			}
		}
		if !seen {
			t.Fatalf("%s never came", want)
		}
		for range 20 {
			if _, body := c.get("a", "/"); body != want {
				t.Fatalf("%s came back after %s", body, want)
			}
		}
	}
}

var dateLine = regexp.MustCompile(`(?m)^Date: .*\r\n`)

// TestNoLaneGivesTheSameBytes asks two servers, one without the lane, for every
// file of the example site in several ways, twice each, so that the second
// answer is the lane's. Only the date may differ.
func TestNoLaneGivesTheSameBytes(t *testing.T) {
	site := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {static: {root: %q, no_compress: true}}\n", "../../examples/site")
	with, without := start(t, parse(t, site)), start(t, parse(t, site+"lane: {off: true}\n"))
	a, b := dial(t, with.Addrs()[0]), dial(t, without.Addrs()[0])
	paths := []string{"/", "/nowhere", "/assets", "/?q=1"}
	err := fs.WalkDir(os.DirFS("../../examples/site"), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, "/"+path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	headers := []string{"", "Accept-Encoding: gzip, deflate, br, zstd\r\n", "If-None-Match: \"x\"\r\n", "Range: bytes=0-9\r\n", "Cookie: a=b\r\n"}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD"} {
			for _, header := range headers {
				request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\n%s\r\n", method, path, header)
				for range 2 {
					x, y := a.dump(method, request), b.dump(method, request)
					if !bytes.Equal(x, y) {
						t.Fatalf("%q\nwith the lane:\n%s\nwithout:\n%s", request, x, y)
					}
				}
			}
		}
	}
}

// dump is an answer as it came, less its date.
func (c *conn) dump(method, request string) []byte {
	c.t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		c.t.Fatal(err)
	}
	var raw bytes.Buffer
	req, _ := http.NewRequest(method, "/", nil)
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &raw)), req)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := httputil.DumpResponse(resp, true); err != nil {
		c.t.Fatal(err)
	}
	return dateLine.ReplaceAll(raw.Bytes(), nil)
}

func TestReloadsUnderLoadLoseNothing(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "hello", "big.bin": strings.Repeat("x", 1<<20)})
	base := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {static: {root: %q}}\n", dir)
	srv := start(t, parse(t, base))
	url := srv.Addrs()[0]
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 8 {
		c := dial(t, url)
		path, size := "/", 5
		if i%4 == 3 {
			path, size = "/big.bin", 1<<20
		}
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, body := c.get("a", path); status != 200 || len(body) != size {
					t.Errorf("%s: %d with %d bytes", path, status, len(body))
					return
				}
			}
		})
	}
	for i := range 50 {
		if err := srv.Reload(parse(t, base+fmt.Sprintf("    /v%d: {deny: {}}\n", i))); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	clients.Wait()
}

func TestNothingIsHalfStarted(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": "x"})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_ = free.Close()
	cfg := parse(t, fmt.Sprintf("listen: [%s, %s]\nsites:\n- routes:\n    /: {static: {root: %q}}\n", addr, taken.Addr(), dir))
	if _, err := engine.New(cfg, engine.Options{}); err == nil {
		t.Fatal("New succeeded on a port that is in use")
	}
	if c, err := net.Dial("tcp", addr); err == nil {
		_ = c.Close()
		t.Error("the first address is still open after the second one failed")
	}
}

// certificate makes a pair of PEM files for localhost.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	c := servertest.Make(t, "localhost", "localhost")
	cert, key = servertest.Files(t, c, t.TempDir())
	return cert, key, servertest.Pool(c)
}
