package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/upstream/faulty"
	"millrace/internal/upstream/http1"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// upgradeRequest is what a browser sends, more or less.
func upgradeRequest(t testing.TB, target string) *http.Request {
	t.Helper()
	r := newRequest(t, "GET", target, nil)
	r.Header.Set("Connection", "keep-alive, Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	r.Header.Set("Sec-WebSocket-Version", "13")
	return r
}

// upgrade opens a tunnel, or fails the test.
func upgrade(t testing.TB, p *Pool) *Tunnel {
	t.Helper()
	resp, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/"))
	if err != nil || tunnel == nil {
		t.Fatalf("tunnel %v, error %v", tunnel, err)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) || resp.StatusCode != 101 {
		t.Fatalf("status %d, body %d, %v", resp.StatusCode, n, err)
	}
	t.Cleanup(func() { tunnel.Close() })
	return tunnel
}

// refused is the error of an Upgrade from which nothing else may come.
func refused(t testing.TB, p *Pool, r *http.Request) error {
	t.Helper()
	resp, tunnel, err := p.UpgradeRequest(r)
	if resp != nil || tunnel != nil {
		t.Fatalf("answer %v, tunnel %v, error %v", resp, tunnel, err)
	}
	return err
}

// UpgradeRequest is Upgrade for a request of net/http.
func (p *Pool) UpgradeRequest(r *http.Request) (*http.Response, *Tunnel, error) {
	a, tunnel, err := p.Upgrade(r.Context(), requestOf(r))
	if err != nil {
		return nil, nil, err
	}
	return a.Response(), tunnel, nil
}

// echo agrees to switch, sends early bytes along, and then what it gets.
func echo(early string) faulty.Script {
	return faulty.Script{faulty.Request(), faulty.Send(switching + early), func(c *faulty.Conn) error {
		_, err := io.Copy(c, c.Conn)
		return err
	}}
}

// said checks that a tunnel passes bytes both ways.
func said(t testing.TB, tunnel *Tunnel, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.WriteString(tunnel, text); err != nil {
		t.Error(err)
	} else if _, err := io.ReadFull(tunnel, got); err != nil || string(got) != text {
		t.Errorf("%q came back as %q, %v", text, got, err)
	}
}

// TestUpgradeWays: over every transport the tunnel is the connection itself.
func TestUpgradeWays(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			http.Error(w, "not you", http.StatusForbidden)
			return
		}
		if r.RequestURI != "/a%2Fb?c" || r.Header.Get("Sec-WebSocket-Version") != "13" || r.ProtoMajor != 1 {
			t.Errorf("the server got %s %s, %v", r.RequestURI, r.Proto, r.Header)
		}
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, switching+"early")
		io.Copy(c, buf)
	})
	for _, way := range ways() {
		if way.name == "h2c" {
			continue // see TestUpgradeHTTP2
		}
		t.Run(way.name, func(t *testing.T) {
			o := way.start(t, handler)
			p := newPool(t, o, nil)
			resp, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/a%2Fb?c"))
			if err != nil {
				t.Fatal(err)
			}
			defer tunnel.Close()
			if resp.Header.Get("Upgrade") != "websocket" || resp.StatusCode != 101 {
				t.Errorf("answer %v", resp)
			}
			switch c := tunnel.Conn.(type) {
			case *net.TCPConn, *net.UnixConn:
				if strings.HasPrefix(way.name, "https") {
					t.Errorf("%T over TLS", c)
				}
			case *tls.Conn:
				_, tcp := c.NetConn().(*net.TCPConn)
				if state := c.ConnectionState(); !tcp || state.NegotiatedProtocol == "h2" || state.Version < tls.VersionTLS12 {
					t.Errorf("over %T, protocol %q", c.NetConn(), state.NegotiatedProtocol)
				}
			default:
				t.Errorf("the connection is a %T", c)
			}
			early := append([]byte{}, tunnel.Early...) // the rest of it may come later
			for len(early) < len("early") {
				b := make([]byte, len("early")-len(early))
				n, err := tunnel.Read(b)
				if early = append(early, b[:n]...); err != nil {
					t.Fatal(err)
				}
			}
			if string(early) != "early" {
				t.Errorf("early bytes %q", early)
			}
			said(t, tunnel, strings.Repeat("hello", 1000))
			if s := p.Servers()[0]; s.Running != 0 || s.Streams != 1 || s.Requests != 1 {
				t.Errorf("%+v", s)
			}
			tunnel.Close()
			idle(t, p)

			resp, none, err := p.UpgradeRequest(upgradeRequest(t, "/refuse"))
			if err != nil || none != nil {
				t.Fatalf("tunnel %v, error %v", none, err)
			}
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 403 || string(text) != "not you\n" || err != nil {
				t.Errorf("%d %q %v", resp.StatusCode, text, err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			idle(t, p)
		})
	}
}

// inOrder is a head with its fields in order: that of different ones says nothing.
func inOrder(head string) string {
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines[1:])
	return strings.Join(lines, "\r\n")
}

// TestUpgradeHead: Upgrade sends what RoundTrip would, to the byte but for the
// order of fields, and to the same address.
func TestUpgradeHead(t *testing.T) {
	for _, to := range []string{
		"http://a", "http://a:81/api/", "ws://a/x%2Fy", "http://[::1]:90", "http://[::1]", "http://bücher.example/ü", "http://A:80", "unix:/s",
	} {
		for _, host := range []string{"", "client", "other.example:8080"} {
			bubble(t, func(t *testing.T, w *wires) {
				var heads []string
				record := func(_ context.Context, _, addr string) (net.Conn, error) {
					near, far := net.Pipe()
					w.running.Go(func() {
						defer far.Close()
						b := make([]byte, 10<<10)
						n, _ := far.Read(b)
						heads = append(heads, addr+" "+string(b[:n]))
						io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
					})
					return near, nil
				}
				p, err := start(Options{To: []string{to}, Host: host}, nil, record)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				var want []string
				for i, target := range []string{"/", "/a%2Fb?c&d=%zz", "//a|b?", "/é\""} {
					r := upgradeRequest(t, "/")
					r.URL = incoming(t, target).URL
					if i > 0 {
						r.Header.Set("User-Agent", "a browser")
						r.Header.Set("Cookie", "a=b")
						r.Header["X-Two"] = []string{"1", " 2\t"}
					}
					resp, err := p.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					synctest.Wait()
					if want = heads; len(want) != 1 {
						t.Fatalf("heads %q", want)
					}
					heads = nil
					if resp, _, err = p.UpgradeRequest(r); err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					synctest.Wait()
					if len(heads) != 1 || inOrder(heads[0]) != inOrder(want[0]) {
						t.Errorf("to %s, host %q: Upgrade sends\n%q, RoundTrip\n%q", to, host, heads, want)
					}
					heads = nil
				}
			})
		}
	}
}

// TestUpgradeFaults: every way to go wrong has the effect that it has on RoundTrip.
func TestUpgradeFaults(t *testing.T) {
	want := map[faulty.Effect]error{
		faulty.Refused: ErrUnreachable, faulty.Broken: ErrProtocol, faulty.Late: ErrTimeout,
		faulty.Cut: ErrProtocol, faulty.Stalled: ErrTimeout,
	}
	for _, s := range faulty.Scenarios() {
		if s.Name == "unasked upgrade" {
			continue // here it is asked for
		}
		t.Run(s.Name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", s.Script)
				p := newPool(t, Options{To: []string{"http://a"}, Breaker: Breaker{Off: true}}, w)
				for range 2 {
					r := upgradeRequest(t, "/")
					if s.Method != "" {
						r.Method = s.Method
					}
					resp, tunnel, err := p.UpgradeRequest(r)
					inHeader := err != nil
					if tunnel != nil {
						t.Fatal("a tunnel")
					}
					if err == nil {
						var text []byte
						text, err = io.ReadAll(resp.Body)
						resp.Body.Close()
						if strings.Contains(string(text), faulty.Secret) {
							t.Errorf("body %q", text)
						}
					}
					if !errors.Is(err, want[s.Effect]) {
						t.Errorf("error %v, want %v", err, want[s.Effect])
					}
					if want := s.Effect == faulty.Refused || s.Effect == faulty.Broken || s.Effect == faulty.Late; inHeader != want {
						t.Errorf("error in the header: %v, want %v (%v)", inHeader, want, err)
					}
				}
				synctest.Wait()
				idle(t, p)
			})
		})
	}
}

// TestUpgradeReset: what TCP alone can do, before the answer and right after.
func TestUpgradeReset(t *testing.T) {
	for name, want := range map[string]error{"reset at once": ErrUnreachable, "reset after request": ErrUnreachable, "reset in header": ErrProtocol} {
		s, err := faulty.Start(faulty.Named(name).Script)
		if err != nil {
			t.Fatal(err)
		}
		p := newPool(t, Options{To: []string{s.URL}}, nil)
		err = refused(t, p, upgradeRequest(t, "/"))
		early := name == "reset in header" && errors.Is(err, ErrUnreachable) // the reset overtook the bytes
		if !errors.Is(err, want) && !early {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		idle(t, p)
		s.Close()
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s, then closed: %v", name, err)
		}
	}
	s, err := faulty.Start(faulty.Script{faulty.Request(), faulty.Send(switching + "last words")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := newPool(t, Options{To: []string{s.URL}}, nil)
	tunnel := upgrade(t, p)
	rest, err := io.ReadAll(tunnel)
	if text := string(tunnel.Early) + string(rest); text != "last words" || err != nil {
		t.Errorf("before it died it said %q, %v", text, err)
	}
	if n := p.Servers()[0].Streams; n != 1 {
		t.Errorf("%d streams before Close", n)
	}
	tunnel.Close()
	idle(t, p)
}

// TestUpgradeEarly: no byte behind the header is lost, however many there are.
func TestUpgradeEarly(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		for _, n := range []int{0, 1, 100, 4 << 10, 100 << 10} {
			sent := strings.Repeat("0123456789abcdef", 1+n/16)[:n]
			w.set("a:80", echo(sent))
			p := newPool(t, Options{To: []string{"http://a"}, HeaderBytes: 8 << 10}, w)
			tunnel := upgrade(t, p)
			rest := make([]byte, n-len(tunnel.Early))
			if _, err := io.ReadFull(tunnel, rest); err != nil || string(tunnel.Early)+string(rest) != sent {
				t.Errorf("of %d bytes %d came early and then %d: %v", n, len(tunnel.Early), len(rest), err)
			}
			if n == 0 && tunnel.Early != nil || n > 0 && len(tunnel.Early) == 0 || cap(tunnel.Early) > http1.BufferSize {
				t.Errorf("%d of %d bytes came early", len(tunnel.Early), n)
			}
			said(t, tunnel, "hello")
			tunnel.Close()
		}
	})
}

// TestTunnelLasts: longer than any timeout, the request's context and the pool.
func TestTunnelLasts(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("a:80", echo(""))
		p := newPool(t, Options{To: []string{"http://a"}}, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		said(t, tunnel, "one")
		cancel()
		synctest.Wait()
		said(t, tunnel, "two")
		time.Sleep(24 * time.Hour)
		said(t, tunnel, "three")
		p.Close()
		said(t, tunnel, "four")
		if s := p.Servers()[0]; s.Streams != 1 || s.Running != 0 || s.Latency > time.Second {
			t.Errorf("%+v", s)
		}
		if err := tunnel.Close(); err != nil {
			t.Error(err)
		}
		tunnel.Close()
		tunnel.Close()
		idle(t, p)
	})
}

// TestTunnelDescriptor: what is underneath can be taken away, and the stream
// still counts until the end.
func TestTunnelDescriptor(t *testing.T) {
	s, err := faulty.Start(echo(""))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := newPool(t, Options{To: []string{s.URL}}, nil)
	tunnel := upgrade(t, p)
	tcp, ok := tunnel.Conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("a %T", tunnel.Conn)
	}
	file, err := tcp.File() // another descriptor for the same connection
	if err != nil {
		t.Fatal(err)
	}
	tcp.Close()
	tunnel.Conn = nil
	taken, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	b := make([]byte, 5)
	io.WriteString(taken, "hello")
	if _, err := io.ReadFull(taken, b); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if n := p.Servers()[0].Streams; n != 1 {
		t.Errorf("%d streams", n)
	}
	if err := tunnel.Close(); err != nil {
		t.Error(err)
	}
	idle(t, p)
}

// TestUpgradeInterim: what comes before the answer is dropped, and not without end.
func TestUpgradeInterim(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		hint := "HTTP/1.1 103 Early Hints\r\nLink: </" + strings.Repeat("a", 700) + ".css>\r\n\r\n"
		w.set("a:80", faulty.Script{faulty.Request(), faulty.Send(strings.Repeat(hint, 5) + switching), faulty.Hang()})
		p := newPool(t, Options{To: []string{"http://a"}, HeaderBytes: 2 << 10}, w)
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrProtocol) || !errors.Is(err, http1.ErrTooMuch) {
			t.Errorf("five hints that are too much together: %v", err)
		}
		w.set("a:80", faulty.Script{faulty.Request(), faulty.Send(hint + switching), faulty.Hang()})
		if _, tunnel, err := p.UpgradeRequest(upgradeRequest(t, "/")); err != nil {
			t.Error(err)
		} else {
			tunnel.Close()
		}
		w.set("a:80", faulty.Script{faulty.Request(), faulty.Send(strings.Repeat("HTTP/1.1 102 P\r\n\r\n", maxInterim+1) + switching)})
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, errInterims) || !errors.Is(err, ErrProtocol) {
			t.Errorf("too many: %v", err)
		}
		idle(t, p)
	})
}

// TestUpgradeSwitches: to what was asked for, or not at all.
func TestUpgradeSwitches(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		good   bool
	}{
		"as asked":      {"Connection: upgrade\r\nUpgrade: WebSocket\r\n", true},
		"one of two":    {"Connection: keep-alive, Upgrade\r\nUpgrade: other/1\r\n", true},
		"another":       {"Connection: Upgrade\r\nUpgrade: h2c\r\n", false},
		"two":           {"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n", false},
		"none":          {"Connection: Upgrade\r\n", false},
		"not this hop":  {"Upgrade: websocket\r\n", false},
		"spoilt name":   {"Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding : x\r\n", false},
		"with a length": {"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n", true},
		"with chunks":   {"Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *wires) {
				w.set("a:80", faulty.Script{faulty.Request(), faulty.Send("HTTP/1.1 101 Switching Protocols\r\n" + c.fields + "\r\nhello"), faulty.Hang()})
				p := newPool(t, Options{To: []string{"http://a"}}, w)
				r := upgradeRequest(t, "/")
				r.Header["Upgrade"] = []string{"websocket", "other/1"}
				_, tunnel, err := p.UpgradeRequest(r)
				if (err == nil) != c.good || err != nil && !errors.Is(err, ErrProtocol) {
					t.Errorf("error %v", err)
				}
				if tunnel != nil {
					if string(tunnel.Early) != "hello" {
						t.Errorf("early bytes %q", tunnel.Early)
					}
					tunnel.Close()
				}
				if fails := p.Servers()[0].Fails; (fails == 0) != c.good {
					t.Errorf("%d failures", fails)
				}
				idle(t, p)
			})
		})
	}
}

// TestUpgradeRefused: what cannot be sent is not, and is not a server's fault.
func TestUpgradeRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *http.Request)
		want   error
	}{
		"body":          {func(r *http.Request) { r.Body = &tracked{Reader: strings.NewReader("x")} }, errUpgradeBody},
		"length":        {func(r *http.Request) { r.ContentLength = 5 }, errUpgradeBody},
		"no Upgrade":    {func(r *http.Request) { r.Header.Del("Upgrade") }, errNoUpgrade},
		"empty Upgrade": {func(r *http.Request) { r.Header.Set("Upgrade", " , ") }, errNoUpgrade},
		"no Connection": {func(r *http.Request) { r.Header.Set("Connection", "close") }, errNoUpgrade},
		"name":          {func(r *http.Request) { r.Header["X Y"] = []string{"z"} }, errField},
		"name's end":    {func(r *http.Request) { r.Header["X: y\r\nZ"] = []string{"z"} }, errField},
		"value":         {func(r *http.Request) { r.Header["X"] = []string{"a", "b\r\nY: z"} }, errField},
		"method":        {func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX:" }, errMethod},
		"CONNECT":       {func(r *http.Request) { r.Method = "CONNECT" }, errConnect},
		"target":        {func(r *http.Request) { r.URL.RawQuery = "a b" }, errTarget},
		"host":          {func(r *http.Request) { r.Host = "xn--é" }, http1.ErrRequest},
	} {
		p := newPool(t, Options{To: []string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, Host: "client"}, nil)
		r := upgradeRequest(t, "/")
		c.change(r)
		if err := refused(t, p, r); !errors.Is(err, c.want) || Status(err) != 502 {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if body, ok := r.Body.(*tracked); ok && body.closed != 1 {
			t.Errorf("%s: the body was closed %d times", name, body.closed)
		}
		for _, s := range p.Servers() {
			if s.Fails != 0 || p.Retried() != 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		idle(t, p)
	}
}

// TestUpgradeHTTP2: servers that cannot switch are not blamed for it.
func TestUpgradeHTTP2(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		w.set("b:80", echo(""))
		p := newPool(t, Options{To: []string{"h2c://a"}}, w)
		if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, errNoSwitching) || w.dials("a:80") != 0 {
			t.Errorf("%v after %d connections", err, w.dials("a:80"))
		}
		both := newPool(t, Options{To: []string{"h2c://a", "http://b"}, Balance: "round_robin"}, w)
		upgrade(t, both).Close()
		for _, p := range []*Pool{p, both} {
			idle(t, p)
			if s := p.Servers()[0]; s.Fails != 0 || !s.Healthy {
				t.Errorf("%+v", s)
			}
		}
	})
	ts := httptest.NewUnstartedServer(nil)
	ts.TLS = &tls.Config{NextProtos: []string{"h3"}, MinVersion: tls.VersionTLS12} // with h2 alone Go lets others in
	ts.StartTLS()
	defer ts.Close()
	p := newPool(t, Options{To: []string{ts.URL}, TLS: TLS{Insecure: true}, Retries: Retries{Attempts: 1}}, nil)
	if err := refused(t, p, upgradeRequest(t, "/")); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a server that speaks something else: %v", err)
	}
	if s := p.Servers()[0]; s.Fails != 0 {
		t.Errorf("%+v", s)
	}
}

// TestUpgradeTLSErrors: no tunnel to a server that is not who it should be.
func TestUpgradeTLSErrors(t *testing.T) {
	ts := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer ts.Close()
	good := writeCA(t, ts.Certificate())
	wss := strings.Replace(ts.URL, "https", "wss", 1)
	for name, c := range map[string]struct {
		tls  TLS
		want error
	}{
		"unknown authority": {TLS{}, ErrUnreachable},
		"another name":      {TLS{CA: good, ServerName: "other.example"}, ErrUnreachable},
		"known":             {TLS{CA: good, ServerName: "example.com"}, nil},
		"by its address":    {TLS{CA: good}, nil},
	} {
		p := newPool(t, Options{To: []string{wss}, TLS: c.tls}, nil)
		resp, _, err := p.UpgradeRequest(upgradeRequest(t, "/"))
		if !errors.Is(err, c.want) || err == nil && resp.StatusCode != http.StatusTeapot {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		idle(t, p)
	}
}
