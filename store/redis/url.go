package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/redis/rueidis"
)

// parseURL reads Options.URL. No error repeats the URL: it may hold a password.
func parseURL(text string) (rueidis.ClientOption, error) {
	fail := func(format string, args ...any) (rueidis.ClientOption, error) {
		return rueidis.ClientOption{}, fmt.Errorf("redis URL: "+format, args...)
	}
	first, more := cutHosts(text)
	u, err := url.Parse(first)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return fail("%w; write redis://host:6379, rediss://host:6379 or unix:///path", err)
	}
	switch u.Scheme {
	case "redis", "rediss", "valkey", "valkeys":
		if u.Hostname() == "" {
			return fail("no host; write redis://host:6379")
		}
	case "unix":
		if u.Host != "" || u.Path == "" || u.Path == "/" {
			return fail("a socket's path begins with a slash; write unix:///path")
		}
	default:
		return fail("the scheme is %q; write redis://, rediss:// or unix://", u.Scheme)
	}
	for key := range u.Query() {
		switch key {
		case "addr", "db", "ca", "skip_verify":
		default:
			return fail("nothing is known about %q; db, ca, skip_verify and addr are possible", key)
		}
	}
	o, err := rueidis.ParseURL(first)
	if err != nil {
		return fail("%s", strings.TrimPrefix(err.Error(), "redis: "))
	}
	for _, host := range more {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "6379")
		}
		o.InitAddress = append(o.InitAddress, host)
	}
	if len(o.InitAddress) > 1 && o.SelectDB != 0 {
		return fail("several hosts are a cluster, which has no database %d", o.SelectDB)
	}
	if ca := u.Query().Get("ca"); ca != "" {
		if o.TLSConfig == nil {
			return fail("ca is for TLS; write rediss://")
		}
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fail("reading the trusted certificates: %w", err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fail("%s holds no certificate in PEM form", ca)
		}
	}
	return o, nil
}

// cutHosts takes the hosts but the first out of a URL, since net/url knows only one.
func cutHosts(text string) (first string, more []string) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme == "unix" {
		return text, nil
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	from := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := strings.Split(rest[from:end], ",")
	return scheme + "://" + rest[:from] + hosts[0] + rest[end:], hosts[1:]
}

// dial connects in the way that the URL asked for.
func (r *Redis) dial(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if err := r.closing.Err(); err != nil {
		return nil, err
	}
	network := "tcp"
	if strings.HasPrefix(r.o.URL, "unix:") {
		network = "unix"
	}
	var c net.Conn
	var err error
	if config == nil {
		c, err = d.DialContext(ctx, network, address)
	} else {
		// The name that is verified is that of the server dialed, which in a
		// cluster need not be the one in the URL.
		own := config.Clone()
		if host, _, err := net.SplitHostPort(address); err == nil {
			own.ServerName = host
		}
		c, err = (&tls.Dialer{NetDialer: d, Config: own}).DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return &conn{c, context.AfterFunc(r.closing, func() { c.Close() })}, nil
}

// conn is a connection that the store's Close closes at once. The client itself
// would first wait for answers: of a handshake for as long as Timeout.
type conn struct {
	net.Conn
	forget func() bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.forget()
	return c.Conn.Close()
}
