package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
)

// Events reach the client while the stream is open, the header even before them.
func TestStreams(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		next := make(chan string)
		r := newRig(t, protocol, Options{Stream: true}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			for event := range next {
				io.WriteString(w, event)
				w.(http.Flusher).Flush()
			}
		}))
		res, err := r.client.Do(r.request("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		buf := make([]byte, 100)
		for i := range 3 {
			event := fmt.Sprintf("data: %d\n\n", i)
			next <- event
			if n, err := io.ReadFull(res.Body, buf[:len(event)]); err != nil || string(buf[:n]) != event {
				t.Fatalf("got %q: %v", buf[:n], err)
			}
		}
		close(next)
		if _, err := res.Body.Read(buf); err != io.EOF {
			t.Errorf("the end: %v", err)
		}
	})
}

// A body whose length is known is not held back either when it pauses.
func TestPauses(t *testing.T) {
	next := make(chan bool)
	r := newRig(t, "h1", Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "hello")
		w.(http.Flusher).Flush()
		<-next
		io.WriteString(w, "world")
	}))
	res, err := r.client.Do(r.request("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "hello" {
		t.Fatalf("%q: %v", buf, err)
	}
	next <- true
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "world" {
		t.Errorf("%q: %v", b, err)
	}
}

// A conversation: each side hears the other while its own body goes on.
func TestBothWaysAtOnce(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		r := newRig(t, protocol, Options{Stream: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			w.(http.Flusher).Flush()
			buf := make([]byte, 100)
			for {
				n, err := r.Body.Read(buf)
				w.Write(buf[:n])
				w.(http.Flusher).Flush()
				if err != nil {
					return
				}
			}
		}))
		read, write := io.Pipe()
		res, err := r.client.Do(r.request("POST", "/", read))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		buf := make([]byte, 4)
		for _, word := range []string{"ping", "pong", "pang"} {
			io.WriteString(write, word)
			if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != word {
				t.Fatalf("%q: %v", buf, err)
			}
		}
		write.Close()
		if b, err := io.ReadAll(res.Body); err != nil || len(b) != 0 {
			t.Errorf("%q: %v", b, err)
		}
	})
}

func TestTrailers(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		var got http.Header
		r := newRig(t, protocol, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			got = r.Trailer
			w.Header().Set("Trailer", "X-Sum, Set-Cookie")
			io.WriteString(w, "the body")
			w.Header().Set("X-Sum", "123")
			w.Header().Set("Set-Cookie", "evil=1")
			w.Header().Set(http.TrailerPrefix+"X-Late", "456")
		}))
		q := r.request("POST", "/", nil)
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader("upload")), -1
		q.Trailer = http.Header{"X-Up": {"789"}, "X-Forwarded-For": {"1.2.3.4"}}
		if protocol != "h2" { // where the server refuses it
			q.Trailer["Authorization"] = []string{"x"}
		}
		res, body := r.do(q)
		if diff := cmp.Diff(http.Header{"X-Up": {"789"}}, got); diff != "" {
			t.Errorf("trailers of the request (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(http.Header{"X-Sum": {"123"}, "X-Late": {"456"}}, res.Trailer); diff != "" || body != "the body" {
			t.Errorf("trailers of the answer %q (-want +got):\n%s", body, diff)
		}
	})
}

// Interim responses go out as they come, and leave no trace in the last.
func TestEarlyHints(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		r := newRig(t, protocol, Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			for _, link := range []string{"</a.css>; rel=preload", "</b.css>; rel=preload"} {
				h.Set("Link", link)
				h.Set("Server", "secret")
				h.Set("Connection", "X-Hop")
				h.Set("X-Hop", "1")
				w.WriteHeader(http.StatusEarlyHints)
			}
			clear(h)
			io.WriteString(w, "hi")
		}))
		inner := r.front.Config.Handler
		r.front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("X-Before", "kept")
			inner.ServeHTTP(w, q)
		})
		var links []string
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code != 103 || h.Get("Server")+h.Get("X-Hop")+h.Get("X-Before") != "" {
				t.Errorf("interim %d %v", code, h)
			}
			links = append(links, h.Get("Link"))
			return nil
		}}
		q := r.request("GET", "/", nil)
		res, body := r.do(q.WithContext(httptrace.WithClientTrace(q.Context(), trace)))
		if len(links) != 2 || links[1] != "</b.css>; rel=preload" {
			t.Errorf("hints %q", links)
		}
		if res.StatusCode != 200 || body != "hi" || res.Header.Get("Link") != "" || res.Header.Get("X-Before") != "kept" {
			t.Errorf("status %d %q, header %v", res.StatusCode, body, res.Header)
		}
	})
}

func TestNoInterimForHTTP10(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hi")
	}))
	if got := r.raw("GET / HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.0 200 OK\r\n") {
		t.Errorf("HTTP/1.0 gets %q", got)
	}
}

// The upstream decides whether an upload that asks first may come.
func TestExpectContinue(t *testing.T) {
	r := newRig(t, "h1", Options{Stream: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		b, _ := io.ReadAll(r.Body) // which sends 100
		w.Write(b)
	}))
	head := "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
	if got := r.raw(fmt.Sprintf(head, "/no")); !strings.HasPrefix(got, "HTTP/1.1 417 ") {
		t.Errorf("refused: %q", got)
	}
	nc := r.dial()
	fmt.Fprintf(nc, head, "/yes")
	in := bufio.NewReader(nc)
	if line, _ := in.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("first comes %q", line)
	}
	io.WriteString(nc, "hello")
	if got, _ := io.ReadAll(in); !strings.HasPrefix(string(got), "\r\nHTTP/1.1 200 OK\r\n") || !strings.HasSuffix(string(got), "hello") {
		t.Errorf("then %q", got)
	}
}

// An answer that comes before the upload ends reaches the client, and what is
// left of the upload is not taken for a request.
func TestEarlyAnswer(t *testing.T) {
	asked := make(chan string, 10)
	r := newRig(t, "h1", Options{Stream: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		asked <- r.Method
		w.Header().Set("Content-Length", "2")
		w.Header().Set("Connection", "close") // otherwise net/http panics: it has read ahead after the rest of the body
		io.WriteString(w, "no")
	}))
	nc := r.dial()
	defer nc.Close()
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	fmt.Fprintf(nc, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", 2*len(smuggled))
	in := bufio.NewReader(nc)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != 200 || !res.Close {
		t.Fatalf("%+v: %v", res, err)
	}
	res.Body.Close()
	io.WriteString(nc, smuggled+smuggled+smuggled)
	io.Copy(io.Discard, in)
	if len(asked) != 1 {
		t.Errorf("the upstream was asked %d times", len(asked))
	}
}

// A complete upload leaves the connection as it was.
func TestUploadKeepsTheConnection(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(tell))
	nc := r.dial()
	in := bufio.NewReader(nc)
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		io.WriteString(nc, request)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		if res.Close || res.StatusCode != 200 || strings.HasPrefix(request, "POST") != strings.Contains(string(b), "hello") {
			t.Errorf("%q: close %t, %s", request, res.Close, b)
		}
	}
}

// What a client does wrong with its upload is not the upstream's failure.
func TestBadUploads(t *testing.T) {
	r := newRig(t, "h1", Options{}, http.HandlerFunc(tell))
	inner := r.front.Config.Handler
	r.front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		q.Body = http.MaxBytesReader(w, q.Body, 10)
		inner.ServeHTTP(w, q)
	})
	if res, _ := r.do(r.request("POST", "/", io.MultiReader(strings.NewReader(strings.Repeat("x", 20))))); res.StatusCode != 413 {
		t.Errorf("an upload that is too long: %d", res.StatusCode)
	}
	got := r.raw("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("a stray body: %q", got)
	}
	if log := r.log.String(); log != "" {
		t.Errorf("the log says %q", log)
	}
}

// A client that goes away ends its request upstream, without a line in the log.
func TestClientGoesAway(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		arrived, ended := make(chan bool, 1), make(chan error, 1)
		r := newRig(t, protocol, Options{Stream: true}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			arrived <- true
			<-r.Context().Done()
			ended <- r.Context().Err()
		}))
		var served sync.WaitGroup
		inner := r.front.Config.Handler
		r.front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			defer served.Done()
			inner.ServeHTTP(w, q)
		})
		served.Add(1)
		ctx, cancel := context.WithCancel(t.Context())
		q := r.request("GET", "/", nil).WithContext(ctx)
		go func() { <-arrived; cancel() }()
		if _, err := r.client.Do(q); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		<-ended
		served.Wait()
		if log := r.log.String(); log != "" {
			t.Errorf("the log says %q", log)
		}
	})
}

func BenchmarkServe(b *testing.B) {
	h, err := New(to("http://a.example"), doer(func(context.Context, *upstream.Request, func(int, field.Lines) error) (*upstream.Answer, error) {
		return &upstream.Answer{
			Status: 200, Major: 1, Minor: 1, Length: 5,
			Fields: field.Lines{{Name: "Content-Type", Value: "text/plain"}, {Name: "Date", Value: "Sun, 29 Nov 2026 06:00:00 GMT"}, {Name: "Content-Length", Value: "5"}},
			Body:   io.NopCloser(strings.NewReader("hello")),
		}, nil
	}), nil)
	if err != nil {
		b.Fatal(err)
	}
	r, _ := http.NewRequestWithContext(b.Context(), "GET", "http://blog.example/x", nil)
	r.RemoteAddr = "192.0.2.1:1"
	r.Header = http.Header{"Accept": {"*/*"}, "User-Agent": {"x"}, "Accept-Encoding": {"gzip"}, "Cookie": {"a=b"}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(&sink{header: http.Header{}}, r)
	}
}

type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}
