package client

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A target is the options, checked and taken apart.
type target struct {
	network string // "tcp" or "unix"
	address string // host:port, or the socket's path
	name    string // of the server, for its certificate
	host    string // of the Host header
	secure  bool   // TLS
	paths   []string
	header  http.Header // without Host
	message []byte
	streams int
	timeout time.Duration
	local   func() net.Addr
	within  func(open func() error) error
	tls     *tls.Config // of TLS over TCP and QUIC; the ALPN is filled in by the protocol
}

// schemes are what each protocol's URL may begin with.
func schemes(protocol string) []string {
	switch protocol {
	case "http1":
		return []string{"http", "https", "unix"}
	case "http2":
		return []string{"https", "http"}
	case "http3":
		return []string{"https"}
	case "websocket":
		return []string{"ws", "wss"}
	}
	return nil
}

// parseTarget checks options for all protocols.
func parseTarget(o *Options) (*target, error) {
	t := &target{
		network: "tcp", address: o.Address,
		paths:   slices.Clone(o.Paths),
		header:  make(http.Header, len(o.Header)),
		message: slices.Clone(o.Message),
		streams: max(1, o.Streams),
		timeout: o.Timeout,
		local:   o.LocalAddr,
		within:  o.Within,
	}
	if t.within == nil {
		t.within = func(open func() error) error { return open() }
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the URL: %w", err)
	}
	allowed := schemes(o.Protocol)
	if allowed == nil {
		return nil, fmt.Errorf("unknown protocol %q: it is http1, http2, http3 or websocket", o.Protocol)
	}
	if !slices.Contains(allowed, u.Scheme) {
		return nil, fmt.Errorf("the URL %q does not fit %s, which needs %s", o.URL, o.Protocol, strings.Join(allowed, ": or ")+":")
	}
	if u.Scheme == "unix" {
		err = t.socket(u)
	} else {
		err = t.authority(u)
	}
	if err != nil {
		return nil, err
	}
	if err := t.requests(o); err != nil {
		return nil, err
	}
	// Without a session cache nothing is resumed anyway; this also tells the server to
	// send no tickets that we would only throw away.
	t.tls = &tls.Config{SessionTicketsDisabled: true}
	if o.TLS != nil {
		t.tls = o.TLS.Clone()
	}
	t.tls.ServerName, t.tls.InsecureSkipVerify = cmp.Or(t.tls.ServerName, t.name), o.Insecure
	return t, nil
}

// socket reads unix:/path/of.sock.
func (t *target) socket(u *url.URL) error {
	t.network, t.host = "unix", "localhost"
	t.address = u.Path
	if u.Opaque != "" { // unix:relative.sock
		t.address = u.Opaque
	}
	if t.address == "" || u.Host != "" {
		return fmt.Errorf("the URL %q names no socket: write unix:/path/of.sock", u)
	}
	if len(t.paths) == 0 {
		t.paths = []string{"/"}
	}
	return nil
}

// authority reads scheme://host:port/path?query.
func (t *target) authority(u *url.URL) error {
	t.name, t.host = u.Hostname(), u.Host
	if t.name == "" {
		return fmt.Errorf("the URL %q names no host: write %s://host:port/path", u, u.Scheme)
	}
	t.secure = u.Scheme == "https" || u.Scheme == "wss"
	port := u.Port()
	if port == "" {
		port = "80"
		if t.secure {
			port = "443"
		}
	}
	t.address = cmp.Or(t.address, net.JoinHostPort(t.name, port))
	if len(t.paths) == 0 {
		t.paths = []string{u.RequestURI()}
	}
	return nil
}

// requests checks what is sent.
func (t *target) requests(o *Options) error {
	for _, p := range t.paths {
		if !strings.HasPrefix(p, "/") {
			return fmt.Errorf("the path %q does not begin with /", p)
		}
		if strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }) {
			return fmt.Errorf("the path %q has a character that must be percent-encoded", p)
		}
	}
	if o.Streams < 0 || o.Streams > MaxStreams {
		return fmt.Errorf("%d streams on one connection: it is 1 to %d", o.Streams, MaxStreams)
	}
	if t.streams > 1 && (o.Protocol == "http1" || o.Protocol == "websocket") {
		return fmt.Errorf("%s has one request at a time on a connection, not %d: use more connections", o.Protocol, t.streams)
	}
	if len(t.message) > MaxMessage {
		return fmt.Errorf("a message of %d bytes: at most %d", len(t.message), MaxMessage)
	}
	if len(t.message) == 0 {
		t.message = []byte(defaultMessage)
	}
	if t.timeout < 0 {
		return errors.New("a negative timeout")
	}
	t.timeout = cmp.Or(t.timeout, defaultTimeout)
	for _, name := range slices.Sorted(maps.Keys(o.Header)) {
		values := o.Header[name]
		if err := checkHeader(name, values); err != nil {
			return err
		}
		if http.CanonicalHeaderKey(name) == "Host" {
			if len(values) > 0 {
				t.host = values[0]
			}
			continue
		}
		t.header[name] = slices.Clone(values)
	}
	return nil
}

// checkHeader refuses what would break out of its line or is not a header
// (RFC 9110, 5.1 and 5.5).
func checkHeader(name string, values []string) error {
	const symbols = "!#$%&'*+-.^_`|~"
	token := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(symbols, r)
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !token(r) }) {
		return fmt.Errorf("%q is not a header's name", name)
	}
	for _, v := range values {
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("the value %q of header %s has a control character", v, name)
		}
	}
	return nil
}

// path is the path with an index that a caller gave.
func (t *target) path(i int) (int, error) {
	if i < 0 || i >= len(t.paths) {
		return 0, fmt.Errorf("%w: asked for path %d of %d", ErrProtocol, i, len(t.paths))
	}
	return i, nil
}
