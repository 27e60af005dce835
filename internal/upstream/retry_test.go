package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/upstream/faulty"
)

// tracked is a body that knows what became of it.
type tracked struct {
	io.Reader
	read, closed int
}

func (b *tracked) Read(p []byte) (int, error) { b.read++; return b.Reader.Read(p) }
func (b *tracked) Close() error               { b.closed++; return nil }

// TestRetries: which failures are repeated, with which methods and bodies.
func TestRetries(t *testing.T) {
	body := func() io.Reader { return &tracked{Reader: strings.NewReader("hello")} }
	gets := func() io.Reader { return strings.NewReader("hello") } // has GetBody
	for name, c := range map[string]struct {
		method string
		body   func() io.Reader
		fault  faulty.Script // of the first server; nil refuses
		again  bool
	}{
		"GET refused":                 {"GET", nil, nil, true},
		"POST refused":                {"POST", nil, nil, true},
		"POST with body refused":      {"POST", body, nil, true},
		"GET cut before header":       {"GET", nil, faulty.Named("close after request").Script, true},
		"HEAD cut before header":      {"HEAD", nil, faulty.Named("close after request").Script, true},
		"PUT cut before header":       {"PUT", nil, faulty.Named("close after request").Script, true},
		"PUT with body cut":           {"PUT", body, faulty.Named("close after request").Script, false},
		"PUT with body to get again":  {"PUT", gets, faulty.Named("close after request").Script, true},
		"POST cut before header":      {"POST", nil, faulty.Named("close after request").Script, false},
		"POST with body to get again": {"POST", gets, faulty.Named("close after request").Script, false},
		"PATCH cut before header":     {"PATCH", nil, faulty.Named("close after request").Script, false},
		"GET cut in header":           {"GET", nil, faulty.Named("cut in header").Script, false},
		"GET bad status":              {"GET", nil, faulty.Named("status of letters").Script, false},
		"GET too late":                {"GET", nil, faulty.Named("hang before header").Script, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", c.fault)
				var got string
				w.handle("b:80", func(r *http.Request, conn net.Conn) bool {
					b, _ := io.ReadAll(r.Body)
					got = string(b)
					return answerOK(r, conn)
				})
				p := newPool(t, Options{To: []string{"http://a", "http://b"}, Balance: "round_robin"}, w)
				var b io.Reader
				if c.body != nil {
					b = c.body()
				}
				_, _, err := do(p, newRequest(t, c.method, "/", b))
				if (err == nil) != c.again || (p.Retried() == 1) != c.again {
					t.Errorf("error %v, retried %d; want a retry: %v", err, p.Retried(), c.again)
				}
				if c.again && b != nil && got != "hello" {
					t.Errorf("the second server got the body %q", got)
				}
				synctest.Wait()
				if b, ok := b.(*tracked); ok && b.closed != 1 {
					t.Errorf("the body was closed %d times", b.closed)
				}
				idle(t, p)
			})
		})
	}
}

// TestSameServer: an only server gets a second chance, after a pause.
func TestSameServer(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", faulty.Named("close after request").Script)
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		begin := time.Now()
		if _, _, err := get(t, p); !errors.Is(err, ErrUnreachable) {
			t.Errorf("error %v", err)
		}
		if n := w.dials("a:80"); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
		if took := time.Since(begin); took < retryPause/2+retryPause || took > 3*retryPause {
			t.Errorf("took %s", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), retryPause/4)
		defer cancel()
		if _, _, err := do(p, newRequest(t, "GET", "/", nil).WithContext(ctx)); !errors.Is(err, ErrTimeout) {
			t.Errorf("error %v, want the pause to end with the context", err)
		}
	})
}

// TestBudget: when everything fails, a fifth more requests are made, not three times as many.
func TestBudget(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		p := newPool(t, Options{To: []string{"http://a", "http://b"}, Breaker: Breaker{Off: true}}, w)
		const requests = 1000
		for range requests {
			if _, _, err := get(t, p); !errors.Is(err, ErrUnreachable) {
				t.Fatalf("error %v", err)
			}
		}
		if n := p.Retried(); n != requests/5 {
			t.Errorf("%d repeats of %d requests, want a fifth", n, requests)
		}
		time.Sleep(budgetWindow + time.Second)
		for range 30 {
			get(t, p)
		}
		if n := p.Retried() - requests/5; n != minRetries {
			t.Errorf("%d repeats of 30 requests, want %d", n, minRetries)
		}

		none := newPool(t, Options{To: []string{"http://a", "http://b"}, Retries: Retries{Attempts: 1}}, w)
		if get(t, none); none.Retried() != 0 {
			t.Error("repeated with attempts: 1")
		}
	})
}

// TestUploadFails: what is the client's fault is not the server's.
func TestUploadFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.handle("a:80", func(r *http.Request, c net.Conn) bool {
			io.Copy(io.Discard, r.Body)
			return answerOK(r, c)
		})
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		gone := errors.New("the client has gone")
		r := newRequest(t, "POST", "/", io.MultiReader(strings.NewReader("half"), failing{gone}))
		r.ContentLength = 100
		_, _, err := do(p, r)
		if !errors.Is(err, gone) || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrProtocol) {
			t.Errorf("error %v", err)
		}
		if s := p.Servers()[0]; s.Fails != 0 {
			t.Errorf("the server has %d failures", s.Fails)
		}
		synctest.Wait()
		idle(t, p)
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestClientsCannotEject: requests that cannot be sent are nobody's failure.
func TestClientsCannotEject(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		afterBody := func(r *http.Request, c net.Conn) bool {
			io.Copy(io.Discard, r.Body)
			return answerOK(r, c)
		}
		w.handle("a:80", afterBody)
		w.handle("b:80", afterBody)
		p := newPool(t, Options{To: []string{"http://a", "http://b"}, Host: "client", Breaker: Breaker{Requests: 1}}, w)
		for range 50 {
			r := newRequest(t, "GET", "/", nil)
			r.Host = "a b\x00"
			do(p, r)
			r = newRequest(t, "GET", "/", nil)
			r.Header["X\n"] = []string{"y"}
			if _, _, err := do(p, r); err == nil || errors.Is(err, ErrUnreachable) {
				t.Fatalf("error %v", err)
			}
			r = newRequest(t, "POST", "/", io.MultiReader(strings.NewReader("short")))
			r.ContentLength = 100
			if _, _, err := do(p, r); err == nil || errors.Is(err, ErrUnreachable) {
				t.Fatalf("error %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			do(p, newRequest(t, "GET", "/", nil).WithContext(ctx))
		}
		for _, s := range p.Servers() {
			if s.Fails != 0 || !s.Healthy || s.Open {
				t.Errorf("%+v", s)
			}
		}
		idle(t, p)
	})
}

// TestStaleConnection: a server that closes idle connections while they are
// used again is not failing.
func TestStaleConnection(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		n := 0
		w.handle("a:80", func(r *http.Request, c net.Conn) bool {
			if n++; n%2 == 0 {
				return false // the second request on a connection
			}
			return answerOK(r, c)
		})
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		for range 5 {
			if _, _, err := get(t, p); err != nil {
				t.Errorf("GET: %v", err)
			}
			synctest.Wait()
		}
		if s := p.Servers()[0]; s.Fails != 0 {
			t.Errorf("%d failures", s.Fails)
		}
	})
}
