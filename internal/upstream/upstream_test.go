package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"millrace/internal/upstream/faulty"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http complains there of what these tests do
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// wires is a network in memory. A host is what it does with a connection; one
// that is missing refuses.
type wires struct {
	mu      sync.Mutex
	hosts   map[string]func(net.Conn)
	dialled map[string]int
	running sync.WaitGroup
	done    chan struct{}
}

// newWires must be made inside the bubble. Its end is that of the test.
func newWires(t *testing.T) *wires {
	w := &wires{hosts: map[string]func(net.Conn){}, dialled: map[string]int{}, done: make(chan struct{})}
	t.Cleanup(func() { close(w.done); w.running.Wait() })
	return w
}

func (w *wires) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled[addr]++
	host := w.hosts[addr]
	w.mu.Unlock()
	if host == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	w.running.Go(func() { host(far) })
	return near, nil
}

// set makes addr play a script, or refuse without one.
func (w *wires) set(addr string, s faulty.Script) {
	w.host(addr, func(c net.Conn) { faulty.Play(c, s, w.done) })
	if s == nil {
		w.host(addr, nil)
	}
}

func (w *wires) host(addr string, f func(net.Conn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[addr] = f
}

// handle answers requests on each connection one after the other with what
// f writes, until it returns false.
func (w *wires) handle(addr string, f func(r *http.Request, c net.Conn) bool) {
	w.host(addr, func(c net.Conn) {
		defer c.Close()
		reader := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			if !f(r, c) {
				return
			}
		}
	})
}

func (w *wires) dials(addr string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dialled[addr]
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func answerOK(_ *http.Request, c net.Conn) bool {
	_, err := io.WriteString(c, okAnswer)
	return err == nil
}

// newPool is a pool over w, closed at the end of the test.
func newPool(t testing.TB, o Options, w *wires) *Pool {
	t.Helper()
	var dial dialer
	if w != nil {
		dial = w.dial
	}
	p, err := start(o, slog.New(slog.DiscardHandler), dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func newRequest(t testing.TB, method, target string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://client.example"+target, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// get asks for / and reads all of the answer.
func get(t testing.TB, p *Pool) (status int, text string, err error) {
	t.Helper()
	return do(p, newRequest(t, "GET", "/", nil))
}

func do(p *Pool, r *http.Request) (status int, text string, err error) {
	resp, err := p.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// idle fails the test unless nothing holds a place.
func idle(t *testing.T, p *Pool) {
	t.Helper()
	for _, s := range p.Servers() {
		if s.Running != 0 || s.Streams != 0 {
			t.Errorf("%s has %d running and %d streams after all", s.Address, s.Running, s.Streams)
		}
	}
	if n := p.Waiting(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// bubble runs f in a bubble of synctest, in which the pool and the network end.
func bubble(t *testing.T, f func(t *testing.T, w *wires)) {
	synctest.Test(t, func(t *testing.T) { f(t, newWires(t)) })
}

func TestFaults(t *testing.T) {
	want := map[faulty.Effect]error{
		faulty.Refused: ErrUnreachable, faulty.Broken: ErrProtocol, faulty.Late: ErrTimeout,
		faulty.Cut: ErrProtocol, faulty.Stalled: ErrTimeout,
	}
	for _, s := range faulty.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", s.Script)
				p := newPool(t, Options{To: []string{"http://a"}, Breaker: Breaker{Off: true}}, w)
				for range 3 {
					r := newRequest(t, "GET", "/", nil)
					if s.Method != "" {
						r.Method = s.Method
					}
					resp, err := p.RoundTrip(r)
					inHeader := err != nil
					if err == nil {
						var text []byte
						text, err = io.ReadAll(resp.Body)
						resp.Body.Close()
						if strings.Contains(string(text), faulty.Secret) || strings.Contains(resp.Header.Get("X-Leak"), faulty.Secret) {
							t.Errorf("bytes after an answer were taken for another: %q", text)
						}
						if s.Effect == faulty.Whole && resp.ContentLength > 0 && s.Method == "" && string(text) != "hello" {
							t.Errorf("body %q", text)
						}
					}
					if !errors.Is(err, want[s.Effect]) {
						t.Errorf("error %v, want %v", err, want[s.Effect])
					}
					if wantInHeader := s.Effect == faulty.Refused || s.Effect == faulty.Broken || s.Effect == faulty.Late; inHeader != wantInHeader {
						t.Errorf("error in the header: %v, want %v (%v)", inHeader, wantInHeader, err)
					}
				}
				synctest.Wait()
				idle(t, p)
			})
		})
	}
}
