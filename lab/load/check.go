package load

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
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

	// MaxSteps bounds a scenario, each of whose steps has a histogram.
	MaxSteps = 100

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

	steps    []*step
	scenario bool // they are Config.Steps
	varies   bool // requests are not always the same: each connection has a visitor

	base   time.Time      // of the run: its clock begins there
	begins int64          // when the load does
	addr   netip.AddrPort // of the target, on TCP
}

// secure reports whether it goes over TLS.
func (p *plan) secure() bool {
	scheme, _, _ := strings.Cut(strings.ToLower(p.URL), ":")
	return scheme == "https" || scheme == "wss"
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
	p.fast = fastPath && p.Protocol == HTTP1 && !p.secure()
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
	if p.ConnectTo != "" {
		if _, _, err := net.SplitHostPort(p.ConnectTo); err != nil {
			return fmt.Errorf("%q is not an address to connect to: write host:port", p.ConnectTo)
		}
		p.address = p.ConnectTo
	}
	if len(p.Paths) == 0 {
		p.Paths = []string{u.RequestURI()}
		if strings.Contains(p.URL, "{{") { // names of values, which would be percent-encoded
			_, path, _ := strings.Cut(p.URL[strings.Index(p.URL, "://")+len("://"):], "/")
			p.Paths = []string{"/" + path}
		}
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

// requests reads what is sent.
func (p *plan) requests() error {
	steps := p.Steps
	if p.scenario = len(steps) > 0; !p.scenario {
		if len(p.Paths) > MaxPaths {
			return fmt.Errorf("%d paths are too many: give at most %d", len(p.Paths), MaxPaths)
		}
		for _, path := range p.Paths {
			step := p.Request
			step.Path = path
			if p.Unique {
				step.Path = withNumber(path)
			}
			steps = append(steps, step)
		}
	} else if len(steps) > MaxSteps {
		return fmt.Errorf("%d steps are too many: give at most %d", len(steps), MaxSteps)
	}
	known := append([]string{number}, p.columns()...)
	p.varies = p.Cookies
	for i, s := range steps {
		read, err := p.read(s)
		if err != nil {
			return fmt.Errorf("request %d, %q: %w", i+1, cmp.Or(s.Name, s.Path), err)
		}
		if missing := read.missing(known); missing != "" {
			return fmt.Errorf("request %d, %q: nothing gives {{%s}} a value: known here are %s", i+1, cmp.Or(s.Name, s.Path), missing, strings.Join(known, ", "))
		}
		for _, t := range read.takes {
			known = append(known, t.name)
		}
		p.varies = p.varies || len(read.names())+len(read.takes) > 0
		p.steps = append(p.steps, read)
	}
	if p.Protocol == WebSocket && (p.scenario || p.varies || p.OneShot || len(p.Expect) > 0 || p.Request.Method != "" || p.steps[0].hasBody) {
		return errors.New("over WebSocket messages are sent, and no requests: give a message, and leave methods, bodies, steps and expectations out")
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
		if p.Rate != 0 || p.Stages != nil {
			return errors.New("a closed loop has no rate: leave it out, or say when to send: constant or poisson")
		}
	case Constant, Poisson:
		some := p.Rate > 0
		for i, s := range p.Stages {
			if !sane(s.Rate) || s.Length <= 0 {
				return fmt.Errorf("stage %d, to %v/s in %v, cannot be: give a rate in requests/s and a time above 0", i+1, s.Rate, s.Length)
			}
			some = some || s.Rate > 0
		}
		if !sane(p.Rate) || !some {
			return fmt.Errorf("the rate %v is none for %s arrivals: give the requests/s, above 0", p.Rate, p.Arrival)
		}
	default:
		return fmt.Errorf("the arrival %q does not exist: take constant or poisson, or leave it out for a closed loop", p.Arrival)
	}
	return nil
}
