package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/internal/route/site"
)

// Malformed requests get what net/http gives them, with a page in the place of its text.
func TestMalformedRequests(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", lane.ServerName)
		_, _ = io.WriteString(w, "fine\n")
	})
	plain := httptest.NewUnstartedServer(h)
	plain.Config.MaxHeaderBytes = 64 << 10
	plain.Start()
	t.Cleanup(plain.Close)
	r := start(t, plan{handler: h})
	for name, in := range map[string]string{
		"bad version":       "GET / HTTP/3.7\r\nHost: a\r\n\r\n",
		"no version":        "GET /\r\nHost: a\r\n\r\n",
		"not a number":      "GET / HTTP/x.y\r\nHost: a\r\n\r\n",
		"NUL":               "GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
		"NUL in the path":   "GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
		"bare CR":           "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
		"no Host":           "GET / HTTP/1.1\r\n\r\n",
		"double Host":       "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"bad Host":          "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"two lengths":       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"negative length":   "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
		"unknown coding":    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
		"bad name":          "GET / HTTP/1.1\r\nHost: a\r\nX Y: z\r\n\r\n",
		"100 KB of headers": "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 100) + "\r\n",
		"one of 100 KB":     "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 100_000) + "\r\n\r\n",
		"a target of 100KB": "GET /" + strings.Repeat("y", 100_000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"60 KB of headers":  "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 60) + "\r\n",
		"TLS":               "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"expectation":       "GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := net.Dial("tcp", plain.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			want := talk(t, nc, in, nil)
			for _, transport := range transports {
				got, as := talk(t, r.dial(t, transport).Conn, in, nil), want
				if status, text, refused := strings.Cut(want, "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"); refused {
					_, why, _ := strings.Cut(text, ": ")
					if strings.Contains(got, "X-Content-Type-Options: nosniff") && strings.Contains(got, why) {
						got, as = got[:len("HTTP/1.1 400")], status[:len("HTTP/1.1 400")]
					}
				}
				if got != as {
					t.Errorf("over %s: %q\nnet/http: %q", transport, got, want)
				}
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, fmt.Sprint(n, err), http.StatusRequestEntityTooLarge)
		}
	})
	r := start(t, plan{limits: Options{BodyBytes: 1000}, handler: h})
	chunked := func(n int) string {
		return request("POST", "/", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("x", n))
	}
	overAll(t, func(t *testing.T, transport string) {
		for _, q := range []struct {
			in    string
			fits  bool
			close bool
		}{
			{post("/", strings.Repeat("x", 1000)), true, false},
			{post("/", strings.Repeat("x", 1001)), false, true},
			{request("POST", "/", "Content-Length: 99999999999"), false, true},
			{chunked(1000), true, false},
			{chunked(1001), false, true},
		} {
			c := r.dial(t, transport)
			c.write(q.in)
			resp, _ := c.answer("POST")
			if fits := resp.StatusCode == 200; fits != q.fits || resp.Close != q.close || !fits && resp.StatusCode != 413 {
				t.Errorf("%.60q: %s, close %t", q.in, resp.Status, resp.Close)
			}
		}
	})
}

func TestPanickingHandler(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		c.write(request("GET", "/panic"))
		resp, body := c.answer("GET")
		id := regexp.MustCompile(`[A-Z2-7]{10}`).FindString(body)
		if resp.StatusCode != 500 || id == "" || strings.Contains(body, "a secret") || resp.Header.Get("Server") != lane.ServerName {
			t.Errorf("%s, %q", resp.Status, body)
		}
		if log := r.log.String(); !strings.Contains(log, id) || !strings.Contains(log, "a secret") {
			t.Errorf("the log has no cause under %s", id)
		}
		c.get("/slow") // the connection lives on
		c.write(request("GET", "/latepanic"))
		if _, body, err := c.tryAnswer("GET"); err == nil {
			t.Errorf("half an answer looks whole: %d bytes", len(body))
		}
	})
}

func TestCleanPathRedirects(t *testing.T) {
	r := start(t, plan{})
	c := r.dial(t, "tcp")
	for in, want := range map[string]string{
		"//hot": "/hot", "/a/../hot?x=%2e": "/hot?x=%2e", "/./hot": "/hot", "/..": "/", "/a//b/": "/a/b/",
		"/%2e%2e/hot": "/hot", "//evil.example/..": "/", "/a/..//evil.example": "/evil.example",
	} {
		for method, status := range map[string]int{"GET": 301, "POST": 308} {
			c.write(request(method, in, "Content-Length: 0"))
			if resp, _ := c.answer(method); resp.StatusCode != status || resp.Header.Get("Location") != want {
				t.Errorf("%s %s: %s to %q, want %d to %q", method, in, resp.Status, resp.Header.Get("Location"), status, want)
			}
		}
	}
}

// A target that is not a path is for nobody here.
func TestAsterisk(t *testing.T) {
	r := start(t, plan{})
	for _, transport := range transports {
		for _, line := range []string{"PRI * HTTP/2.0\r\n\r\nSM", "DELETE * HTTP/1.1\r\nHost: a"} {
			c := r.dial(t, transport)
			c.write(line + "\r\n\r\n")
			if resp, _ := c.answer("GET"); resp.StatusCode != 400 {
				t.Errorf("%q over %s: %s", line, transport, resp.Status)
			}
		}
	}
}

func TestSilentHandlerHasServerHeader(t *testing.T) {
	r := start(t, plan{})
	c := r.dial(t, "tcp")
	c.write(request("GET", "/silent"))
	if resp, _ := c.answer("GET"); resp.Header.Get("Server") != lane.ServerName || resp.StatusCode != 200 {
		t.Errorf("%s, Server %q", resp.Status, resp.Header.Get("Server"))
	}
}

// Further clients wait; who is idle makes room for them, who is served does not.
func TestConnectionLimit(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.HandleFunc("/wait", func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-release
	})
	r := start(t, plan{limits: Options{Connections: 2, ConnectionsPerAddress: 9}, handler: mux})
	busy, idle := r.dial(t, "tcp"), r.dial(t, "unix")
	busy.write(request("GET", "/wait"))
	<-running
	idle.get("/slow")
	third := r.dial(t, "unix")
	third.get("/slow")
	if !idle.ends() {
		t.Error("the idle connection was not closed")
	}
	third.write(request("GET", "/wait"))
	<-running
	fourth := r.dial(t, "tcp")
	fourth.write(request("GET", "/slow"))
	fifth, err := r.tryDialRaw()
	if err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "further clients are accepted", func() bool { return r.meters.Accepted.Load() == 5 })
	if n := r.srv.lane.Open(); n != 2 {
		t.Errorf("%d connections are served", n)
	}
	close(release)
	busy.answer("GET")
	third.answer("GET")
	fourth.answer("GET")
	_ = fifth.Close() // in the middle of its handshake
	for _, c := range []*client{busy, third, fourth} {
		_ = c.Close()
	}
	servertest.Eventually(t, "every slot is free again", func() bool { return r.srv.slots.used() == 0 })
	// Slots are given back once, whatever becomes of a connection.
	for range 5 {
		r.dial(t, "tls").get("/slow")
		r.h2Get(t, "/slow")
		if nc, err := r.tryDialRaw(); err == nil {
			_, _ = nc.Write([]byte("no TLS at all\r\n\r\n"))
			_ = nc.Close()
		}
	}
	r.cancel()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if n := r.srv.slots.used(); n != 0 {
		t.Errorf("%d slots are taken in the end", n)
	}
}

// tryDialRaw connects to the TLS port without a handshake.
func (r *rig) tryDialRaw() (net.Conn, error) { return net.Dial("tcp", r.secure) }

func TestPlainTextOnTheTLSPort(t *testing.T) {
	r := start(t, plan{})
	nc, err := r.tryDialRaw()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	got := talk(t, nc, request("GET", "/"), nil)
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "https://") {
		t.Errorf("%q", got)
	}
	r.dial(t, "tls").get("/slow")
}

func TestCertificateReload(t *testing.T) {
	r := start(t, plan{})
	// lookAgain spares the test the wait for the next look at the files.
	lookAgain := func() {
		r.srv.certs.looked.Store(0)
	}
	name := func(conf *tls.Config) string {
		c, err := tls.Dial("tcp", r.secure, conf)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(r.clientTLS); got != "first" {
		t.Fatalf("the certificate of %q", got)
	}
	second := writeCert(t, r.setup.TLS.Cert, r.setup.TLS.Key, "second")
	touch(t, r.setup.TLS.Cert, time.Minute)
	lookAgain()
	if got := name(second); got != "second" {
		t.Errorf("after a change the certificate of %q", got)
	}
	if err := os.WriteFile(r.setup.TLS.Cert, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	touch(t, r.setup.TLS.Cert, 2*time.Minute)
	lookAgain()
	if got := name(second); got != "second" {
		t.Errorf("after a bad change the certificate of %q", got)
	}
	if !strings.Contains(r.log.String(), "the old one stays") {
		t.Error("the log says nothing of the bad certificate")
	}
	if err := r.srv.Reload(r.setup); err == nil {
		t.Error("a reload takes a bad certificate")
	}
	third := writeCert(t, r.setup.TLS.Cert, r.setup.TLS.Key, "third")
	if err := r.srv.Reload(r.setup); err != nil {
		t.Fatal(err)
	}
	if got := name(third); got != "third" {
		t.Errorf("after a reload the certificate of %q", got)
	}
}

// touch gives a file a time of its own, whatever the file system's clock.
func touch(t *testing.T, path string, ahead time.Duration) {
	t.Helper()
	when := time.Now().Add(ahead)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestListenErrors(t *testing.T) {
	r := start(t, plan{})
	dir := filepath.Dir(r.unix)
	noSocket, stale := filepath.Join(dir, "file"), filepath.Join(dir, "stale")
	if err := os.WriteFile(noSocket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	open := func(addrs ...string) error {
		srv, err := New(Setup{Listen: addrs, Plain: site.NewTable(), Secure: site.NewTable()}, lane.Options{}, meter.New(), slog.New(slog.DiscardHandler))
		if err == nil {
			srv.Close()
			srv.lane.Close()
		}
		return err
	}
	for addr, want := range map[string]string{
		r.tcp:                       "another program uses this port; choose another one with --listen",
		"unix:" + r.unix:            "another program answers there",
		"unix:" + noSocket:          "a file that is not a socket is there",
		"unix:" + dir + "/no/where": "no such file",
		"256.0.0.1:80":              "listen on 256.0.0.1:80",
	} {
		// A free address before it must be given back.
		free := filepath.Join(dir, "free")
		if err := open("unix:"+free, addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
		if _, err := os.Lstat(free); err == nil {
			t.Errorf("%s: what was bound before the error stays bound", addr)
		}
	}
	if err := open("unix:" + stale); err != nil {
		t.Errorf("a stale socket: %v", err)
	}
	r.dial(t, "unix").get("/slow") // still there
	bad := r.setup
	bad.Listen = append([]string{"unix:" + filepath.Join(dir, "second")}, r.tcp)
	if err := r.srv.Reload(bad); err == nil {
		t.Error("a reload takes a port in use")
	}
	r.dial(t, "unix").get("/slow")
	bad.Listen = r.setup.Listen[:1]
	if err := r.srv.Reload(bad); err != nil {
		t.Fatal(err)
	}
	if nc, err := net.Dial("unix", r.unix); err == nil {
		_ = nc.Close()
		t.Error("a listener that the reload took away accepts")
	}
}

const descriptorsEnv = "MILLRACE_TEST_DESCRIPTORS"

// Running out of descriptors neither ends the server nor lets it spin.
func TestOutOfDescriptors(t *testing.T) {
	if os.Getenv(descriptorsEnv) != "" {
		outOfDescriptors(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestOutOfDescriptors$", "-test.v")
	cmd.Env = append(os.Environ(), descriptorsEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func outOfDescriptors(t *testing.T) {
	r := start(t, plan{})
	r.teach(t, "tcp", "/hot")
	// The clients have their descriptors before there are none left: they
	// cannot be what the server lacks, and more of them wait than it can take.
	const clients, room = 64, 16
	to, err := netip.ParseAddrPort(r.tcp)
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	highest := 0
	for range clients {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		all, highest = append(all, fd), max(highest, fd)
	}
	most := uint64(highest + 1 + room)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
			t.Fatal(err)
		}
	}
	servertest.Eventually(t, "accept fails", func() bool { return strings.Contains(r.log.String(), "too many open files") })
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	time.Sleep(time.Second)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	if spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()); spent > 700*time.Millisecond {
		t.Errorf("a second without descriptors took %v of the processor", spent)
	}
	if n := strings.Count(r.log.String(), "accept failed"); n > 20 {
		t.Errorf("%d lines in the log", n)
	}
	for _, fd := range all {
		_ = syscall.Close(fd)
	}
	servertest.Eventually(t, "the server serves again", func() bool {
		nc, err := net.Dial("tcp", r.tcp)
		if err != nil {
			return false
		}
		defer nc.Close()
		return strings.Contains(talk(t, nc, request("GET", "/hot", "Connection: close"), nil), smallBody)
	})
}
