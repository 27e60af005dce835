package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"millrace/internal/upstream/faulty"
)

// TestUpgradeRetries: which failures are repeated, and how often.
func TestUpgradeRetries(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		fault  faulty.Script // of the first server; nil refuses
		again  bool
	}{
		"GET refused":            {"GET", nil, true},
		"POST refused":           {"POST", nil, true},
		"GET cut before header":  {"GET", faulty.Named("close after request").Script, true},
		"POST cut before header": {"POST", faulty.Named("close after request").Script, false},
		"GET closed at once":     {"GET", faulty.Named("close at once").Script, true},
		"GET cut in header":      {"GET", faulty.Named("cut in header").Script, false},
		"GET bad status":         {"GET", faulty.Named("status of letters").Script, false},
		"GET too late":           {"GET", faulty.Named("hang before header").Script, false},
		"GET 503":                {"GET", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", c.fault)
				w.set("b:80", echo(""))
				p := newPool(t, Options{To: []string{"http://a", "http://b"}, Balance: "round_robin"}, w)
				r := upgradeRequest(t, "/")
				r.Method = c.method
				resp, tunnel, err := p.UpgradeRequest(r)
				if (tunnel != nil) != c.again || (p.Retried() == 1) != c.again || (w.dials("b:80") == 1) != c.again {
					t.Errorf("error %v, retried %d, %d connections to the other; want a retry: %v", err, p.Retried(), w.dials("b:80"), c.again)
				}
				if resp != nil {
					resp.Body.Close()
				}
				if tunnel != nil {
					said(t, tunnel, "hello")
					tunnel.Close()
				}
				synctest.Wait()
				idle(t, p)
			})
		})
	}
}

// TestUpgradeBreaker: failed upgrades open it, and one that succeeds closes it.
func TestUpgradeBreaker(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		p := newPool(t, Options{To: []string{"http://a"}, Retries: Retries{Attempts: 1}, Breaker: Breaker{Requests: 4, Open: 5 * time.Second}}, w)
		for range 4 {
			if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrUnreachable) {
				t.Fatal(err)
			}
		}
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrUnhealthy) || w.dials("a:80") != 4 {
			t.Errorf("%v after %d connections", err, w.dials("a:80"))
		}
		w.set("a:80", echo(""))
		time.Sleep(5 * time.Second)
		upgrade(t, p).Close()
		if p.Servers()[0].Open {
			t.Error("it is open after a success")
		}
		idle(t, p)
	})
}

// TestUpgradeStreams: no more than may; who finds no room is told so without
// a connection, and other servers are asked first.
func TestUpgradeStreams(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", echo(""))
		w.set("b:80", echo(""))
		p := newPool(t, Options{To: []string{"http://a", "http://b"}, Streams: 2}, w)
		var open []*Tunnel
		for range 4 {
			open = append(open, upgrade(t, p))
		}
		for _, s := range p.Servers() {
			if s.Streams != 2 {
				t.Errorf("%+v", s)
			}
		}
		begin := time.Now()
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrBusy) || Status(err) != 503 {
			t.Errorf("a fifth: %v", err)
		}
		if time.Since(begin) != 0 || w.dials("a:80") != 2 || w.dials("b:80") != 2 || p.Retried() != 0 {
			t.Errorf("after %s, %d and %d connections, %d retries", time.Since(begin), w.dials("a:80"), w.dials("b:80"), p.Retried())
		}
		if _, _, err := do(p, newRequest(t, "GET", "/", nil)); errors.Is(err, ErrBusy) {
			t.Errorf("a request that is not a stream: %v", err)
		}
		open[2].Close()
		open[2].Close()
		upgrade(t, p)
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrBusy) {
			t.Errorf("another fifth: %v", err)
		}
	})
}

// TestUpgradeStreamsRace: of two that shake hands at once, one finds that the
// other took the last stream. Its connection is closed, and nobody blamed.
func TestUpgradeStreamsRace(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		ended := make(chan error, 2)
		w.handle("a:80", func(_ *http.Request, c net.Conn) bool {
			time.Sleep(time.Second)
			io.WriteString(c, switching)
			_, err := c.Read(make([]byte, 1))
			ended <- err
			return false
		})
		p := newPool(t, Options{To: []string{"http://a"}, Streams: 1}, w)
		var both sync.WaitGroup
		tunnels, failures := make(chan *Tunnel, 2), make(chan error, 2)
		for range 2 {
			both.Go(func() {
				if _, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/")); err != nil {
					failures <- err
				} else {
					tunnels <- tunnel
				}
			})
		}
		both.Wait()
		synctest.Wait()
		if len(tunnels) != 1 || len(failures) != 1 || len(ended) != 1 {
			t.Fatalf("%d tunnels, %d failures, %d connections ended", len(tunnels), len(failures), len(ended))
		}
		if err := <-failures; !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		if s := p.Servers()[0]; s.Running != 0 || s.Streams != 1 || s.Fails != 0 {
			t.Errorf("%+v", s)
		}
		(<-tunnels).Close()
		idle(t, p)
	})
}

// TestUpgradeQueue: a handshake holds a place, a tunnel does not.
func TestUpgradeQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		slowly := faulty.Script{faulty.Request(), faulty.Pause(time.Second), faulty.Send(switching), faulty.Hang()}
		w.set("a:80", slowly)
		p := newPool(t, Options{To: []string{"http://a"}, Concurrency: 1, Queue: 2, QueueTimeout: 1500 * time.Millisecond}, w)
		results := make(chan error, 4)
		for range 4 {
			time.Sleep(time.Millisecond)
			go func() {
				_, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/"))
				if err == nil {
					defer tunnel.Close()
				}
				results <- err
			}()
		}
		synctest.Wait()
		if n := p.Waiting(); n != 2 {
			t.Errorf("%d wait, want 2", n)
		}
		var failed int
		for range 4 {
			if err := <-results; errors.Is(err, ErrBusy) {
				failed++ // one found the queue full, one waited too long
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 2 {
			t.Errorf("%d of 4 got no place", failed)
		}
		synctest.Wait()
		idle(t, p)
	})
}

// TestUpgradeTimeouts: each phase has its own, and so has the body of a refusal.
func TestUpgradeTimeouts(t *testing.T) {
	o := Options{ConnectTimeout: 3 * time.Second, HeaderTimeout: 7 * time.Second, BodyTimeout: 11 * time.Second, Retries: Retries{Attempts: 1}}
	for name, c := range map[string]struct {
		to     string
		script faulty.Script
		after  time.Duration
	}{
		"TLS handshake":   {"https://a:80", faulty.Script{faulty.Hang()}, 3 * time.Second},
		"taking the head": {"http://a", faulty.Script{faulty.Unresponsive()}, 11 * time.Second},
		"header":          {"http://a", faulty.Script{faulty.Hang()}, 7 * time.Second},
		"body":            {"http://a", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\nhello"), faulty.Hang()}, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", c.script)
				o := o
				o.To = []string{c.to}
				p := newPool(t, o, w)
				begin := time.Now()
				resp, _, err := p.UpgradeRequest(upgradeRequest(t, "/"))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if took := time.Since(begin); !errors.Is(err, ErrTimeout) || took != c.after || p.Servers()[0].Fails != 1 {
					t.Errorf("%v after %s, %d failures", err, took, p.Servers()[0].Fails)
				}
				idle(t, p)
			})
		})
	}
	bubble(t, func(t *testing.T, _ *wires) {
		p, err := start(Options{To: []string{"http://a"}, Retries: Retries{Attempts: 1}}, nil, func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		begin := time.Now()
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrTimeout) || time.Since(begin) != 3*time.Second {
			t.Errorf("connecting: %v after %s", err, time.Since(begin))
		}
		idle(t, p)
	})
}

// TestUpgradeCancelled: in every phase, at once, and without blame.
func TestUpgradeCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		to     string
		script faulty.Script
		body   bool
	}{
		"TLS handshake":   {"https://a:80", faulty.Script{faulty.Hang()}, false},
		"taking the head": {"http://a", faulty.Script{faulty.Unresponsive()}, false},
		"header":          {"http://a", faulty.Script{faulty.Hang()}, false},
		"in the header":   {"http://a", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 101 "), faulty.Hang()}, false},
		"body":            {"http://a", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\nhello"), faulty.Hang()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", c.script)
				p := newPool(t, Options{To: []string{c.to}}, w)
				ctx, cancel := context.WithCancel(t.Context())
				begin := time.Now()
				time.AfterFunc(time.Second, cancel)
				resp, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/").WithContext(ctx))
				if tunnel != nil || (resp != nil) != c.body {
					t.Fatalf("tunnel %v, answer %v", tunnel, resp)
				}
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					defer resp.Body.Close()
				}
				if took := time.Since(begin); !errors.Is(err, context.Canceled) || took != time.Second {
					t.Errorf("%v after %s", err, took)
				}
				if s := p.Servers()[0]; s.Fails != 0 || p.Retried() != 0 {
					t.Errorf("%+v", s)
				}
				idle(t, p)
			})
		})
	}
	p := newPool(t, Options{To: []string{"http://127.0.0.1:1"}}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := refused(t, p, upgradeRequest(t, "/").WithContext(ctx)); !errors.Is(err, context.Canceled) || p.Servers()[0].Requests != 0 {
		t.Errorf("cancelled before: %v", err)
	}
}

// TestUpgradeBody: a refusal holds its place until its body has come from the
// network or is closed, as any answer; a stream of events does not; and its connection
// ends with it.
func TestUpgradeBody(t *testing.T) {
	for name, c := range map[string]struct {
		head             string
		running, streams int
		close            bool
	}{
		"read":     {"HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\nhello", 0, 0, false},
		"closed":   {"HTTP/1.1 403 No\r\nContent-Length: 50\r\n\r\nhello", 1, 0, true},
		"endless":  {"HTTP/1.1 200 OK\r\n\r\nhello", 1, 0, true},
		"no body":  {"HTTP/1.1 426 No\r\nContent-Length: 0\r\n\r\n", 0, 0, false},
		"events":   {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n", 0, 1, true},
		"in parts": {"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				gone := make(chan struct{})
				w.handle("a:80", func(_ *http.Request, conn net.Conn) bool {
					io.WriteString(conn, c.head)
					conn.Read(make([]byte, 1))
					close(gone)
					return false
				})
				p := newPool(t, Options{To: []string{"http://a"}}, w)
				resp, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/"))
				if err != nil || tunnel != nil {
					t.Fatal(tunnel, err)
				}
				if s := p.Servers()[0]; s.Running != c.running || s.Streams != c.streams {
					t.Errorf("while the body is open: %+v", s)
				}
				if !c.close {
					if b, err := io.ReadAll(resp.Body); err != nil || strings.HasSuffix(c.head, "hello") && string(b) != "hello" {
						t.Errorf("%q, %v", b, err)
					}
					<-gone
				} else if _, err := resp.Body.Read(make([]byte, 3)); err != nil {
					t.Error(err)
				}
				for range 2 {
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
				}
				<-gone
				idle(t, p)
			})
		})
	}
}

// TestUpgradeBalance: what stays long is spread by what has stayed, and hash
// keeps a key together however many there are.
func TestUpgradeBalance(t *testing.T) {
	for _, balance := range []string{"round_robin", "least_connections", "two_choices", "hash"} {
		bubble(t, func(t *testing.T, w *wires) {
			w.set("a:80", echo(""))
			w.set("b:80", faulty.Script{faulty.Request(), faulty.Pause(time.Second), faulty.Send(switching), faulty.Hang()})
			p := newPool(t, Options{To: []string{"http://a", "http://b"}, Balance: balance}, w)
			var closing []*Tunnel
			for range 20 {
				closing = append(closing, upgrade(t, p))
			}
			got := []int{p.Servers()[0].Streams, p.Servers()[1].Streams}
			slices.Sort(got)
			if want := map[bool][]int{false: {10, 10}, true: {0, 20}}[balance == "hash"]; !slices.Equal(got, want) {
				t.Errorf("%s: %d", balance, got)
			}
			for _, tunnel := range closing {
				tunnel.Close()
			}
			idle(t, p)
		})
	}
}

// TestSameAddress: both ways of connecting go to the same address.
func TestSameAddress(t *testing.T) {
	for _, to := range []string{
		"http://a", "http://a:81", "ws://a", "wss://a", "https://a:8443/x", "https://A", "http://[::1]", "https://[::1]:9", "http://bücher.example", "http://[fe80::1%25eth0]", "unix:/run/x",
	} {
		var dialled []string
		p, err := start(Options{To: []string{to}, Retries: Retries{Attempts: 1}}, nil, func(_ context.Context, network, addr string) (net.Conn, error) {
			dialled = append(dialled, network+" "+addr)
			return nil, errors.New("not here")
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, first := get(t, p)
		second := refused(t, p, upgradeRequest(t, "/"))
		if len(dialled) != 2 || dialled[0] != dialled[1] || first == nil || first.Error() != second.Error() {
			t.Errorf("%s: %q; errors %v, %v", to, dialled, first, second)
		}
		p.Close()
	}
}

// TestWebSocketAddresses: ws and wss are http and https.
func TestWebSocketAddresses(t *testing.T) {
	for to, want := range map[string]string{"ws://a/x": "http a", "wss://a:1": "https a:1", "WSS://a": "https a"} {
		if a, err := parseAddress(to); err != nil || a.scheme+" "+a.host != want || a.text != to {
			t.Errorf("%s: %+v, %v", to, a, err)
		}
	}
	if faults := (Options{To: []string{"ws://a", "http://a/"}}).Check(); faults["to[1]"] == nil {
		t.Errorf("the same address twice: %v", faults)
	}
	if faults := (Options{To: []string{"ws://a", "http://b", "wss://a"}, TLS: TLS{Insecure: true}}).Check(); len(faults) != 0 {
		t.Errorf("faults %v", faults)
	}
	if faults := (Options{To: []string{"ws://a"}, TLS: TLS{Insecure: true}}).Check(); faults["tls"] == nil {
		t.Error("TLS for ws://")
	}
	bubble(t, func(t *testing.T, w *wires) {
		w.handle("a:80", answerOK)
		p := newPool(t, Options{To: []string{"ws://a"}}, w)
		if status, text, err := get(t, p); status != 200 || text != "ok" || err != nil {
			t.Errorf("%d %q %v", status, text, err)
		}
	})
}

// agrees is a connection without a network whose server switches protocols.
type agrees struct {
	net.Conn
	answer *strings.Reader
}

func (c *agrees) Read(b []byte) (int, error)       { return c.answer.Read(b) }
func (c *agrees) Write(b []byte) (int, error)      { return len(b), nil }
func (c *agrees) SetDeadline(time.Time) error      { return nil }
func (c *agrees) SetReadDeadline(time.Time) error  { return nil }
func (c *agrees) SetWriteDeadline(time.Time) error { return nil }
func (c *agrees) Close() error                     { return nil }

// agreeing is a pool whose connections, made beforehand, cost nothing.
func agreeing(t testing.TB, n int, early string) *Pool {
	t.Helper()
	conns := make([]*agrees, n)
	for i := range conns {
		conns[i] = &agrees{answer: strings.NewReader(switching + early)}
	}
	p, err := start(Options{To: []string{"http://a"}, Streams: n}, nil, func(context.Context, string, string) (net.Conn, error) {
		c := conns[0]
		conns = conns[1:]
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestTunnelMemory: a tunnel holds nothing but itself, whatever it took to open.
func TestTunnelMemory(t *testing.T) {
	const n, most = 10_000, 128 // bytes; a Tunnel has 64
	if size := unsafe.Sizeof(Tunnel{}); size > 64 {
		t.Errorf("a Tunnel has %d bytes", size)
	}
	p := agreeing(t, n, "")
	tunnels := make([]*Tunnel, 0, n)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what sync.Pools held goes with the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range n {
		_, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/"))
		if err != nil {
			t.Fatal(err)
		}
		tunnels = append(tunnels, tunnel)
	}
	each := (int64(heap()) - int64(before)) / n
	t.Logf("%d bytes of heap for a tunnel", each)
	if each > most {
		t.Errorf("%d bytes of heap for a tunnel, want at most %d", each, most)
	}
	for _, tunnel := range tunnels {
		tunnel.Close()
	}
	idle(t, p)
}

// TestUpgradeTogether: many at once, over TCP and TLS, some of which are given up.
func TestUpgradeTogether(t *testing.T) {
	for _, way := range ways() {
		if way.proto != "HTTP/1.1" {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			o := way.start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				c, buf, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				io.WriteString(c, switching)
				io.Copy(c, buf)
			}))
			o.Concurrency, o.QueueTimeout = 8, time.Minute
			p := newPool(t, o, nil)
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if i%4 == 0 {
						go cancel() // at whatever moment that is
					}
					_, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/").WithContext(ctx))
					switch {
					case err == nil:
						defer tunnel.Close()
						if _, ok := tunnel.Conn.(*tls.Conn); ok != (way.name == "https") && way.name != "https h2" {
							t.Errorf("a %T", tunnel.Conn)
						}
						said(t, tunnel, fmt.Sprint("hello ", i))
					case i%4 != 0 || !errors.Is(err, context.Canceled):
						t.Error(err)
					}
				})
			}
			all.Wait()
			idle(t, p)
			if s := p.Servers()[0]; s.Fails != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// FuzzUpgrade: whatever a server says, it is refused or understood, no byte
// behind the header is lost, and the place comes back.
func FuzzUpgrade(f *testing.F) {
	for _, seed := range []string{
		switching, switching + "early", "HTTP/1.1 103 Hints\r\n\r\n" + switching, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 101 X\r\nUpgrade:websocket\r\nConnection:a,upgrade\r\nContent-Length: 7\r\n\r\nhello", "HTTP/1.1 101\r\n", "\x15\x03\x01\x00\x02\x02\x46", "",
	} {
		f.Add(seed)
	}
	r := upgradeRequest(f, "/")
	f.Fuzz(func(t *testing.T, answer string) {
		p, err := start(Options{To: []string{"http://a"}, Retries: Retries{Attempts: 1}}, nil, func(context.Context, string, string) (net.Conn, error) {
			return &agrees{answer: strings.NewReader(answer)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		resp, tunnel, err := p.UpgradeRequest(r)
		switch {
		case err != nil:
			if resp != nil || tunnel != nil || Status(err) != 502 {
				t.Errorf("answer %v, tunnel %v, error %v", resp, tunnel, err)
			}
		case tunnel != nil:
			rest, _ := io.ReadAll(tunnel)
			after := string(tunnel.Early) + string(rest)
			head, ok := strings.CutSuffix(answer, after)
			if !ok || resp.StatusCode != 101 || !strings.HasSuffix(head, "\n") && !strings.HasSuffix(head, "\r\n") {
				t.Errorf("status %d, of %q came early %q, then %q", resp.StatusCode, answer, tunnel.Early, rest)
			}
			tunnel.Close()
		default:
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode < 200 {
				t.Errorf("status %d", resp.StatusCode)
			}
		}
		idle(t, p)
	})
}
