package engine_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/config"
)

// oneSided is a client's connection of HTTP/1.1, of which one side may be closed.
type oneSided struct {
	net.Conn
	below net.Conn // without TLS
	bare  bool     // closed without close_notify
}

// closeSide says that nothing more will be sent.
func (c *oneSided) closeSide() error {
	over := c.Conn
	if c.bare {
		over = c.below
	}
	return over.(interface{ CloseWrite() error }).CloseWrite()
}

// leave closes the connection so that the server is told of it at once.
func (c *oneSided) leave() {
	if tcp, ok := c.below.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.below.Close()
}

// oneSided connects to the server of a way that speaks HTTP/1.1.
func (w *way) oneSided(kind, socket string) *oneSided {
	w.Helper()
	at, err := url.Parse(w.base)
	if err != nil {
		w.Fatal(err)
	}
	network, address := "tcp", at.Host
	if kind == "unix" {
		network, address = "unix", socket
	}
	nc, err := net.Dial(network, address)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	c := &oneSided{Conn: nc, below: nc, bare: kind == "bare end"}
	if at.Scheme == "https" {
		cfg := w.client.Transport.(*http.Transport).TLSClientConfig.Clone()
		cfg.NextProtos = nil
		tc := tls.Client(nc, cfg)
		if err := tc.HandshakeContext(w.Context()); err != nil {
			w.Fatal(err)
		}
		c.Conn = tc
	}
	return c
}

// overHalves runs a test over each way that has a connection to be closed on one side.
func overHalves(t *testing.T, sites string, test func(w *way, dial func() *oneSided)) {
	t.Helper()
	socket := ""
	everyWayWith(t, sites, func(cfg *config.Config) {
		socket = filepath.Join(shortFolder(t), "s")
		cfg.Listen = append(cfg.Listen, "unix:"+socket)
	}, func(w *way) {
		for _, kind := range map[string][]string{"h1": {"tcp", "unix"}, "tls": {"close_notify", "bare end"}}[w.protocol] {
			w.T.Run(kind, func(t *testing.T) {
				of := *w
				of.T = t
				test(&of, func() *oneSided { return of.oneSided(kind, socket) })
			})
		}
	})
}

// shortFolder is one whose name leaves room for that of a socket.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A client that closes its side behind a complete request waits for the answer, and
// gets it (RFC 9293, 3.6; RFC 9112, 9.8).
func TestHalfCloseIsNotAnAbort(t *testing.T) {
	t.Parallel() // it mostly waits
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d, _ := time.ParseDuration(r.URL.Query().Get("wait"))
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprintf(w, "answered %s", body)
	})
	up := application(t, slow)
	dir := shortFolder(t)
	for _, name := range []string{"a.txt", "index.php"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("answered file"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "fpm"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = fcgi.Serve(ln, slow) }() // the cleanup waits for it
	t.Cleanup(func() { _ = ln.Close(); <-served })
	sites := fmt.Sprintf(`
sites:
- routes:
    /proxy/: {proxy: {to: %[1]s}}
    /cache/: {cache: {to: %[1]s}}
    /php/: {static: {root: %[2]q}, php: {to: %[3]q}}
    /static/: {static: {root: %[2]q}}
`, up, dir, filepath.Join(dir, "fpm"))
	serial := 0
	overHalves(t, sites, func(w *way, dial func() *oneSided) {
		w.ask("GET", "/proxy/?warm", "") // the loops need a connection that is there
		requests := []string{"GET /static/a.txt HTTP/1.1\r\nHost: a\r\n\r\n"}
		for _, wait := range []string{"0s", "20ms", "300ms"} {
			serial++
			q := fmt.Sprintf("?wait=%s&n=%d", wait, serial)
			requests = append(requests,
				"GET /proxy/"+q+" HTTP/1.1\r\nHost: a\r\n\r\n",
				"GET /proxy/"+q+" HTTP/1.0\r\n\r\n",
				"GET /proxy/"+q+" HTTP/1.1\nHost: a\n\n",
				"POST /proxy/"+q+" HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
				"POST /proxy/"+q+" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
				"GET /cache/"+q+" HTTP/1.1\r\nHost: a\r\n\r\n",
				"GET /php/index.php"+q+" HTTP/1.1\r\nHost: a\r\n\r\n",
				"POST /php/index.php"+q+" HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
				strings.Repeat("GET /proxy/"+q+" HTTP/1.1\r\nHost: a\r\n\r\n", 3), // pipelined
				"GET /static/a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /php/index.php"+q+" HTTP/1.1\r\nHost: a\r\n\r\nGET /proxy/"+q+" HTTP/1.1\r\nHost: a\r\n\r\n",
			)
		}
		var all sync.WaitGroup
		for _, text := range requests {
			for _, pause := range []time.Duration{0, 10 * time.Millisecond} {
				c := dial()
				all.Go(func() { answersHalf(w.T, c, text, pause) })
			}
		}
		all.Wait()
	})
}

// answersHalf sends requests, closes its side after a pause, and wants all answers and
// then the end.
func answersHalf(t *testing.T, c *oneSided, text string, pause time.Duration) {
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
		return
	}
	time.Sleep(pause)
	if err := c.closeSide(); err != nil {
		t.Error(err)
		return
	}
	br := bufio.NewReader(c)
	for range strings.Count(text, " HTTP/1.") {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Errorf("%.40q, closed after %v: %v", text, pause, err)
			return
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "answered") {
			t.Errorf("%.40q, closed after %v: %s %.60q, %v", text, pause, res.Status, body, err)
		}
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("%.40q: behind the answers %v", text, err)
	}
}

// A client that has left ends its request upstream, also if it had closed its side
// before.
func TestResetIsAnAbort(t *testing.T) {
	t.Parallel() // it mostly waits
	begun, gone := make(chan bool, 10), make(chan bool, 10)
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Query().Has("warm") {
			return
		}
		if r.URL.Query().Has("stream") {
			fmt.Fprint(w, "something")
			_ = http.NewResponseController(w).Flush()
		}
		begun <- true
		select {
		case <-r.Context().Done():
			gone <- true
		case <-time.After(10 * time.Second):
			gone <- false
		}
	})
	sites := fmt.Sprintf("sites: [{routes: {/: {proxy: {to: %s}}}}]\n", up)
	overHalves(t, sites, func(w *way, dial func() *oneSided) {
		w.ask("GET", "/?warm", "")
		for _, text := range []string{
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET /?stream HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET / HTTP/1.1\nHost: a\n\n",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /?warm HTTP/1.1\r\nHost: a\r\n\r\n",
		} {
			for _, half := range []bool{false, true} {
				c := dial()
				if _, err := io.WriteString(c, text); err != nil {
					w.Fatal(err)
				}
				<-begun
				if half {
					_ = c.closeSide()
					time.Sleep(120 * time.Millisecond) // longer than a loop waits for an answer
				}
				c.leave()
				if !<-gone {
					w.Errorf("%.40q, closed on one side before: %v: its request goes on", text, half)
				}
			}
		}
	})
}
