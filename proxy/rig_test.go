package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logs is a log that tests look into.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rig is a proxy between a client and an upstream.
type rig struct {
	*Handler
	t      *testing.T
	log    *logs
	front  *httptest.Server
	client *http.Client
	drain  chan struct{}
	way    upstream.Doer // to the upstream
	back   string        // its address
}

// newRig starts a proxy with a front of one protocol, to an upstream.
func newRig(t *testing.T, protocol string, o Options, up http.Handler) *rig {
	t.Helper()
	back := httptest.NewServer(up)
	t.Cleanup(back.Close)
	o.To = []string{back.URL}
	return rigTo(t, protocol, o)
}

func rigTo(t *testing.T, protocol string, o Options) *rig {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, ExpectContinueTimeout: 1 << 40}
	t.Cleanup(tr.CloseIdleConnections)
	r := &rig{t: t, log: new(logs), drain: make(chan struct{}), way: upstream.Over{RoundTripper: tr, To: o.To[0]}, back: o.To[0]}
	way := doer(func(ctx context.Context, q *upstream.Request, interim func(int, field.Lines) error) (*upstream.Answer, error) {
		return r.way.Do(ctx, q, interim)
	})
	h, err := New(o, way, slog.New(slog.NewTextHandler(r.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	h.drained = func(*http.Request) <-chan struct{} { return r.drain }
	r.Handler = h
	r.start(protocol, h)
	return r
}

func (r *rig) start(protocol string, h http.Handler) {
	f := servertest.Serve(r.t, protocol, h)
	r.front, r.client = f.Server, f.Client()
	r.client.Transport.(*http.Transport).DisableCompression = false // as clients have it
}

type doer func(ctx context.Context, q *upstream.Request, interim func(int, field.Lines) error) (*upstream.Answer, error)

func (f doer) Do(ctx context.Context, q *upstream.Request, interim func(int, field.Lines) error) (*upstream.Answer, error) {
	return f(ctx, q, interim)
}

// failing is a way to an upstream that fails.
func failing(err error) upstream.Doer {
	return doer(func(context.Context, *upstream.Request, func(int, field.Lines) error) (*upstream.Answer, error) {
		return nil, err
	})
}

func (r *rig) request(method, target string, body io.Reader, head ...string) *http.Request {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.front.URL+target, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(head); i += 2 {
		q.Header.Add(head[i], head[i+1])
	}
	return q
}

func (r *rig) do(q *http.Request) (*http.Response, string) {
	r.t.Helper()
	res, err := r.client.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res, string(b)
}

func (r *rig) get(target string, head ...string) (*http.Response, string) {
	r.t.Helper()
	return r.do(r.request("GET", target, nil, head...))
}

// dial connects to the front as a client that writes its own bytes.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	if r.front.TLS != nil {
		nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	r.t.Cleanup(func() { nc.Close() })
	return nc
}

// raw sends bytes and reads all that is answered until the server closes.
func (r *rig) raw(request string) string {
	r.t.Helper()
	nc := r.dial()
	if _, err := io.WriteString(nc, request); err != nil {
		r.t.Fatal(err)
	}
	b, err := io.ReadAll(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// rawUpstream answers every connection with the same bytes, whatever is asked,
// once a request's header has come.
func rawUpstream(t *testing.T, answer string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				var head []byte
				buf := make([]byte, 4096)
				for !bytes.Contains(head, []byte("\r\n\r\n")) {
					n, err := nc.Read(buf)
					if err != nil {
						return
					}
					head = append(head, buf[:n]...)
				}
				io.WriteString(nc, answer)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return "http://" + l.Addr().String()
}

func to(addr string) Options { return Options{Options: upstream.Options{To: []string{addr}}} }

// lines makes a request of what stands on lines.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }
