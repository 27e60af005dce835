package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/observe/meter"
)

// shortDir is a new folder with a path short enough for a socket; t.TempDir
// may be deep. It is reached without links, as the owner check wants it.
func shortDir(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{"/tmp", os.TempDir()} {
		dir, err := os.MkdirTemp(parent, "mr")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if len(dir) <= maxSocketPath-len("/millrace-4294967295/4194304-16.sock") {
			return dir
		}
	}
	t.Skip("no folder for temporary files has a path short enough for a socket")
	return ""
}

// start serves until the test ends and returns a client and the URL to ask.
func start(t *testing.T, o Options, d Deps) (*Admin, *http.Client, string) {
	t.Helper()
	if d.Meters == nil {
		d.Meters = meter.New()
	}
	a, err := New(o, d)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.Serve() }()
	tr := &http.Transport{}
	url := "http://" + a.Addr()
	if path, ok := strings.CutPrefix(a.Addr(), "unix:"); ok {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		url = "http://admin"
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return a, &http.Client{Transport: tr}, url
}

// ask sends a request and returns the status and the body.
func ask(t *testing.T, c *http.Client, r *http.Request) (int, string) {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func request(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOff(t *testing.T) {
	a, err := New(Options{Listen: "off"}, Deps{})
	if a != nil || err != nil {
		t.Fatalf("got %v, %v; want neither", a, err)
	}
	if a.Addr() != "" || a.Warning() != "" || a.Serve() != nil || a.Close() != nil {
		t.Error("an admin listener that is off does something")
	}
}

func TestCloseWithoutServe(t *testing.T) {
	a, err := New(Options{Listen: "127.0.0.1:0"}, Deps{Meters: meter.New()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := a.Serve(); err != nil {
		t.Errorf("serving after Close: %v", err)
	}
	if c, err := net.Dial("tcp", a.Addr()); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
}

func TestBadAddresses(t *testing.T) {
	for listen, want := range map[string]string{
		"9090":                              "write host:port, unix:/path or off",
		"/run/admin.sock":                   "write unix:/run/admin.sock",
		"unix:":                             "names no socket",
		"127.0.0.1:notport":                 "listening for admin on 127.0.0.1:notport",
		"unix:/no/such/a":                   "no such file",
		"unix:/" + strings.Repeat("x", 200): "has 201 bytes, but systems allow 103",
	} {
		a, err := New(Options{Listen: listen}, Deps{Meters: meter.New()})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", listen, err, want)
		}
		a.Close()
	}
}

func TestPortInUse(t *testing.T) {
	a, _, _ := start(t, Options{Listen: "127.0.0.1:0"}, Deps{})
	if b, err := New(Options{Listen: a.Addr()}, Deps{Meters: meter.New()}); err == nil {
		b.Close()
		t.Error("two listeners on one port")
	}
}

func TestWarning(t *testing.T) {
	for listen, want := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, "0.0.0.0:0": true, ":0": true} {
		a, err := New(Options{Listen: listen}, Deps{Meters: meter.New()})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Warning() != ""; got != want {
			t.Errorf("%s: warning %q, want one: %t", listen, a.Warning(), want)
		}
		a.Close()
	}
}

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make(pipes)
		l := limitConnections(p, 2)
		accepted := make(chan net.Conn, 10)
		ended := make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- c
			}
		}()
		for range 3 {
			go p.dial(t.Context(), "", "")
		}
		synctest.Wait()
		if len(accepted) != 2 {
			t.Fatalf("%d connections accepted, want 2", len(accepted))
		}
		c := <-accepted
		c.Close()
		c.Close() // must not count twice
		synctest.Wait()
		if len(accepted) != 2 {
			t.Errorf("%d connections open after one was closed, want 2", len(accepted))
		}
		l.Close()
		if err := <-ended; err == nil {
			t.Error("Accept did not end with Close")
		}
	})
}

// A profile may take longer than every timeout of the server.
func TestLongProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make(pipes)
		h, err := newHandler(Deps{Meters: meter.New()}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(h, nil)
		done := make(chan error, 1)
		go func() { done <- s.Serve(p) }()
		tr := &http.Transport{DialContext: p.dial}
		began := time.Now()
		status, body := ask(t, &http.Client{Transport: tr}, request(t, "GET", "http://admin/debug/pprof/goroutine?seconds=200"))
		if took := time.Since(began); status != 200 || body == "" || took != 200*time.Second {
			t.Errorf("status %d, %d bytes after %v", status, len(body), took)
		}
		tr.CloseIdleConnections()
		s.Close()
		<-done
	})
}

// A client that sends its request too slowly, or nothing more, is cut off.
func TestSlowClient(t *testing.T) {
	for _, head := range []string{
		"GET /healthz HT",
		"POST /reload HTTP/1.1\r\nHost: admin\r\nContent-Length: 5\r\n\r\nab",
		"GET /healthz HTTP/1.1\r\nHost: admin\r\n\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := make(pipes)
			h, err := newHandler(Deps{Meters: meter.New()}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(h, nil)
			done := make(chan error, 1)
			go func() { done <- s.Serve(p) }()
			c, _ := p.dial(t.Context(), "", "")
			began := time.Now()
			if _, err := io.WriteString(c, head); err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, c)
			if open := time.Since(began); open > idleTimeout+time.Second {
				t.Errorf("%.20q: the connection was open for %v", head, open)
			}
			c.Close()
			s.Close()
			<-done
		})
	}
}
