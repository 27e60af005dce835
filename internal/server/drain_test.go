package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
)

// leaves checks at the test's end that everything it started has ended. It must
// be called before the server starts.
func leaves(t *testing.T) {
	now := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, now) })
}

// load asks for a path again and again until the server says that an answer is
// the last. Anything else than an answer is a failed request.
func (c *client) load(path string, answers *atomic.Int64) error {
	for {
		if _, err := io.WriteString(c, request("GET", path)); err != nil {
			return err
		}
		resp, _, err := c.tryAnswer("GET")
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		answers.Add(1)
		if resp.Close {
			return nil
		}
	}
}

// SIGTERM under load loses no request.
func TestDrainUnderLoad(t *testing.T) {
	leaves(t)
	release := make(chan struct{})
	pages := newPages()
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	running := make(chan struct{}, 100)
	mux.HandleFunc("/wait", func(w http.ResponseWriter, _ *http.Request) {
		running <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "done\n")
	})
	r := start(t, plan{handler: mux})
	var wg sync.WaitGroup
	var answers atomic.Int64
	for _, transport := range transports {
		r.teach(t, transport, "/hot", pathBig)
		for i := range 24 {
			c := r.dial(t, transport)
			path := []string{"/hot", "/slow", pathBig, "/hot"}[i%4]
			wg.Go(func() {
				if err := c.load(path, &answers); err != nil {
					t.Errorf("%s over %s: %v", path, transport, err)
				}
				if !c.ends() {
					t.Errorf("%s over %s: not closed after the last answer", path, transport)
				}
				_ = c.Close()
			})
		}
		for range 3 { // a handler that runs
			c := r.dial(t, transport)
			c.write(request("GET", "/wait"))
			<-running
			wg.Go(func() {
				resp, body, err := c.tryAnswer("GET")
				if err != nil || body != "done\n" || !resp.Close {
					t.Errorf("the running request over %s: %q, %v", transport, body, err)
				}
				_ = c.Close()
			})
		}
	}
	servertest.Eventually(t, "the load runs", func() bool { return answers.Load() > 1000 })
	var queued []*client // perhaps still in the kernel's queue when the end comes
	for range 8 {
		queued = append(queued, r.dial(t, "tcp"), r.dial(t, "unix"))
	}
	r.cancel()
	for _, c := range queued {
		c.write(request("GET", "/hot"))
		if resp, _, err := c.tryAnswer("GET"); err != nil {
			t.Errorf("a client from the queue: %v", err)
		} else if !resp.Close { // it was quicker than the drain
			c.get("/hot")
		}
		_ = c.Close()
	}
	servertest.Eventually(t, "the server drains", r.srv.Draining)
	close(release)
	wg.Wait()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if n := r.meters.Connections.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// Connections on which nothing comes do not hold the drain up, whatever their
// state: far below the idle timeout.
func TestDrainClosesIdleConnections(t *testing.T) {
	leaves(t)
	r := start(t, plan{limits: Options{HandshakeTimeout: 500 * time.Millisecond}})
	for _, transport := range transports {
		r.dial(t, transport)
		r.dial(t, transport).get("/hot")
		r.dial(t, transport).get("/hot")
		r.dial(t, transport).get("/slow")
		c := r.dial(t, transport)
		c.write(request("POST", "/echo", "Transfer-Encoding: chunked") + "0\r\n\r\n")
		c.answer("POST")
		r.dial(t, transport).write("GET /half")
	}
	nc, err := net.Dial("tcp", r.secure) // in its handshake for ever
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	servertest.Eventually(t, "all are accepted", func() bool { return r.srv.lane.Open() == 18 })
	r.cancel()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
}

// A drain with the connection limit reached, and somebody waiting, ends too.
func TestDrainAtTheLimit(t *testing.T) {
	leaves(t)
	running, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-release
	})
	r := start(t, plan{limits: Options{Connections: 1}, handler: h})
	c := r.dial(t, "tcp")
	c.write(request("GET", "/"))
	<-running
	r.dial(t, "tcp")
	r.dial(t, "unix")
	servertest.Eventually(t, "two more were accepted", func() bool { return r.meters.Accepted.Load() == 3 })
	r.cancel()
	servertest.Eventually(t, "the server drains", r.srv.Draining)
	close(release)
	if resp, _ := c.answer("GET"); !resp.Close {
		t.Error("the last answer does not say so")
	}
	if err := r.wait(); err != nil {
		t.Error(err)
	}
}

// A client that sends requests without ever stopping does not hold the drain up
// until its timeout.
func TestDrainEndsPipelines(t *testing.T) {
	leaves(t)
	pages := newPages()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" { // always slower than its client
			time.Sleep(time.Millisecond)
		}
		pages.ServeHTTP(w, r)
	})
	r := start(t, plan{handler: h, limits: Options{DrainTimeout: 2 * patience}})
	var wg sync.WaitGroup
	var answers atomic.Int64
	for _, transport := range transports {
		r.teach(t, transport, "/hot")
		for _, path := range []string{"/hot", "/slow"} {
			c := r.dial(t, transport)
			wg.Go(func() { // ends with the connection
				for many := strings.Repeat(request("GET", path), 500); ; {
					if _, err := io.WriteString(c, many); err != nil {
						return
					}
				}
			})
			wg.Go(func() {
				for {
					if resp, _, err := c.tryAnswer("GET"); err != nil || resp.Close {
						_ = c.Close()
						return
					}
					answers.Add(1)
				}
			})
		}
	}
	servertest.Eventually(t, "the load runs", func() bool { return answers.Load() > 1000 })
	began := time.Now()
	r.cancel()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > patience/2 { // then the clients give up
		t.Errorf("the drain took %v", d)
	}
	wg.Wait()
}

func TestDrainTimeout(t *testing.T) {
	leaves(t)
	var begun atomic.Int64
	r := start(t, plan{limits: Options{DrainTimeout: 100 * time.Millisecond}, handler: hanging(t, &begun)})
	overAllAtOnce(t, r, &begun)
	r.cancel()
	if err := r.wait(); err == nil || !strings.Contains(err.Error(), "drain_timeout") {
		t.Errorf("Run returned %v", err)
	}
}

// Close during a drain cuts everything, also clients that read nothing.
func TestCloseCutsTheDrain(t *testing.T) {
	leaves(t)
	var begun atomic.Int64
	r := start(t, plan{handler: hanging(t, &begun)})
	clients := overAllAtOnce(t, r, &begun)
	r.cancel()
	servertest.Eventually(t, "the server drains", r.srv.Draining)
	r.srv.Close()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	for _, c := range clients {
		if _, err := io.Copy(io.Discard, c.br); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection is open still")
		}
	}
	r.srv.Close() // once more does no harm
}

// hanging runs until the client or the server goes away.
func hanging(t *testing.T, begun *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		if r.URL.Path == "/write" {
			for {
				if _, err := io.WriteString(w, hugeBody); err != nil {
					return
				}
			}
		}
		select {
		case <-r.Context().Done():
		case <-time.After(2 * patience):
			t.Error("nobody ended this request")
		}
	})
}

// overAllAtOnce starts requests that hang, on every transport.
func overAllAtOnce(t *testing.T, r *rig, begun *atomic.Int64) (clients []*client) {
	for _, transport := range transports {
		for _, text := range []string{request("GET", "/"), request("GET", "/") + "G", request("GET", "/write")} {
			c := r.dial(t, transport)
			c.write(text)
			clients = append(clients, c)
		}
	}
	servertest.Eventually(t, "all requests run", func() bool { return int(begun.Load()) == len(clients) })
	return clients
}

// Uploads under way in a drain may pause for longer than idle connections.
func TestDrainWaitsForUploads(t *testing.T) {
	t.Parallel() // it mostly waits
	r := start(t, plan{})
	overAllUploads := map[string]*client{}
	for _, transport := range transports {
		c := r.dial(t, transport)
		c.write(request("POST", "/echo", "Content-Length: 4") + "ab")
		overAllUploads[transport] = c
	}
	servertest.Eventually(t, "all are accepted", func() bool { return r.srv.lane.Open() == 3 })
	r.cancel()
	servertest.Eventually(t, "the server drains", r.srv.Draining)
	time.Sleep(2500 * time.Millisecond) // twice the linger and the sweeper's round
	for transport, c := range overAllUploads {
		c.write("cd")
		if _, body := c.answer("POST"); body != "POST 4 \"abcd\" true\n" {
			t.Errorf("%s: %q", transport, body)
		}
	}
	if err := r.wait(); err != nil {
		t.Error(err)
	}
}

// Upgraded connections and streams without an end hear of a drain, and it does
// not wait for drain_timeout.
func TestDrainIsToldToTheEndless(t *testing.T) {
	leaves(t)
	var begun atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		drain := lane.Drain(r)
		if drain == nil {
			t.Error("nobody would tell")
		}
		if r.URL.Path == "/events" {
			_, _ = io.WriteString(w, "begun\n")
			_ = http.NewResponseController(w).Flush()
			begun.Add(1)
			<-drain
			_, _ = io.WriteString(w, "ended\n")
			return
		}
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		begun.Add(1)
		go func() { // the drain waits for it
			<-drain
			_, _ = io.WriteString(nc, "bye")
			_ = nc.Close()
		}()
	})
	r := start(t, plan{handler: h})
	var upgraded, streams []*client
	for _, transport := range transports {
		c := r.dial(t, transport)
		c.write(request("GET", "/", "Connection: Upgrade", "Upgrade: x"))
		upgraded = append(upgraded, c)
		c = r.dial(t, transport)
		c.write(request("GET", "/events"))
		streams = append(streams, c)
	}
	var h2 sync.WaitGroup
	h2.Go(func() {
		if resp, body := r.h2Get(t, "/events"); resp.ProtoMajor != 2 || body != "begun\nended\n" {
			t.Errorf("%s: %q", resp.Proto, body)
		}
	})
	servertest.Eventually(t, "all run", func() bool { return begun.Load() == 7 })
	r.cancel()
	for i, c := range upgraded {
		resp, err := http.ReadResponse(c.br, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %v, %v", transports[i], resp, err)
		}
		if rest, _ := io.ReadAll(c.br); string(rest) != "bye" {
			t.Errorf("%s: the upgraded connection ends with %q", transports[i], rest)
		}
	}
	for i, c := range streams {
		if _, body := c.answer("GET"); body != "begun\nended\n" {
			t.Errorf("%s: the stream was %q", transports[i], body)
		}
	}
	h2.Wait()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if drain := lane.Drain(&http.Request{}); drain != nil {
		t.Error("a drain of no server")
	}
}
