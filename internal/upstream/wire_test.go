package upstream

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream/faulty"
)

// incoming is a request as net/http's server hands it to a handler.
func incoming(t testing.TB, target string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: client.example\r\n\r\n")))
	if err != nil {
		t.Skip("net/http refuses it: ", err)
	}
	return r.WithContext(t.Context())
}

// TestTarget: the path and query reach the upstream byte for byte.
func TestTarget(t *testing.T) {
	for _, prefix := range []string{"", "/api", "/a%2Fb/", "/"} {
		for _, target := range []string{
			"/", "/a", "/a/", "/?", "/a?", "/a?b=c&d", "/a?b?c", "/a%2Fb", "/a%2fb", "/%41", "/a//b", "//a", "//a/b?c", "/a;b=c;d",
			"/a?b;c", "/a+b?c+d", "/a%20b", "/é", "/a|b", "/a\"b", "/{id}", "/a\\b", "/a^b`c", "/a?q=é|\"{}", "/a:b@c", "/a/../b", "/./a", "/%2e%2e/a",
			"/a%00b", "/%ff", "/a?%zz", "/*", "/a'b(c)", "/" + strings.Repeat("x", 8000) + "?" + strings.Repeat("y", 8000),
			"/http://b/c", "/a#b", "/a?b#c",
		} {
			r := incoming(t, target)
			got, err := requestLine(t, "http://a"+prefix, r)
			if want := "GET " + strings.TrimRight(prefix, "/") + target + " HTTP/1.1"; err != nil || got != want {
				t.Errorf("upstream a%s, target %.80q: %.80q, %v", prefix, target, got, err)
			}
		}
	}
}

// requestLine is the request line that an upstream gets.
func requestLine(t testing.TB, to string, r *http.Request) (string, error) {
	a, err := parseAddress(to)
	if err != nil {
		t.Fatal(err)
	}
	q := requestOf(r)
	if err := q.check(); err != nil {
		return "", err
	}
	u := a.urlFor(q)
	out := r.WithContext(r.Context())
	out.URL = &u
	var b strings.Builder
	if err := out.Write(&b); err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(b.String(), "\r\n")
	return first, nil
}

// FuzzTarget: whatever net/http lets in goes out as it was, or not at all; the
// one exception is a path that begins with two slashes.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"/", "/a%2Fb?c", "//a|b", "/?", "*", "/a b", "/\x00", "http://a/b", "/%", "/é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if !strings.HasPrefix(target, "/") || strings.ContainsAny(target, "\r\n ") {
			return
		}
		r := incoming(t, target)
		got, err := requestLine(t, "http://a", r)
		if err != nil {
			return
		}
		if strings.HasPrefix(target, "//") {
			if fields := strings.Fields(got); len(fields) != 3 || !strings.HasPrefix(fields[1], "//") {
				t.Errorf("%q became %q", target, got)
			}
		} else if got != "GET "+target+" HTTP/1.1" {
			t.Errorf("%q became %q", target, got)
		}
	})
}

// TestTargetRefused: what would break the request line is not sent.
func TestTargetRefused(t *testing.T) {
	p := newPool(t, Options{To: []string{"http://a"}}, nil)
	r := newRequest(t, "GET", "/", nil)
	r.URL.RawQuery = "a HTTP/1.1\r\nX: y"
	if _, _, err := do(p, r); !errors.Is(err, errTarget) {
		t.Errorf("error %v", err)
	}
	r = newRequest(t, "CONNECT", "/", &tracked{Reader: strings.NewReader("")})
	if _, _, err := do(p, r); !errors.Is(err, errConnect) || r.Body.(*tracked).closed != 1 {
		t.Errorf("error %v", err)
	}
}

// way is a kind of upstream, served by net/http.
type way struct {
	name  string
	proto string
	start func(t *testing.T, h http.Handler) Options
}

func ways() []way {
	plain := func(protocol, scheme string) func(*testing.T, http.Handler) Options {
		return func(t *testing.T, h http.Handler) Options {
			return Options{To: []string{strings.Replace(servertest.Serve(t, protocol, h).URL, "http", scheme, 1)}}
		}
	}
	secure := func(protocol string) func(*testing.T, http.Handler) Options {
		return func(t *testing.T, h http.Handler) Options {
			f := servertest.Serve(t, protocol, h)
			return Options{To: []string{f.URL}, TLS: TLS{CA: writeCA(t, f.Certificate()), ServerName: "example.com"}}
		}
	}
	return []way{
		{"http", "HTTP/1.1", plain("h1", "http")},
		{"h2c", "HTTP/2.0", plain("h2c", "h2c")},
		{"https", "HTTP/1.1", secure("tls")},
		{"https h2", "HTTP/2.0", secure("h2")},
		{"unix", "HTTP/1.1", func(t *testing.T, h http.Handler) Options {
			dir, err := os.MkdirTemp("", "up") // t.TempDir is too long for a socket
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			l, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			servertest.Serve(t, "h1", h, func(s *httptest.Server) {
				_ = s.Listener.Close()
				s.Listener = l
			})
			return Options{To: []string{"unix:" + filepath.Join(dir, "s")}}
		}},
	}
}

func writeCA(t *testing.T, cert *x509.Certificate) string {
	name := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestWays: the same behaviour over every protocol.
func TestWays(t *testing.T) {
	for _, way := range ways() {
		t.Run(way.name, func(t *testing.T) {
			var proto, target, host, agent atomic.Value
			release := make(chan struct{})
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				proto.Store(r.Proto)
				target.Store(r.RequestURI)
				host.Store(r.Host)
				agent.Store(fmt.Sprint(r.Header["User-Agent"]))
				switch r.URL.Path {
				case "/echo":
					w.Header().Set("Trailer", "X-Sum")
					b, _ := io.ReadAll(r.Body)
					w.Write(b)
					w.Header().Set("X-Sum", fmt.Sprint(len(b)))
				case "/hints":
					w.Header().Set("Link", "</a.css>")
					w.WriteHeader(http.StatusEarlyHints)
					io.WriteString(w, "ok")
				case "/abort":
					panic(http.ErrAbortHandler)
				case "/abort-in-body":
					io.WriteString(w, "half")
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				case "/stall":
					io.WriteString(w, "half")
					w.(http.Flusher).Flush()
					<-release
				case "/hang":
					<-release
				case "/large-header":
					for i := range 600 {
						w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1000))
					}
				case "/redirect":
					http.Redirect(w, r, "/redirect", http.StatusFound)
				default:
					io.WriteString(w, "ok")
				}
			})
			o := way.start(t, h)
			o.Breaker.Off = true
			o.Retries.Attempts = 1
			p := newPool(t, o, nil)
			t.Cleanup(func() { close(release) })

			status, text, err := do(p, newRequest(t, "GET", "/a%2Fb;c?", nil))
			if err != nil || text != "ok" || proto.Load() != way.proto || target.Load() != "/a%2Fb;c?" || agent.Load() != "[]" {
				t.Fatalf("%d %q %v, over %v, for %v, by %v", status, text, err, proto.Load(), target.Load(), agent.Load())
			}
			if host.Load() != p.servers[0].host {
				t.Errorf("Host %v, want %s", host.Load(), p.servers[0].host)
			}

			resp, err := p.RoundTrip(newRequest(t, "POST", "/echo", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)))))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			if resp.Body.Close(); len(b) != 1<<20 || err != nil || resp.Trailer.Get("X-Sum") != "1048576" {
				t.Errorf("echo: %d bytes, %v, trailer %v", len(b), err, resp.Trailer)
			}
			if status, _, err := do(p, newRequest(t, "GET", "/redirect", nil)); status != http.StatusFound || err != nil {
				t.Errorf("redirect: %d, %v", status, err)
			}
			for path, want := range map[string]error{"/abort": ErrUnreachable, "/abort-in-body": ErrProtocol} {
				if _, _, err := do(p, newRequest(t, "GET", path, nil)); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", path, err, want)
				}
			}
			if _, _, err := do(p, newRequest(t, "GET", "/large-header", nil)); !errors.Is(err, ErrProtocol) {
				t.Errorf("a header of 600 kB: %v", err)
			}
			idle(t, p)

			o.HeaderTimeout, o.BodyTimeout = 100*time.Millisecond, 100*time.Millisecond
			quick := newPool(t, o, nil)
			for _, path := range []string{"/hang", "/stall"} {
				if _, _, err := do(quick, newRequest(t, "GET", path, nil)); !errors.Is(err, ErrTimeout) {
					t.Errorf("%s: %v", path, err)
				}
			}
			idle(t, quick)
		})
	}
}

// TestHost: whose name the request bears.
func TestHost(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		var host string
		w.handle("a:80", func(r *http.Request, c net.Conn) bool { host = r.Host; return answerOK(r, c) })
		for option, want := range map[string]string{"": "a", "upstream": "a", "client": "client.example", "api.example:81": "api.example:81"} {
			p := newPool(t, Options{To: []string{"http://a"}, Host: option}, w)
			if get(t, p); host != want {
				t.Errorf("host %q: %q, want %q", option, host, want)
			}
		}
	})
}

// TestTLSErrors: a server that is not who it should be cannot be reached.
func TestTLSErrors(t *testing.T) {
	ts := httptest.NewUnstartedServer(http.NotFoundHandler())
	ts.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	ts.StartTLS()
	defer ts.Close()
	good := writeCA(t, ts.Certificate())
	plain, err := faulty.Start(faulty.Good("ok"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, c := range map[string]struct {
		to   string
		tls  TLS
		want error
	}{
		"unknown authority": {ts.URL, TLS{}, ErrUnreachable},
		"another name":      {ts.URL, TLS{CA: good, ServerName: "other.example"}, ErrUnreachable},
		"known":             {ts.URL, TLS{CA: good, ServerName: "example.com"}, nil},
		"insecure":          {ts.URL, TLS{Insecure: true}, nil},
		"not TLS":           {strings.Replace(plain.URL, "http", "https", 1), TLS{Insecure: true}, ErrUnreachable},
	} {
		p := newPool(t, Options{To: []string{c.to}, TLS: c.tls}, nil)
		if _, _, err := get(t, p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if fails := p.Servers()[0].Fails; (fails > 0) != (c.want != nil) {
			t.Errorf("%s: %d failures", name, fails)
		}
	}
}

// TestReset: what TCP alone can do.
func TestReset(t *testing.T) {
	for name, want := range map[string]error{
		"reset at once": ErrUnreachable, "reset after request": ErrUnreachable, "reset in header": ErrProtocol, "reset in body": ErrProtocol,
	} {
		s, err := faulty.Start(faulty.Named(name).Script)
		if err != nil {
			t.Fatal(err)
		}
		p := newPool(t, Options{To: []string{s.URL}}, nil)
		_, _, err = get(t, p)
		early := name == "reset in header" && errors.Is(err, ErrUnreachable) // the reset overtook the bytes
		if !errors.Is(err, want) && !early {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		idle(t, p)
		s.Close()
		if _, _, err := get(t, p); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s, then closed: %v", name, err)
		}
	}
}

// TestMemory: an endless header is not collected.
func TestMemory(t *testing.T) {
	s, err := faulty.Start(faulty.Named("endless header").Script)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := newPool(t, Options{To: []string{s.URL}}, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := get(t, p); !errors.Is(err, ErrProtocol) {
		t.Errorf("error %v", err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("%d bytes allocated for a header that may have 256 KiB", allocated)
	}
}
