package cache

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/upstream/faulty"
)

// front serves a cache before an upstream, on a real port.
func front(t *testing.T, o Options, upstream string) (*httptest.Server, *Handler) {
	t.Helper()
	o.To = []string{upstream}
	h, err := New(o, Deps{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.Close(); h.Close() })
	return s, h
}

// fetchURL gets a URL on a connection of its own.
func fetchURL(t *testing.T, method, url string) (status int, body string, h http.Header, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), resp.Header, err
}

// Whatever an upstream does, clients get an error that says so, or a stale
// answer, and nothing wrong is kept.
func TestFaultyUpstream(t *testing.T) {
	withID := regexp.MustCompile(`[A-Z0-9]{8,12}`)
	for _, sc := range faulty.Scenarios() {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			up, err := faulty.Start(sc.Script)
			if err != nil {
				t.Fatal(err)
			}
			defer up.Close()
			o := Options{TTL: time.Minute}
			o.HeaderTimeout, o.BodyTimeout = 300*time.Millisecond, 300*time.Millisecond
			s, h := front(t, o, up.URL)
			method := sc.Method
			if method == "" {
				method = http.MethodGet
			}
			status, body, header, err := fetchURL(t, method, s.URL+"/x")
			if strings.Contains(body, faulty.Secret) || strings.Contains(fmt.Sprint(header), faulty.Secret) {
				t.Errorf("somebody else's bytes: %q", body)
			}
			switch sc.Effect {
			case faulty.Refused, faulty.Broken, faulty.Late:
				if status != 502 && status != 504 && status != 503 || !withID.MatchString(body) && method != "HEAD" {
					t.Errorf("%d %q, %v", status, body, err)
				}
				if len(header["Cache-Status"]) == 0 || header.Get("Cache-Control") != "no-store" {
					t.Errorf("header %v", header)
				}
			case faulty.Cut, faulty.Stalled:
				if err == nil && status == 200 {
					t.Errorf("the client was not told that the answer is not whole: %q", body)
				}
			}
			if sc.Effect == faulty.Whole {
				return
			}
			if n := h.tiers.Entries(); n != 0 {
				t.Errorf("%d entries are stored", n)
			}
			up.Set(faulty.Good("good"))
			deadline := time.Now().Add(10 * time.Second) // breakers and ejections pass
			for status, body = 0, ""; body != "good" && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				status, body, _, _ = fetchURL(t, http.MethodGet, s.URL+"/x")
			}
			if body != "good" {
				t.Errorf("afterwards: %d %q", status, body)
			}
		})
	}
}

// With a stale answer at hand, clients see nothing of it.
func TestFaultyUpstreamBehindStaleAnswers(t *testing.T) {
	for _, sc := range faulty.Scenarios() {
		if sc.Effect != faulty.Refused && sc.Effect != faulty.Broken && sc.Effect != faulty.Late || sc.Method != "" {
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			zero := time.Nanosecond
			up, err := faulty.Start(faulty.Good("good"))
			if err != nil {
				t.Fatal(err)
			}
			defer up.Close()
			o := Options{TTL: zero, StaleIfError: time.Minute}
			o.HeaderTimeout, o.BodyTimeout = 300*time.Millisecond, 300*time.Millisecond
			s, h := front(t, o, up.URL)
			if _, body, _, err := fetchURL(t, "GET", s.URL+"/x"); body != "good" {
				t.Fatalf("%q, %v", body, err)
			}
			settle(t, h) // the client is quicker than the storing
			up.Set(sc.Script)
			status, body, header, err := fetchURL(t, "GET", s.URL+"/x")
			if status != 200 || body != "good" || !strings.Contains(header.Get("Cache-Status"), "stale-if-error") {
				t.Errorf("%d %q %v, %v", status, body, header["Cache-Status"], err)
			}
		})
	}
}

// What net/http alone can do: interim answers, trailers, streams, upgrades.
func TestOverTheWire(t *testing.T) {
	var calls atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		switch r.URL.Path {
		case "/hints":
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, "body")
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, "body")
			w.Header().Set("X-Sum", "42")
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "max-age=60")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		case "/echo":
			nc, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			line, _ := rw.ReadString('\n')
			fmt.Fprint(rw, line)
			rw.Flush()
		default:
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %d", r.Method, len(b))
		}
	}))
	defer up.Close()
	s, _ := front(t, Options{TTL: time.Minute}, up.URL)

	t.Run("interim answers", func(t *testing.T) {
		for _, want := range []int{http.StatusEarlyHints, 0} { // a stored answer has none
			got := 0
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				got = code
				return nil
			}})
			r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/hints", nil)
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got != want {
				t.Errorf("interim answer %d, want %d", got, want)
			}
		}
	})
	t.Run("trailer", func(t *testing.T) {
		resp, err := http.Get(s.URL + "/trailer")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err != nil || resp.Trailer.Get("X-Sum") != "42" {
			t.Errorf("trailer %v, %v", resp.Trailer, err)
		}
	})
	t.Run("events", func(t *testing.T) {
		resp, err := http.Get(s.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i := 0; i < 3 && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data: ") {
				i++
			}
		}
		if lines.Err() != nil {
			t.Error(lines.Err())
		}
	})
	t.Run("upload", func(t *testing.T) {
		resp, err := http.Post(s.URL+"/upload", "text/plain", io.LimitReader(neverending('x'), 3<<20))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); string(b) != "POST 3145728" {
			t.Errorf("%s", b)
		}
	})
	t.Run("upgrade", func(t *testing.T) {
		nc, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		fmt.Fprintf(nc, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		r := bufio.NewReader(nc)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("%v, %v", resp, err)
		}
		fmt.Fprint(nc, "hello\n")
		if line, err := r.ReadString('\n'); line != "hello\n" {
			t.Errorf("%q, %v", line, err)
		}
	})
}

type neverending byte

func (c neverending) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

// A mistake in a fetch ends that alone.
func TestPanicInAFetch(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		if n == 1 {
			panic("a mistake")
		}
		return say(200, "fine")
	}}
	h := newCache(t, Options{}, up)
	if w := ask(h, "GET", "http://a.example/"); w.Code != 502 {
		t.Errorf("%d", w.Code)
	}
	if w := ask(h, "GET", "http://a.example/"); w.Body.String() != "fine" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}
