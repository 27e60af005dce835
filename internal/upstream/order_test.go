package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/upstream/faulty"
)

// TestNoPoison: whatever a server sends after an answer's end, nobody gets it as
// an answer, however hard requests compete for connections.
func TestNoPoison(t *testing.T) {
	for _, name := range []string{"length too small", "half an answer too much", "body after HEAD", "body after 204"} {
		for _, secure := range []bool{false, true} {
			if secure && name != "length too small" {
				continue // handshakes cost most of the test's time
			}
			t.Run(name+map[bool]string{true: " TLS"}[secure], func(t *testing.T) {
				var got, wrong atomic.Int32
				p, method := poisonPool(t, faulty.Named(name), secure)
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						for range map[bool]int{false: 30, true: 3}[secure] {
							resp, err := p.RoundTrip(newRequest(t, method, "/", nil))
							if err != nil {
								if !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrUnreachable) {
									t.Errorf("error %v", err)
								}
								continue
							}
							text, _ := io.ReadAll(resp.Body)
							resp.Body.Close()
							got.Add(1)
							if strings.Contains(string(text), faulty.Secret) || resp.Header.Get("X-Leak") != "" || resp.ContentLength == int64(len(faulty.Secret)) {
								wrong.Add(1)
							}
						}
					})
				}
				all.Wait()
				if n := wrong.Load(); n > 0 {
					t.Errorf("%d of %d answers were bytes left behind by others", n, got.Load())
				}
				if got.Load() == 0 {
					t.Error("not one request was answered")
				}
				idle(t, p)
			})
		}
	}
}

// poisonPool has connections that are slow to make, so that requests wait for
// those that others leave: then net/http hands them on at once.
func poisonPool(t *testing.T, s faulty.Scenario, secure bool) (p *Pool, method string) {
	var running sync.WaitGroup
	done := make(chan struct{})
	o := Options{To: []string{"http://a"}, Breaker: Breaker{Off: true}}
	var config *tls.Config
	if secure {
		ts := httptest.NewTLSServer(nil)
		config = &tls.Config{Certificates: ts.TLS.Certificates}
		ts.Close()
		o.To, o.TLS.Insecure = []string{"https://a"}, true
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if config != nil {
				c = tls.Server(c, config)
			}
			running.Go(func() { faulty.Play(c, s.Script, done) })
		}
	})
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		time.Sleep(300 * time.Microsecond) // not for timing: to make connections scarce
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}
	p, err = start(o, slog.New(slog.DiscardHandler), dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); l.Close(); close(done); running.Wait() })
	if s.Method == "" {
		return p, "GET"
	}
	return p, s.Method
}

// TestOrder goes through the states of a connection as net/http would.
func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		play string // r: bytes are read, w: written, g: a request gets the connection
		ok   bool
	}{
		"question, answer":                     {"gwr", true},
		"another one":                          {"gwrrgwr", true},
		"answer while the body is sent":        {"gwwrww", true},
		"nothing read since the question":      {"gwrgw", false},
		"read before the question":             {"gwrgrw", false},
		"read before and after":                {"gwrgr", false},
		"a chunk of the body is not an answer": {"gwrgww", false},
	} {
		near, far := net.Pipe()
		go io.Copy(far, far) // an echo: what is written can be read; ends with Close
		conn := newConn(near, speaksHTTP1, func() {})
		b := make([]byte, 1)
		for _, act := range c.play {
			switch act {
			case 'g':
				conn.begin(nil)
			case 'w':
				conn.Conn = discard{near}
				conn.Write(b)
			case 'r':
				conn.Conn = zeros{near}
				conn.Read(b)
			}
		}
		if want := strings.Contains(c.play, "gr"); conn.spoke.Load() != want {
			t.Errorf("%s: spoke unasked %v, want %v", name, !want, want)
		}
		if ok := conn.phase.Load() == replied; ok != c.ok {
			t.Errorf("%s: accepted %v, want %v", name, ok, c.ok)
		}
		near.Close()
		far.Close()
	}
}

type discard struct{ net.Conn }

func (discard) Write(b []byte) (int, error) { return len(b), nil }

type zeros struct{ net.Conn }

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestIdleTalk: what a server says while nothing is asked costs its connection.
func TestIdleTalk(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Script{faulty.Loop(faulty.Request(), faulty.OK("hello"), faulty.Pause(time.Millisecond), faulty.OK(faulty.Secret))})
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		for range 5 {
			if _, text, err := get(t, p); text != "hello" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
			time.Sleep(time.Second)
		}
		if n := w.dials("a:80"); n != 5 {
			t.Errorf("%d connections for 5 requests", n)
		}
	})
}

// TestInterim: 1xx reach the caller's hooks, also after a retry, and not
// without end.
func TestInterim(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.handle("b:80", func(_ *http.Request, c net.Conn) bool {
			io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\n\r\n"+okAnswer)
			return true
		})
		p := newPool(t, Options{To: []string{"http://a", "http://b"}, Balance: "round_robin"}, w)
		var links []string
		r := newRequest(t, "GET", "/", nil)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				links = append(links, h.Get("Link"))
				return nil
			},
		}))
		if _, text, err := do(p, r); err != nil || text != "ok" {
			t.Fatalf("%q, %v", text, err)
		}
		if !slices.Equal(links, []string{"</a.css>", "</b.css>"}) {
			t.Errorf("interim responses %q", links)
		}
		if p.Retried() != 1 {
			t.Errorf("retried %d, want once: the first server refuses", p.Retried())
		}

		w.set("b:80", faulty.Named("endless interim responses").Script)
		p.servers[1].client.closeIdle()
		links = nil
		if _, _, err := do(p, r); !errors.Is(err, ErrProtocol) || len(links) != maxInterim {
			t.Errorf("%d interim responses, then %v", len(links), err)
		}
		synctest.Wait()
		idle(t, p)
	})
}

// TestInterimRefused: a hook that refuses an interim response ends the request.
func TestInterimRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 103 Early Hints\r\n\r\n" + okAnswer)})
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		mine := errors.New("no hints, please")
		r := newRequest(t, "GET", "/", nil)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(int, textproto.MIMEHeader) error { return mine },
		}))
		if _, _, err := do(p, r); !errors.Is(err, mine) {
			t.Errorf("error %v", err)
		}
	})
}
