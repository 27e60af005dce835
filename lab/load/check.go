package load

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The defaults of a Config, and its limits.
const (
	defaultConnections = 50
	defaultDuration    = 10 * time.Second
	defaultTimeout     = 10 * time.Second

	// MaxConnections is far beyond what one process gets file descriptors for.
	MaxConnections = 1 << 20
	// MaxThreads bounds the loops: more than that help no machine.
	MaxThreads = 256
	// MaxStreams is the largest number of streams that servers commonly allow.
	MaxStreams = 1000
	// MaxPaths bounds the list of paths, each of which has its request
	// bytes, and its first answer, in memory.
	MaxPaths = 100_000

	// perThread is how many connections one loop serves before another is
	// started for them.
	perThread = 10_000
	// perSource is how many connections come from one loopback address before
	// another is used. Linux has some 28,000 ports for each, but looks for a
	// free one ever longer when more than a few thousand are taken.
	perSource = 5_000
	// maxSources are those of 127.0.0.2 … 127.0.0.254.
	maxSources = 253
	// spareFiles are descriptors for all but connections: listeners and files
	// of the caller, epoll, /proc.
	reservedFiles = 64
	// maxSocketPath is the size of sun_path without its final NUL.
	maxSocketPath = 107
)

// Check reports what is wrong with the configuration, in a line that says what
// to write instead.
func (c Config) Check() error {
	_, err := c.plan()
	return err
}

// A plan is a checked Config with its defaults filled in, and its URL taken
// apart.
type plan struct {
	Config
	network string // "tcp" or "unix"
	address string // host:port, or the socket's path
	host    string // Host header
	fast    bool   // for the epoll loops

	base   time.Time      // of the run: its clock begins there
	begins int64          // when the load does
	addr   netip.AddrPort // of the target, on TCP
}

// clock is the time in ns since the run began.
func (p *plan) clock() int64 { return int64(time.Since(p.base)) }

// plan checks and completes the configuration.
func (c Config) plan() (*plan, error) {
	p := &plan{Config: c}
	for _, step := range []func() error{p.target, p.speech, p.requests, p.numbers, p.schedule} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	p.fast = fastPath && p.Protocol == HTTP1 && !strings.HasPrefix(p.URL, "https:")
	if !p.fast && (p.Body != nil || p.Unique) {
		return nil, errors.New("bodies, and URLs that are asked for once, are sent by the epoll loops only: take http1, without TLS")
	}
	return p, nil
}

// target takes the URL apart.
func (p *plan) target() error {
	wrong := func(why string) error {
		return fmt.Errorf("the URL %q %s: write it as http://host:port/path, or unix:/path/of/socket", p.URL, why)
	}
	if path, ok := strings.CutPrefix(p.URL, "unix:"); ok {
		if rest, slashes := strings.CutPrefix(path, "//"); slashes && strings.HasPrefix(rest, "/") {
			path = rest // unix:///run/x.sock
		}
		if path == "" {
			return wrong("names no socket")
		}
		if len(path) > maxSocketPath || strings.ContainsRune(path, 0) {
			return wrong(fmt.Sprintf("is not a path of a socket: those have at most %d bytes", maxSocketPath))
		}
		p.network, p.address, p.host = "unix", path, "localhost"
		if len(p.Paths) == 0 {
			p.Paths = []string{"/"}
		}
		return nil
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return wrong("cannot be read (" + reason(err) + ")")
	}
	port := map[string]string{"http": "80", "ws": "80", "https": "443", "wss": "443"}[u.Scheme]
	switch {
	case port == "":
		return wrong("does not say how to reach what")
	case u.Hostname() == "":
		return wrong("names no host")
	case u.User != nil:
		return errors.New("the URL holds a name or a password, which is not sent: give them as a header Authorization")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	p.network, p.address, p.host = "tcp", net.JoinHostPort(u.Hostname(), port), u.Host
	if len(p.Paths) == 0 {
		p.Paths = []string{u.RequestURI()}
	}
	return nil
}

func reason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// speech decides on the protocol.
func (p *plan) speech() error {
	scheme, _, _ := strings.Cut(p.URL, ":")
	scheme = strings.ToLower(scheme)
	socket := scheme == "ws" || scheme == "wss"
	switch {
	case p.Protocol == Auto && socket:
		p.Protocol = WebSocket
	case p.Protocol == Auto:
		p.Protocol = HTTP1
	case !slices.Contains([]Protocol{HTTP1, HTTP2, HTTP3, WebSocket}, p.Protocol):
		return fmt.Errorf("the protocol %q does not exist: take http1, http2, http3 or websocket", p.Protocol)
	case (p.Protocol == WebSocket) != socket:
		return fmt.Errorf("the URL %q is not for the protocol %s: begin it with ws: or wss: for WebSockets and with http: or https: for the others", p.URL, p.Protocol)
	case p.Protocol == HTTP3 && scheme != "https", p.Protocol == HTTP2 && scheme == "unix":
		return fmt.Errorf("the URL %q is not for the protocol %s: give one with https: at its beginning", p.URL, p.Protocol)
	}
	return nil
}

// requests checks what is sent.
func (p *plan) requests() error {
	if len(p.Paths) > MaxPaths {
		return fmt.Errorf("%d paths are too many: give at most %d", len(p.Paths), MaxPaths)
	}
	for i, path := range p.Paths {
		if !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return fmt.Errorf("path %d, %q, is none: begin it with / and write spaces as %%20", i+1, path)
		}
	}
	for name, values := range p.Header {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f || !token[r] }) {
			return fmt.Errorf("the header's name %q cannot be sent: it may hold letters, digits and -", name)
		}
		switch name = http.CanonicalHeaderKey(name); name {
		case "Content-Length", "Transfer-Encoding", "Expect", "Upgrade":
			return fmt.Errorf("the header %s cannot be sent: it is the load's to say whether requests have a body; leave it out", name)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("the value %q of the header %s holds a control character: leave it out", v, name)
			}
		}
	}
	return nil
}

// numbers checks the counts and fills in their defaults.
func (p *plan) numbers() error {
	for _, n := range []struct {
		name    string
		value   *int
		missing int
		most    int
	}{
		{"connections", &p.Connections, defaultConnections, MaxConnections},
		{"threads", &p.Threads, 0, MaxThreads},
		{"streams", &p.Streams, 1, MaxStreams},
		{"sources", &p.Sources, 0, maxSources},
	} {
		if *n.value < 0 || *n.value > n.most {
			return fmt.Errorf("%d %s cannot be: give a number from 1 to %d", *n.value, n.name, n.most)
		}
		*n.value = cmp.Or(*n.value, n.missing)
	}
	if p.Threads == 0 {
		p.Threads = min((p.Connections+perThread-1)/perThread, runtime.GOMAXPROCS(0))
	}
	p.Threads = min(p.Threads, p.Connections)
	if p.Streams > 1 && p.Protocol != HTTP2 && p.Protocol != HTTP3 {
		return fmt.Errorf("%s has one request in flight on a connection: leave streams out, or take http2 or http3", p.Protocol)
	}
	if files, err := RaiseFileLimit(); err == nil && uint64(p.Connections)+reservedFiles > files {
		return fmt.Errorf("%d connections need more files than the %d this process may open: take at most %d connections, "+
			"or raise the limit first (ulimit -Hn %d, as root)", p.Connections, files, max(int64(files)-reservedFiles, 1), p.Connections+reservedFiles)
	}
	return nil
}

// schedule checks the times and rates and fills in their defaults.
func (p *plan) schedule() error {
	for _, d := range []struct {
		name    string
		value   *time.Duration
		missing time.Duration
	}{
		{"warm-up", &p.Warmup, 0},
		{"duration", &p.Duration, defaultDuration},
		{"timeout", &p.Timeout, defaultTimeout},
	} {
		if *d.value < 0 {
			return fmt.Errorf("a %s of %v cannot be: give something like 10s", d.name, *d.value)
		}
		*d.value = cmp.Or(*d.value, d.missing)
	}
	sane := func(rate float64) bool { return rate >= 0 && !math.IsInf(rate, 0) }
	switch p.Arrival {
	case Closed:
		if p.Rate != 0 || p.RampTo != 0 {
			return errors.New("a closed loop has no rate: leave it out, or say when to send: constant, poisson or ramp")
		}
	case Constant, Poisson:
		if !sane(p.Rate) || p.Rate == 0 || p.RampTo != 0 {
			return fmt.Errorf("the rate %v is none for %s arrivals: give the requests/s, above 0 (a rate to end at is for ramp)", p.Rate, p.Arrival)
		}
	case Ramp:
		if !sane(p.Rate) || !sane(p.RampTo) || p.Rate+p.RampTo == 0 {
			return fmt.Errorf("a ramp from %v to %v cannot be: give two rates in requests/s, one of them above 0", p.Rate, p.RampTo)
		}
	default:
		return fmt.Errorf("the arrival %q does not exist: take constant, poisson or ramp, or leave it out for a closed loop", p.Arrival)
	}
	return nil
}

// request is what is sent to ask for a path.
func (p *plan) request(path string) []byte {
	host := p.host
	if h := p.Header.Get("Host"); h != "" {
		host = h
	}
	method := http.MethodGet
	if p.Body != nil {
		method = http.MethodPost
	}
	if p.Unique {
		path = withNumber(path)
	}
	b := []byte(method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n")
	for _, name := range sorted(p.Header) {
		if http.CanonicalHeaderKey(name) == "Host" {
			continue
		}
		for _, v := range p.Header[name] {
			b = append(b, name+": "+v+"\r\n"...)
		}
	}
	if p.Body != nil {
		b = append(b, "Content-Length: "+strconv.Itoa(len(p.Body))+"\r\n"...)
	}
	return append(append(b, "\r\n"...), p.Body...)
}

func sorted(h http.Header) []string {
	return slices.Sorted(maps.Keys(h))
}
