package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/upstream/faulty"
)

// TestCancelled: who goes away while an answer is waited for, or its body, frees
// the connection soon.
func TestCancelled(t *testing.T) {
	for name, script := range map[string]faulty.Script{
		"in header": {faulty.Request(), faulty.Hang()},
		"in body":   {faulty.Request(), faulty.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), faulty.Hang()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", script)
				p := newPool(t, Options{To: []string{"http://a"}}, w)
				ctx, cancel := context.WithCancel(t.Context())
				var ended time.Time
				time.AfterFunc(time.Second, func() { ended = time.Now(); cancel() })
				_, _, err := do(p, newRequest(t, "GET", "/", nil).WithContext(ctx))
				if took := time.Since(ended); !errors.Is(err, context.Canceled) || took > 2*brief {
					t.Errorf("error %v, %s after the client had gone", err, took)
				}
				synctest.Wait()
				idle(t, p)
			})
		})
	}
}

// TestPlaceIsFree: an answer that has come as a whole holds no place and no
// connection while its client takes it.
func TestPlaceIsFree(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Good("hello"))
		p := newPool(t, Options{To: []string{"http://a"}, Concurrency: 1, Queue: 1}, w)
		var all []*http.Response
		for range 5 {
			resp, err := p.RoundTrip(newRequest(t, "GET", "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, resp)
		}
		idle(t, p)
		for _, resp := range all {
			if text, err := io.ReadAll(resp.Body); string(text) != "hello" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			resp.Body.Close()
		}
		if n := w.dials("a:80"); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestEarlyAnswer: an answer that comes before the request is sent is read, and
// the connection ends with it.
func TestEarlyAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Script{faulty.Head(), faulty.Send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"), faulty.Unresponsive()})
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		for _, length := range []int64{-1, 1 << 30} {
			body, writer := io.Pipe()
			r := newRequest(t, "POST", "/", body)
			r.ContentLength = length
			if status, text, err := do(p, r); status != 413 || text != "no" || err != nil {
				t.Errorf("%d %q, %v", status, text, err)
			}
			writer.Close()
			synctest.Wait()
			idle(t, p)
		}
		if n := w.dials("a:80"); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestContinue: a server that was told to expect a body asks for it, refuses it
// without having got it, or gets it unasked after a while.
func TestContinue(t *testing.T) {
	for name, c := range map[string]struct {
		script faulty.Script
		status int
		read   bool
		wait   time.Duration
	}{
		"asks":       {faulty.Script{faulty.Head(), faulty.Send("HTTP/1.1 100 Continue\r\n\r\n"), lastBody5(), faulty.OK("ok")}, 200, true, 0},
		"refuses":    {faulty.Script{faulty.Head(), faulty.Send("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"), faulty.Hang()}, 417, false, 0},
		"never asks": {faulty.Script{faulty.Request(), faulty.OK("ok")}, 200, true, continueTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", c.script)
				p := newPool(t, Options{To: []string{"http://a"}}, w)
				body := &tracked{Reader: strings.NewReader("hello")}
				r := newRequest(t, "POST", "/", body)
				r.ContentLength = 5
				r.Header.Set("Expect", "100-continue")
				began := time.Now()
				status, _, err := do(p, r)
				if took := time.Since(began); status != c.status || err != nil || took != c.wait {
					t.Errorf("%d, %v after %s", status, err, took)
				}
				synctest.Wait()
				if (body.read > 0) != c.read || body.closed != 1 {
					t.Errorf("the body was read %d times and closed %d times", body.read, body.closed)
				}
				idle(t, p)
			})
		})
	}
}

// lastBody5 reads the five bytes of a body whose head was read.
func lastBody5() faulty.Step {
	return func(c *faulty.Conn) error {
		_, err := io.Copy(io.Discard, c.Requests[len(c.Requests)-1].Body)
		return err
	}
}

// TestUnharmed: bytes behind an answer cost the next request nothing, whatever
// it is, though it has a body that can be sent once only.
func TestUnharmed(t *testing.T) {
	far := make(chan net.Conn, 10)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				faulty.Play(keep{c}, faulty.Good("hello"), nil)
			})
			far <- c
		}
	})
	p := newPool(t, Options{To: []string{"http://" + l.Addr().String()}}, nil)
	defer running.Wait()
	defer l.Close()
	defer p.Close()
	for _, unasked := range []bool{true, false} {
		if _, _, err := get(t, p); err != nil {
			t.Fatal(err)
		}
		if c := <-far; unasked {
			io.WriteString(c, okAnswer)
		} else {
			c.Close()
		}
		await(p.servers[0].client)
		if status, text, err := do(p, newRequest(t, "POST", "/", io.MultiReader(strings.NewReader("hello")))); status != 200 || text != "hello" || err != nil {
			t.Errorf("%d %q, %v", status, text, err)
		}
		<-far
		p.servers[0].distrust.until.Store(0)
		p.servers[0].client.closeIdle()
	}
	if p.Retried() != 0 || p.Servers()[0].Unasked != 1 {
		t.Errorf("%d retries, %d accusations", p.Retried(), p.Servers()[0].Unasked)
	}
}

// keep is a connection that others may write to.
type keep struct{ net.Conn }

// await waits until there is something to read on the only idle connection, or its end.
func await(c *client) {
	c.mu.Lock()
	w := c.idle[0]
	c.mu.Unlock()
	for w.look() == noData {
		time.Sleep(time.Millisecond)
	}
}

// TestCloseWhileReading: Close ends a Read that is under way.
func TestCloseWhileReading(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), faulty.Hang()})
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		resp, err := p.RoundTrip(newRequest(t, "GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Millisecond, func() { resp.Body.Close() })
		if text, err := io.ReadAll(resp.Body); string(text) != "hello" || err == nil {
			t.Errorf("%q, %v", text, err)
		}
		resp.Body.Close()
		synctest.Wait()
		idle(t, p)
	})
}

// paused is a connection on which the first call for a request comes late, as on a machine
// that has no time for it.
type paused struct {
	*net.TCPConn
	once *sync.Once
}

func (c paused) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.TCPConn.SyscallConn()
	return pausedRaw{raw, c.once}, err
}

type pausedRaw struct {
	syscall.RawConn
	once *sync.Once
}

func (r pausedRaw) Read(f func(uintptr) bool) error {
	r.once.Do(func() { time.Sleep(3 * brief) })
	return r.RawConn.Read(f)
}

// TestBusyMachine: where this machine is late with a request, and not the server with its
// answer, the request is sent nevertheless.
func TestBusyMachine(t *testing.T) {
	s, err := faulty.Start(faulty.Good("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	once := new(sync.Once)
	p, err := start(Options{To: []string{s.URL}, Retries: Retries{Attempts: 1}}, nil, func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return paused{nc.(*net.TCPConn), once}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 {
		if status, text, err := get(t, p); status != 200 || text != "hello" || err != nil {
			t.Errorf("%d %q, %v", status, text, err)
		}
	}
	if n := s.Connections(); n != 1 || s.Requests() != 2 {
		t.Errorf("%d requests on %d connections", s.Requests(), n)
	}
}

// TestWholeBody: a body that is there as a whole reaches the server; one that is shorter or
// longer than it says, or that cannot be read, is not the server's failure, and a server
// that takes none of it is given up.
func TestWholeBody(t *testing.T) {
	broken := errors.New("broken")
	text := strings.Repeat("0123456789abcdef", 20<<10)
	for name, c := range map[string]struct {
		body   io.Reader
		length int
		script faulty.Script
		want   string // of the error; "": none
		wait   time.Duration
	}{
		"whole":      {strings.NewReader(text), len(text), faulty.Script{faulty.Request(), faulty.OK("ok")}, "", 0},
		"short":      {strings.NewReader(text), len(text) + 1, faulty.Script{faulty.Request(), faulty.OK("ok")}, "instead of", 0},
		"long":       {strings.NewReader(text), len(text) - 1, faulty.Script{faulty.Request(), faulty.OK("ok")}, errLonger.Error(), 0},
		"unreadable": {writesItself{text, broken}, 2 * len(text), faulty.Script{faulty.Request(), faulty.OK("ok")}, broken.Error(), 0},
		"not taken":  {strings.NewReader(text), len(text), faulty.Script{faulty.Head(), faulty.Unresponsive()}, errUploadStuck.Error(), 60 * time.Second},
		"refused":    {strings.NewReader(text), len(text), faulty.Script{faulty.Head(), faulty.OK("ok"), faulty.Unresponsive()}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", c.script)
				p := newPool(t, Options{To: []string{"http://a"}}, w)
				began := time.Now()
				a, err := p.Do(t.Context(), &Request{Method: "POST", Path: "/", Body: io.NopCloser(c.body), Whole: true, Length: int64(c.length)}, nil)
				if c.want == "" && err == nil {
					if text, err := io.ReadAll(a.Body); string(text) != "ok" || err != nil {
						t.Errorf("%q, %v", text, err)
					}
					a.Body.Close()
				} else if err == nil || !strings.Contains(err.Error(), c.want) || c.want == "" {
					t.Errorf("error %v", err)
				}
				if took := time.Since(began); took != c.wait {
					t.Errorf("it took %s", took)
				}
				if s := p.Servers()[0]; s.Fails != 0 && name != "not taken" {
					t.Errorf("the server has %d failures", s.Fails)
				}
				synctest.Wait()
				idle(t, p)
			})
		})
	}
}

// writesItself is a body that breaks off.
type writesItself struct {
	text string
	err  error
}

func (b writesItself) Read([]byte) (int, error) { return 0, b.err }

func (b writesItself) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, b.text)
	return int64(n), errors.Join(err, b.err)
}
