package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quic-go/quic-go/http3"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A wayIn is a protocol over a transport.
type wayIn struct {
	name, protocol string
	serve          func(testing.TB, http.Handler) (url string)
}

func waysIn() []wayIn {
	return []wayIn{
		{"http1", "http1", servePlain},
		{"http1 unix", "http1", serveUnix},
		{"http1 tls", "http1", serveTLS},
		{"http2", "http2", serveTLS},
		{"http2 prior knowledge", "http2", serveH2C},
		{"http3", "http3", serveQUIC},
	}
}

func start(t testing.TB, h http.Handler, with func(*httptest.Server)) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = discardLog()
	with(s)
	t.Cleanup(s.Close)
	return s.URL
}

func servePlain(t testing.TB, h http.Handler) string {
	return start(t, h, (*httptest.Server).Start)
}

func serveTLS(t testing.TB, h http.Handler) string {
	return start(t, h, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() })
}

func serveH2C(t testing.TB, h http.Handler) string {
	return start(t, h, func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	})
}

func serveUnix(t testing.TB, h http.Handler) string {
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	start(t, h, func(s *httptest.Server) {
		s.Listener.Close()
		if s.Listener, err = net.Listen("unix", path); err != nil {
			t.Fatal(err)
		}
		s.Start()
	})
	return "unix:" + path
}

// certificate is httptest's own, which nobody trusts.
func certificate(t testing.TB) *tls.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.StartTLS()
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

func serveQUIC(t testing.TB, h http.Handler) string {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &http3.Server{Handler: h, TLSConfig: http3.ConfigureTLSConfig(certificate(t))}
	var wait sync.WaitGroup
	wait.Go(func() { s.Serve(socket) })
	t.Cleanup(func() {
		s.Close()
		wait.Wait()
		socket.Close()
	})
	return "https://" + socket.LocalAddr().String()
}

// dial opens one connection, which the test's end closes.
func dial(t testing.TB, o Options) Conn {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Dial(t.Context())
	if err != nil {
		d.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c
}

// shorten makes the next answers late without hurrying the connection.
func shorten(c Conn, to time.Duration) {
	switch c := c.(type) {
	case *http1Conn:
		c.guard.timeout = to
	case *webSocketConn:
		c.guard.timeout = to
	case *roundTripConn:
		c.target.timeout = to
	}
}

// each runs a test on every way in. A server that outlives its test's
// connection is slow to close, so the server starts first and ends last.
func each(t *testing.T, h http.Handler, test func(t *testing.T, o Options)) {
	for _, w := range waysIn() {
		t.Run(w.name, func(t *testing.T) {
			test(t, Options{Protocol: w.protocol, URL: w.serve(t, h), Insecure: true})
		})
	}
}

func TestAnswers(t *testing.T) {
	big := bytes.Repeat([]byte("millrace"), 100_000)
	mux := http.NewServeMux()
	mux.HandleFunc("/echo/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen", fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Host, " ", r.UserAgent(), r.Header["Accept-Encoding"], r.Header["X-Own"]))
		io.WriteString(w, "hello")
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { w.Write(big) })
	mux.HandleFunc("/chunks", func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			io.WriteString(w, "chunk")
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/echo/", http.StatusFound) })
	mux.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/zipped", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "not to be unpacked")
	})
	each(t, mux, func(t *testing.T, o Options) {
		o.Paths = []string{"/echo/%41?q=1%20", "/big", "/chunks", "/moved", "/hints", "/zipped", "/none"}
		o.Header = http.Header{"Host": {"own.example"}, "X-Own": {"a", "b"}}
		c := dial(t, o)
		type seen struct {
			Status int
			Body   int
			Text   string
		}
		want := []seen{{200, 5, "hello"}, {200, len(big), ""}, {200, 15, "chunkchunkchunk"}, {302, -1, ""}, {204, 0, ""}, {200, 18, "not to be unpacked"}, {404, 19, "404 page not found\n"}}
		var got []seen
		for i := range o.Paths {
			var tee bytes.Buffer
			a, err := c.Do(t.Context(), i, &tee)
			if err != nil {
				t.Fatalf("%s: %v", o.Paths[i], err)
			}
			if int(a.Body) != tee.Len() {
				t.Errorf("%s: body of %d bytes, handed on %d", o.Paths[i], a.Body, tee.Len())
			}
			s := seen{a.Status, tee.Len(), tee.String()}
			if i == 1 && s.Text == string(big) {
				s.Text = ""
			}
			if i == 3 {
				s.Body, s.Text = -1, ""
			}
			got = append(got, s)
			if i == 0 {
				if seen, want := a.Head.Get("X-Seen"), "GET /echo/%41?q=1%20 own.example [] [a b]"; seen != want {
					t.Errorf("the server saw %q, want %q", seen, want)
				}
			}
			if a.Close {
				t.Errorf("%s: the connection is said to end", o.Paths[i])
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if a, err := c.Do(t.Context(), 0, nil); err != nil || a.Body != 5 {
			t.Errorf("without tee: %+v, %v", a, err)
		}
		if _, err := c.Do(t.Context(), len(o.Paths), nil); !errors.Is(err, ErrProtocol) {
			t.Errorf("path out of range: %v", err)
		}
	})
}

// TestOneConnection shows that all requests of a Conn come over one connection
// and those of another Conn over another.
func TestOneConnection(t *testing.T) {
	from := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-From", r.RemoteAddr)
		if r.TLS != nil && r.TLS.DidResume {
			w.Header().Set("X-Resumed", "yes")
		}
	})
	each(t, from, func(t *testing.T, o Options) {
		seen := map[string]bool{}
		for range 2 {
			c := dial(t, o)
			var first string
			for i := range 3 {
				a, err := c.Do(t.Context(), 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				switch addr := a.Head.Get("X-From"); {
				case i == 0:
					first = addr
				case addr != first:
					t.Errorf("request %d came from %s, the first from %s", i, addr, first)
				}
				if a.Head.Get("X-Resumed") != "" {
					t.Error("a TLS session was resumed")
				}
			}
			seen[first] = true
		}
		if len(seen) != 2 && !strings.HasPrefix(o.URL, "unix:") {
			t.Errorf("two connections came from %v", seen)
		}
	})
}

func TestStreams(t *testing.T) {
	const streams = 8
	for _, w := range waysIn() {
		if w.protocol == "http1" {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			// Nobody is answered before all have asked.
			var all sync.WaitGroup
			all.Add(streams)
			url := w.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				all.Done()
				all.Wait()
				w.Header().Set("X-From", r.RemoteAddr)
			}))
			c := dial(t, Options{Protocol: w.protocol, URL: url, Insecure: true, Streams: streams})
			var wait sync.WaitGroup
			for range streams {
				wait.Go(func() {
					if a, err := c.Do(t.Context(), 0, nil); err != nil || a.Status != 200 {
						t.Errorf("%+v, %v", a, err)
					}
				})
			}
			wait.Wait()
		})
	}
}

func TestTimeout(t *testing.T) {
	for _, late := range []string{"/head", "/body"} {
		each(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/body" {
				w.Header().Set("Content-Length", "10")
				io.WriteString(w, "half ")
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}), func(t *testing.T, o Options) {
			o.Paths = []string{late}
			c := dial(t, o)
			shorten(c, 50*time.Millisecond)
			_, err := c.Do(t.Context(), 0, nil)
			onlyWraps(t, err, ErrTimeout)
			c.Close() // lets the handler go, before the server waits for it
		})
	}
}

func TestContextEnds(t *testing.T) {
	asked := make(chan struct{}, 1)
	each(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}), func(t *testing.T, o Options) {
		c := dial(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // ends with the handler's call, which Do waits for
			<-asked
			cancel()
		}()
		_, err := c.Do(ctx, 0, nil)
		onlyWraps(t, err, ErrClosed)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v does not wrap the context's error", err)
		}
		if _, err := c.Do(ctx, 0, nil); err == nil {
			t.Error("a request with an ended context was answered")
		}
		c.Close()
	})
}

// TestCutOff has the server give up in the middle of an answer.
func TestCutOff(t *testing.T) {
	each(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "half ")
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	}), func(t *testing.T, o Options) {
		for _, o.Paths = range [][]string{{"/head"}, {"/body"}} {
			c := dial(t, o)
			_, err := c.Do(t.Context(), 0, nil)
			onlyWraps(t, err, ErrClosed)
			c.Close()
		}
	})
}

// TestClosedByUs ends a connection under a request that waits.
func TestClosedByUs(t *testing.T) {
	asked := make(chan struct{}, 1)
	each(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // or its answer may still be quicker than the end of the connection
	}), func(t *testing.T, o Options) {
		c := dial(t, o)
		go func() {
			<-asked
			c.Close()
		}()
		_, err := c.Do(t.Context(), 0, nil)
		onlyWraps(t, err, ErrClosed)
	})
}

func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, c := range []struct{ protocol, url string }{
		{"http1", "http://" + address},
		{"http1", "https://" + address},
		{"http1", "unix:" + filepath.Join(t.TempDir(), "none")},
		{"http2", "http://" + address},
		{"http2", "https://" + address},
		{"websocket", "ws://" + address},
	} {
		err := dialError(t, Options{Protocol: c.protocol, URL: c.url})
		onlyWraps(t, err, ErrConnect)
		u, _ := url.Parse(c.url)
		if n := strings.Count(err.Error(), u.Host+u.Path); n != 1 {
			t.Errorf("%q names the target %d times", err, n)
		}
	}
}

// TestCertificates holds what a person reads about a certificate.
func TestCertificates(t *testing.T) {
	url := serveTLS(t, http.NotFoundHandler())
	quic := serveQUIC(t, http.NotFoundHandler())
	for _, c := range []struct{ protocol, url string }{
		{"http1", url},
		{"http2", url},
		{"http3", quic},
		{"websocket", strings.Replace(url, "https:", "wss:", 1)},
	} {
		err := dialError(t, Options{Protocol: c.protocol, URL: c.url})
		onlyWraps(t, err, ErrConnect)
		address := strings.TrimPrefix(strings.TrimPrefix(c.url, "https://"), "wss://")
		want := "cannot connect to " + address + ": its certificate is self-signed; to accept any certificate, use --insecure"
		if err.Error() != want {
			t.Errorf("%s says\n%s, want\n%s", c.protocol, err, want)
		}
	}
}

// TestWrongProtocol asks for what the server does not speak.
func TestWrongProtocol(t *testing.T) {
	plain := servePlain(t, http.NotFoundHandler())
	onlyH1 := start(t, http.NotFoundHandler(), func(s *httptest.Server) {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.StartTLS()
	})
	for _, c := range []struct{ protocol, url, says string }{
		{"http1", strings.Replace(plain, "http:", "https:", 1), "does not speak TLS there"},
		{"http2", strings.Replace(plain, "http:", "https:", 1), "does not speak TLS there"},
		{"http2", onlyH1, "not this protocol"},
		{"websocket", strings.Replace(plain, "http:", "ws:", 1), "404 Not Found to the upgrade"},
	} {
		err := dialError(t, Options{Protocol: c.protocol, URL: c.url, Insecure: true})
		onlyWraps(t, err, ErrConnect)
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s to %s: %v, want %q in it", c.protocol, c.url, err, c.says)
		}
	}
	c := dial(t, Options{Protocol: "http2", URL: plain})
	// Whether its refusal or its reset comes first is the server's luck.
	if _, err := c.Do(t.Context(), 0, nil); err == nil {
		t.Error("HTTP/1.1 was taken for HTTP/2")
	}
}

// TestGoingAway has an HTTP/2 server end the connection in good order: no
// request may fail that the server took.
func TestGoingAway(t *testing.T) {
	url := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }))
	c := dial(t, Options{Protocol: "http2", URL: url, Insecure: true})
	for range 1000 { // it may take more requests before it has said so
		a, err := c.Do(t.Context(), 0, nil)
		if err != nil {
			onlyWraps(t, err, ErrClosed)
			if !a.Close {
				t.Errorf("not said that the request was never taken: %v", err)
			}
		}
		if a.Close {
			return
		}
	}
	t.Error("the server never left")
}

func TestErrorKinds(t *testing.T) {
	for _, c := range []struct {
		err     error
		of      func(error) (bool, error)
		kind    error
		untaken bool
	}{
		{http2.StreamError{Code: http2.ErrCodeRefusedStream}, http2Kind, ErrClosed, true},
		{http2.StreamError{Code: http2.ErrCodeInternal}, http2Kind, ErrClosed, false},
		{http2.StreamError{Code: http2.ErrCodeProtocol}, http2Kind, ErrProtocol, false},
		{errors.New("http2: client conn not usable"), http2Kind, ErrClosed, true},
		{errors.New("http2: client connection lost"), http2Kind, ErrClosed, false},
		{io.ErrUnexpectedEOF, http2Kind, nil, false},
		{&http3.Error{ErrorCode: http3.ErrCodeRequestRejected}, http3Kind, ErrClosed, true},
		{&http3.Error{ErrorCode: http3.ErrCodeInternalError}, http3Kind, ErrClosed, false},
		{&http3.Error{ErrorCode: http3.ErrCodeFrameUnexpected}, http3Kind, ErrProtocol, false},
		{errors.New("connection in graceful shutdown"), http3Kind, ErrClosed, true},
		{io.ErrUnexpectedEOF, http3Kind, nil, false},
	} {
		if untaken, kind := c.of(c.err); kind != c.kind || untaken != c.untaken { //nolint:errorlint // the very sentinel, or nil
			t.Errorf("%v: %v, %v", c.err, kind, untaken)
		}
	}
}

func TestSourceAddress(t *testing.T) {
	from := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-From", r.RemoteAddr) })
	each(t, from, func(t *testing.T, o Options) {
		if strings.HasPrefix(o.URL, "unix:") {
			t.Skip("no addresses")
		}
		probe, err := net.Listen("tcp", "127.0.0.9:0")
		if err != nil {
			t.Skip("this system has only one loopback address: ", err)
		}
		probe.Close()
		o.LocalAddr = func() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)} }
		a, err := dial(t, o).Do(t.Context(), 0, nil)
		if err != nil || !strings.HasPrefix(a.Head.Get("X-From"), "127.0.0.9:") {
			t.Errorf("came from %q, %v", a.Head.Get("X-From"), err)
		}
	})
}

func TestOptionsRefused(t *testing.T) {
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{Protocol: "gopher", URL: "gopher://x"}, "unknown protocol"},
		{Options{Protocol: "http1", URL: "ftp://x"}, "does not fit http1"},
		{Options{Protocol: "http3", URL: "http://x"}, "does not fit http3"},
		{Options{Protocol: "http1", URL: "http://%zz"}, "reading the URL"},
		{Options{Protocol: "http1", URL: "http:///x"}, "names no host"},
		{Options{Protocol: "http1", URL: "unix:"}, "names no socket"},
		{Options{Protocol: "http1", URL: "unix://host/x"}, "names no socket"},
		{Options{Protocol: "http2", URL: "unix:/x"}, "does not fit http2"},
		{Options{Protocol: "http1", URL: "http://x", Paths: []string{"a"}}, "does not begin with /"},
		{Options{Protocol: "http1", URL: "http://x", Paths: []string{"/a b"}}, "percent-encoded"},
		{Options{Protocol: "http1", URL: "http://x", Paths: []string{"/a\r\nX: y"}}, "percent-encoded"},
		{Options{Protocol: "http2", URL: "http://x", Paths: []string{"/%zz"}}, "reading the path"},
		{Options{Protocol: "http1", URL: "http://x", Header: http.Header{"A B": {"c"}}}, "not a header's name"},
		{Options{Protocol: "http1", URL: "http://x", Header: http.Header{"A": {"c\r\nd"}}}, "control character"},
		{Options{Protocol: "http1", URL: "http://x", Header: http.Header{"Host": {"c\nd"}}}, "control character"},
		{Options{Protocol: "http1", URL: "http://x", Streams: 2}, "one request at a time"},
		{Options{Protocol: "http2", URL: "http://x", Streams: MaxStreams + 1}, "streams"},
		{Options{Protocol: "websocket", URL: "ws://x", Message: make([]byte, MaxMessage+1)}, "at most"},
		{Options{Protocol: "http1", URL: "http://x", Timeout: -1}, "negative"},
	} {
		if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q in it", c.o.URL, err, c.says)
		}
	}
}

func dialError(t *testing.T, o Options) error {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := d.Dial(t.Context())
	if err == nil {
		c.Close()
		t.Fatalf("%s to %s: connected", o.Protocol, o.URL)
	}
	return err
}

// onlyWraps checks that an error is of one kind and no other.
func onlyWraps(t *testing.T, err, kind error) {
	t.Helper()
	for _, k := range []error{ErrConnect, ErrClosed, ErrTimeout, ErrProtocol} {
		if is := errors.Is(err, k); is != errors.Is(kind, k) {
			t.Errorf("error %v: wraps %q: %v", err, k, is)
		}
	}
}
