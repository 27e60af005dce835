package load

import (
	"math"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// What is wrong is refused in one line that says what to write.
func TestCheckRefuses(t *testing.T) {
	const good = "http://127.0.0.1:8080/"
	for _, c := range []struct {
		name   string
		config Config
		says   string
	}{
		{"no URL", Config{}, "write it as http://host:port/path"},
		{"no scheme", Config{URL: "example.org"}, "write it as http://"},
		{"only a host and port", Config{URL: "localhost:8080"}, "write it as http://"},
		{"another scheme", Config{URL: "ftp://example.org/"}, "write it as http://"},
		{"no host", Config{URL: "http:///path"}, "names no host"},
		{"not a URL", Config{URL: "http://[::1"}, "cannot be read"},
		{"a password", Config{URL: "http://me:secret@example.org/"}, "Authorization"},
		{"no socket", Config{URL: "unix:"}, "names no socket"},
		{"a long socket", Config{URL: "unix:/" + strings.Repeat("x", 107)}, "at most 107 bytes"},
		{"a path without slash", Config{URL: good, Paths: []string{"/a", "b"}}, `request 2, "b"`},
		{"a path with a space", Config{URL: good, Paths: []string{"/a b"}}, "%20"},
		{"a path with a line", Config{URL: good, Paths: []string{"/a\r\nX: y"}}, "request 1"},
		{"a header's name", Config{URL: good, Header: http.Header{"A B": {"c"}}}, "A B"},
		{"a header's value", Config{URL: good, Header: http.Header{"A": {"c\r\nd"}}}, "control character"},
		{"a body", Config{URL: good, Header: http.Header{"Content-Length": {"5"}}}, "Content-Length"},
		{"a protocol", Config{URL: good, Protocol: "spdy"}, "http1, http2, http3 or websocket"},
		{"HTTP/3 without TLS", Config{URL: good, Protocol: HTTP3}, "https:"},
		{"HTTP/2 over a UNIX socket", Config{URL: "unix:/tmp/s", Protocol: HTTP2}, "https:"},
		{"a WebSocket over http:", Config{URL: good, Protocol: WebSocket}, "ws:"},
		{"HTTP/1.1 over ws:", Config{URL: "ws://127.0.0.1/", Protocol: HTTP1}, "ws:"},
		{"negative connections", Config{URL: good, Connections: -1}, "-1 connections"},
		{"too many threads", Config{URL: good, Threads: 1000}, "1000 threads"},
		{"too many sources", Config{URL: good, Sources: 254}, "254 sources"},
		{"streams of HTTP/1.1", Config{URL: good, Streams: 2}, "http2"},
		{"more connections than files", Config{URL: good, Connections: MaxConnections}, "ulimit -Hn"},
		{"a negative duration", Config{URL: good, Duration: -time.Second}, "duration of -1s"},
		{"a negative warm-up", Config{URL: good, Warmup: -time.Second}, "warm-up"},
		{"a negative timeout", Config{URL: good, Timeout: -time.Second}, "timeout"},
		{"an arrival", Config{URL: good, Arrival: "uniform"}, "constant or poisson"},
		{"a rate without an arrival", Config{URL: good, Rate: 100}, "say when to send"},
		{"an arrival without a rate", Config{URL: good, Arrival: Poisson}, "requests/s"},
		{"a rate that is not a number", Config{URL: good, Arrival: Constant, Rate: math.NaN()}, "requests/s"},
		{"an endless rate", Config{URL: good, Arrival: Constant, Rate: math.Inf(1)}, "requests/s"},
		{"a stage of no time", Config{URL: good, Arrival: Constant, Rate: 1, Stages: []Stage{{Rate: 2}}}, "stage 1"},
		{"a ramp from nothing to nothing", Config{URL: good, Arrival: Constant, Stages: []Stage{{Length: time.Second}}}, "above 0"},
		{"stages of a closed loop", Config{URL: good, Stages: []Stage{{Length: time.Second, Rate: 1}}}, "closed loop"},
		{"a name without a value", Config{URL: good, Paths: []string{"/{{id}}"}}, "nothing gives {{id}} a value"},
		{"a method", Config{URL: good, Request: Step{Method: "A B"}}, "cannot be sent"},
		{"an expectation", Config{URL: good, Expect: []string{"it works"}}, "cannot be read"},
		{"a status", Config{URL: good, Expect: []string{"status 2x"}}, "cannot be read"},
		{"a regular expression", Config{URL: good, Steps: []Step{{Path: "/", Take: map[string]string{"a": "body ("}}}}, "missing closing"},
		{"a body and a form", Config{URL: good, Request: Step{Body: new(string), Form: []string{"a=b"}}}, "leave one of them out"},
		{"a form without =", Config{URL: good, Request: Step{Form: []string{"ab"}}}, "name=value"},
		{"an address", Config{URL: good, ConnectTo: "127.0.0.1"}, "host:port"},
		{"expectations of a WebSocket", Config{URL: "ws://a/", Expect: []string{"status 200"}}, "over WebSocket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.config.Check()
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says %q, want one line with %q", err, c.says)
			}
			if r, again := Run(t.Context(), c.config); r != nil || again == nil {
				t.Errorf("Run returned %v, %v", r, again)
			}
		})
	}
}

func TestCheckAccepts(t *testing.T) {
	for _, c := range []struct {
		config           Config
		network, address string
		host, path       string
		protocol         Protocol
	}{
		{Config{URL: "http://example.org"}, "tcp", "example.org:80", "example.org", "/", HTTP1},
		{Config{URL: "http://[::1]:8080/a?b=c"}, "tcp", "[::1]:8080", "[::1]:8080", "/a?b=c", HTTP1},
		{Config{URL: "https://example.org/x y"}, "tcp", "example.org:443", "example.org", "/x%20y", HTTP1},
		{Config{URL: "https://example.org/", Protocol: HTTP3, Streams: 4}, "tcp", "example.org:443", "example.org", "/", HTTP3},
		{Config{URL: "http://example.org/{{number}}?a={{number}}"}, "tcp", "example.org:80", "example.org", "/{{number}}?a={{number}}", HTTP1},
		{Config{URL: "ws://example.org/chat"}, "tcp", "example.org:80", "example.org", "/chat", WebSocket},
		{Config{URL: "unix:/run/x.sock"}, "unix", "/run/x.sock", "localhost", "/", HTTP1},
		{Config{URL: "unix:///run/x.sock", Paths: []string{"/a"}}, "unix", "/run/x.sock", "localhost", "/a", HTTP1},
		{Config{URL: "unix:x.sock"}, "unix", "x.sock", "localhost", "/", HTTP1},
		{Config{URL: "http://a/", Arrival: Constant, Stages: []Stage{{Rate: 10, Length: time.Second}}}, "tcp", "a:80", "a", "/", HTTP1},
	} {
		p, err := c.config.plan()
		if err != nil {
			t.Errorf("%s: %v", c.config.URL, err)
			continue
		}
		if p.network != c.network || p.address != c.address || p.host != c.host || p.Paths[0] != c.path || p.Protocol != c.protocol {
			t.Errorf("%s: %s %s, host %s, path %s, %s", c.config.URL, p.network, p.address, p.host, p.Paths[0], p.Protocol)
		}
		if p.Connections != 50 || p.Threads != 1 || p.Duration != 10*time.Second || p.Timeout != 10*time.Second {
			t.Errorf("%s: the defaults are %+v", c.config.URL, p.Config)
		}
	}
}

func TestRequest(t *testing.T) {
	p, err := Config{URL: "http://127.0.0.1:8080/a?b", Header: http.Header{"X-B": {"1", "2"}, "Accept": {"*/*"}}}.plan()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(p.steps[0].text(nil, nil)), "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: */*\r\nX-B: 1\r\nX-B: 2\r\n\r\n"; got != want {
		t.Errorf("the request is %q, want %q", got, want)
	}
	p.Header.Set("Host", "example.org")
	if p, err = p.Config.plan(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(p.steps[0].text(nil, nil)), "GET /a?b HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nX-B: 1\r\nX-B: 2\r\n\r\n"; got != want {
		t.Errorf("the request is %q, want %q", got, want)
	}
}

// Many connections to this machine come from several addresses, and those to
// others do not.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		target               string
		connections, sources int
		want                 int
	}{
		{"127.0.0.1", 50, 0, 0},
		{"127.0.0.1", perSource, 0, 0},
		{"127.0.0.1", perSource + 1, 0, 2},
		{"127.0.0.1", 19_000, 0, 4},
		{"127.0.0.1", 19_000, 7, 7},
		{"127.0.0.1", MaxConnections, 0, 210},
		{"192.0.2.1", 19_000, 0, 0},
		{"::1", 19_000, 0, 0},
	} {
		p := &plan{Config: Config{Connections: c.connections, Sources: c.sources}}
		if p.spread(netip.MustParseAddr(c.target)); p.Sources != c.want {
			t.Errorf("%d connections to %s come from %d addresses, want %d", c.connections, c.target, p.Sources, c.want)
		}
	}
}

func TestRing(t *testing.T) {
	r := newRing(3)
	for round := range 5 {
		for i := range int32(3) {
			r.push(i)
			r.push(i) // stands there already
		}
		for i := range int32(3) {
			if got, ok := r.pop(); !ok || got != i {
				t.Fatalf("round %d: %d came out, want %d", round, got, i)
			}
		}
		if _, ok := r.pop(); ok {
			t.Fatal("more came out than went in")
		}
		r.push(2) // so that the rounds begin at different places
		r.pop()
	}
}
