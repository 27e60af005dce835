package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/lookup"
)

// connector makes connections to one address.
type connector struct {
	address
	timeout time.Duration // for connecting, and once more for the handshake
	tls     *tls.Config   // for https
	dial    dialer

	// Of connections that net/http does not make:
	target  string      // host:port, or the path of a socket
	overTLS *tls.Config // nil: not over TLS

	// Of those that an event loop makes:
	names *lookup.Dialer // dial is its; nil: dial is another one, and loops make none
	name  string         // to be looked up; "": there is an address
	ip    netip.Addr
	port  uint16
}

func newConnector(a address, timeout time.Duration, config *tls.Config, dial dialer, names *lookup.Dialer) *connector {
	c := &connector{address: a, timeout: timeout, tls: config, dial: dial, names: names}
	if a.socket != "" {
		c.target = a.socket
		return c
	}
	u := url.URL{Host: a.host}
	host, port := asciiHost(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "h2c": "80", "https": "443"}[a.scheme]
	}
	c.target = net.JoinHostPort(host, port)
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		c.names = nil // dial says what is wrong
	}
	c.port = uint16(n)
	if c.ip, err = netip.ParseAddr(host); err != nil {
		c.name = host
	}
	if a.scheme == "https" {
		c.overTLS = config.Clone()
		c.overTLS.NextProtos = []string{"http/1.1"} // HTTP/2 does not switch protocols (RFC 9113, 8.6)
		text(&c.overTLS.ServerName, host)
	}
	return c
}

// asciiHost is a name as it is looked up, in Punycode if it is not ASCII
// (RFC 3492). net/http does the same, but shows the result only in the Host it
// sends. A name that cannot be encoded is unchanged, and will not be found.
func asciiHost(host string) string {
	if strings.IndexFunc(host, func(r rune) bool { return r > 0x7e }) < 0 {
		return host
	}
	var b bytes.Buffer
	if err := (&http.Request{URL: &url.URL{Scheme: "http", Host: host, Path: "/"}}).Write(&b); err != nil {
		return host
	}
	_, rest, _ := strings.Cut(b.String(), "\r\nHost: ")
	ascii, _, _ := strings.Cut(rest, "\r\n")
	return ascii
}

// ready is the address to connect to where nobody has to be asked for it: it is written down,
// or was looked up a moment ago. others says that the name has further ones.
func (c *connector) ready() (to netip.AddrPort, others, ok bool) {
	ip := c.ip
	switch {
	case c.names == nil || ip.Zone() != "":
		return to, false, false
	case c.name != "":
		found := c.names.Lately(c.name)
		if len(found) == 0 {
			return to, false, false
		}
		ip, others = found[0], len(found) > 1
	}
	return netip.AddrPortFrom(ip.Unmap(), c.port), others, true
}

// connect makes a connection and sends what comes first on it, before TLS, or
// returns a [dialError].
func (c *connector) connect(ctx context.Context, network, target string, first []byte) (net.Conn, error) {
	if c.socket != "" {
		network, target = "unix", c.socket
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	nc, err := c.dial(ctx, network, target)
	if err != nil {
		return nil, &dialError{err}
	}
	if len(first) > 0 {
		// One that cannot be set is broken, which the next line will say.
		_ = nc.SetWriteDeadline(time.Now().Add(c.timeout))
		if _, err := nc.Write(first); err != nil {
			nc.Close()
			return nil, &dialError{err}
		}
		_ = nc.SetWriteDeadline(time.Time{})
	}
	return nc, nil
}

// secure speaks TLS over nc where the address says so. The error of a
// handshake closes nc.
func (c *connector) secure(ctx context.Context, nc net.Conn) (net.Conn, error) {
	if c.overTLS == nil {
		return nc, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	over := tls.Client(nc, c.overTLS)
	if err := over.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return over, nil
}
