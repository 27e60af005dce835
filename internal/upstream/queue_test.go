package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/upstream/faulty"
)

// slow answers after a while and counts how many are at it.
type slow struct {
	mu        sync.Mutex
	now, most int
	order     []string
	took      time.Duration
}

func (s *slow) answer(r *http.Request, c net.Conn) bool {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.order = append(s.order, r.URL.Path)
	s.mu.Unlock()
	time.Sleep(s.took)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return answerOK(r, c)
}

// TestQueue: no more run than may, the others wait in their order, and those
// who find the queue full or wait too long are told to come back.
func TestQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		s := &slow{took: time.Second}
		w.handle("a:80", s.answer)
		p := newPool(t, Options{To: []string{"http://a"}, Concurrency: 2, Queue: 10, QueueTimeout: 3500 * time.Millisecond}, w)
		results := map[int]error{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 14 {
			time.Sleep(time.Millisecond) // one after the other: the order is known
			all.Go(func() {
				_, _, err := do(p, newRequest(t, "GET", fmt.Sprintf("/%02d", i), nil))
				mu.Lock()
				defer mu.Unlock()
				results[i] = err
			})
		}
		synctest.Wait()
		if n := p.Waiting(); n != 10 {
			t.Errorf("%d wait, want 10", n)
		}
		if running := p.Servers()[0].Running; running != 2 {
			t.Errorf("%d run, want 2", running)
		}
		all.Wait()
		// 0 and 1 run at once; 2 to 7 within 3.5 s; 8 to 11 waited too long; 12 and 13 found the queue full.
		for i, err := range results {
			if want := i >= 8; errors.Is(err, ErrBusy) != want || !want && err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if s.most != 2 || !slices.IsSorted(s.order) || len(s.order) != 8 {
			t.Errorf("at most %d at once, in the order %s", s.most, s.order)
		}
		idle(t, p)
	})
}

// TestQueueLeft: who gives up leaves the queue, and holds nothing.
func TestQueueLeft(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		s := &slow{took: time.Second}
		w.handle("a:80", s.answer)
		p := newPool(t, Options{To: []string{"http://a"}, Concurrency: 1}, w)
		var all sync.WaitGroup
		all.Go(func() { get(t, p) })
		synctest.Wait()
		for i := range 6 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*100*time.Millisecond)
			cause, cancelCause := context.WithCancelCause(ctx)
			all.Go(func() {
				defer cancel()
				defer cancelCause(nil)
				_, _, err := do(p, newRequest(t, "GET", "/left", nil).WithContext(cause))
				if want := []error{ErrTimeout, context.Canceled}[i%2]; !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
			})
			if i%2 == 1 {
				time.AfterFunc(50*time.Millisecond, func() { cancelCause(nil) })
			}
		}
		synctest.Wait()
		if n := p.Waiting(); n != 6 {
			t.Errorf("%d wait, want 6", n)
		}
		time.Sleep(700 * time.Millisecond)
		synctest.Wait()
		if n := p.Waiting(); n != 0 {
			t.Errorf("%d wait after all have left", n)
		}
		all.Wait()
		if slices.Contains(s.order, "/left") {
			t.Error("a request that had left was made")
		}
		idle(t, p)
	})
}

// TestPlaceUntilEnd: a place is held until the body has ended or is closed.
func TestPlaceUntilEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Script{faulty.Loop(faulty.Request(),
			faulty.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"), faulty.Pause(time.Second), faulty.Send("0\r\n\r\n"))})
		p := newPool(t, Options{To: []string{"http://a"}, Concurrency: 1, QueueTimeout: time.Millisecond}, w)
		for _, end := range []func(*http.Response){
			func(resp *http.Response) { resp.Body.Close() },
			func(resp *http.Response) { io.ReadAll(resp.Body) },
		} {
			resp, err := p.RoundTrip(newRequest(t, "GET", "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := get(t, p); !errors.Is(err, ErrBusy) {
				t.Errorf("a second request while the first body is open: %v", err)
			}
			end(resp)
			if n := p.Servers()[0].Running; n != 0 {
				t.Errorf("%d running after the end", n)
			}
			resp.Body.Close()
			resp.Body.Close()
			idle(t, p)
		}
	})
}

// TestStreams: what lasts does not take places away, and has its own limit.
func TestStreams(t *testing.T) {
	answers := map[string]string{
		"events":  "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\r\ndata: 1\n\n",
		"upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.handle("a:80", func(_ *http.Request, c net.Conn) bool {
					io.WriteString(c, answer)
					b := make([]byte, 100)
					n, _ := c.Read(b) // silent for as long as it takes
					c.Write(b[:n])
					return false
				})
				p := newPool(t, Options{To: []string{"http://a"}, Concurrency: 1, Streams: 2, Breaker: Breaker{Off: true}}, w)
				ask := func() (*http.Response, error) {
					r := newRequest(t, "GET", "/", nil)
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", "websocket")
					return p.RoundTrip(r)
				}
				var open []*http.Response
				for range 2 {
					resp, err := ask()
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, resp)
				}
				if _, err := ask(); !errors.Is(err, ErrBusy) {
					t.Errorf("a third stream: %v", err)
				}
				if s := p.Servers()[0]; s.Running != 0 || s.Streams != 2 || s.Fails != 0 {
					t.Errorf("%+v", s)
				}
				// Silence for longer than any timeout.
				time.AfterFunc(time.Hour, func() {
					if rw, ok := open[0].Body.(io.Writer); ok {
						io.WriteString(rw, " world")
					} else {
						open[0].Body.Close()
					}
				})
				text, _ := io.ReadAll(open[0].Body)
				if name == "upgrade" && string(text) != "hello world" {
					t.Errorf("through the connection came %q", text)
				}
				for _, resp := range open {
					resp.Body.Close()
				}
				idle(t, p)
			})
		})
	}
}

// TestTimeouts: each phase has its own, and all end in ErrTimeout.
func TestTimeouts(t *testing.T) {
	never := func(c net.Conn) { io.Copy(io.Discard, c); c.Close() }
	for name, c := range map[string]struct {
		to    string
		host  func(done chan struct{}) func(net.Conn)
		r     func(t *testing.T) *http.Request
		after time.Duration // of one try
	}{
		"TLS handshake": {"https://a", func(chan struct{}) func(net.Conn) { return never }, nil, 3 * time.Second},
		"header":        {"http://a", func(chan struct{}) func(net.Conn) { return never }, nil, 7 * time.Second},
		"upload": {"http://a", func(done chan struct{}) func(net.Conn) {
			return func(c net.Conn) { faulty.Play(c, faulty.Script{faulty.Head(), faulty.Unresponsive()}, done) }
		}, func(t *testing.T) *http.Request {
			return newRequest(t, "POST", "/", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))))
		}, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				host := c.host(w.done)
				var cut func()
				w.host("a:80", func(nc net.Conn) { cut = func() { nc.Close() }; host(nc) })
				w.host("a:443", host)
				o := Options{
					To: []string{c.to}, ConnectTimeout: 3 * time.Second, HeaderTimeout: 7 * time.Second, BodyTimeout: 11 * time.Second,
					Retries: Retries{Attempts: 1},
				}
				p := newPool(t, o, w)
				begin := time.Now()
				r := newRequest(t, "GET", "/", nil)
				if c.r != nil {
					r = c.r(t)
				}
				_, _, err := do(p, r)
				if !errors.Is(err, ErrTimeout) || Status(err) != 504 {
					t.Errorf("error %v, status %d", err, Status(err))
				}
				if took := time.Since(begin); took != c.after {
					t.Errorf("took %s, want %s", took, c.after)
				}
				if s := p.Servers()[0]; s.Fails != 1 {
					t.Errorf("%d failures, want 1", s.Fails)
				}
				if cut != nil {
					cut()
				}
				idle(t, p)
			})
		})
	}
}

// TestConnectTimeout: an address that swallows packets.
func TestConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{To: []string{"http://a"}, ConnectTimeout: 2 * time.Second, Retries: Retries{Attempts: 1}}
		p, err := start(o, nil, func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		begin := time.Now()
		if _, _, err := get(t, p); !errors.Is(err, ErrTimeout) || time.Since(begin) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// TestSlowClient: a client that uploads slowly is not the upstream's timeout.
func TestSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.handle("a:80", func(r *http.Request, c net.Conn) bool {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
			io.Copy(io.Discard, r.Body) // and only then goes on
			io.WriteString(c, "0\r\n\r\n")
			return true
		})
		p := newPool(t, Options{To: []string{"http://a"}, BodyTimeout: time.Second, HeaderTimeout: time.Second}, w)
		reader, writer := io.Pipe()
		go func() {
			for range 5 {
				time.Sleep(time.Minute)
				io.WriteString(writer, "x")
			}
			writer.Close()
		}()
		if _, text, err := do(p, newRequest(t, "POST", "/", reader)); err != nil || text != "ok" {
			t.Errorf("%q, %v", text, err)
		}
		idle(t, p)
	})
}

// TestTrickle: a body that goes on, however slowly, ends with its context only.
func TestTrickle(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"), faulty.Trickle(strings.Repeat("x", 1000), time.Second)})
		p := newPool(t, Options{To: []string{"http://a"}, BodyTimeout: 2 * time.Second}, w)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second+time.Millisecond)
		defer cancel()
		_, text, err := do(p, newRequest(t, "GET", "/", nil).WithContext(ctx))
		if len(text) != 101 || !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes, then %v", len(text), err)
		}
		if s := p.Servers()[0]; s.Fails != 0 {
			t.Errorf("%d failures: the caller's deadline is not the server's", s.Fails)
		}
	})
}

// TestCancel: a client that goes away is told nothing but that, in each phase.
func TestCancel(t *testing.T) {
	reason := errors.New("enough")
	for name, script := range map[string]faulty.Script{
		"before header": {faulty.Request(), faulty.Hang()},
		"in body":       faulty.Named("stall in body").Script,
	} {
		for _, cause := range []error{nil, reason} {
			t.Run(fmt.Sprint(name, cause), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *wires) {
					w.set("a:80", script)
					p := newPool(t, Options{To: []string{"http://a"}}, w)
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(cause) })
					_, _, err := do(p, newRequest(t, "GET", "/", nil).WithContext(ctx))
					if !errors.Is(err, context.Canceled) || cause != nil && !errors.Is(err, cause) {
						t.Errorf("error %v", err)
					}
					if errors.Is(err, ErrTimeout) || errors.Is(err, ErrProtocol) || errors.Is(err, ErrUnreachable) {
						t.Errorf("%v blames the upstream", err)
					}
					if s := p.Servers()[0]; s.Fails != 0 {
						t.Errorf("%d failures", s.Fails)
					}
					synctest.Wait()
					idle(t, p)
				})
			})
		}
	}
}
