package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// target is what Options.URL says.
type target struct {
	client rueidis.ClientOption
	prefix string // of all keys
}

const (
	sentinelSuffix = "-sentinel" // of a scheme, where the hosts are Sentinels
	sentinelPort   = "26379"
	redisPort      = "6379"
	// defaultMaster is what Redis's own examples of Sentinel call the master.
	defaultMaster = "mymaster"
	mostPrefix    = 64
)

// escapes is how a password is written into a URL.
const escapes = "in a user and a password, / is written %2F, # is %23, ? is %3F and @ is %40"

var errPassword = errors.New("a password was not understood: " + escapes)

// parseURL reads Options.URL. No error repeats the URL: it may hold a password, and where
// that is not escaped, any part of the URL may be one of it:
//
//	redis://:12/34@host → host "", port 12, database "34@host"
func parseURL(text string) (target, error) {
	fail := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("redis URL: "+format, args...)
	}
	first, more := cutHosts(text)
	u, err := url.Parse(first)
	if err != nil {
		if strings.Contains(text, "@") {
			return fail("it cannot be read: write redis://user:password@host:6379, with a number as the port; %s", escapes)
		}
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return fail("%w; write redis://host:6379, rediss://host:6379 or unix:///path", err)
	}
	if u.Scheme != "unix" && strings.Contains(u.Path+u.Fragment, "@") {
		return fail("%w", errPassword)
	}
	scheme, sentinel, err := checkURL(u)
	if err != nil {
		return fail("%w", err)
	}
	o, err := rueidis.ParseURL(scheme + strings.TrimPrefix(first, u.Scheme))
	if err != nil {
		return fail("%s", strings.TrimPrefix(err.Error(), "redis: "))
	}
	query := u.Query()
	port := redisPort
	if sentinel {
		port = sentinelPort
		if u.Port() == "" {
			o.InitAddress[0] = net.JoinHostPort(u.Hostname(), port)
		}
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: cmp.Or(query.Get("master"), defaultMaster), TLSConfig: o.TLSConfig,
			Username: query.Get("sentinel_user"), Password: query.Get("sentinel_password"),
		}
	}
	for _, host := range more {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		o.InitAddress = append(o.InitAddress, host)
	}
	if ca := query.Get("ca"); ca != "" {
		if err := trust(o.TLSConfig, ca); err != nil {
			return fail("%w", err)
		}
	}
	prefix, err := prefixOf(query.Get("prefix"))
	if err != nil {
		return fail("%w", err)
	}
	return target{o, prefix}, nil
}

// checkURL returns the scheme without what it says about Sentinels.
func checkURL(u *url.URL) (scheme string, sentinel bool, err error) {
	scheme, sentinel = strings.CutSuffix(u.Scheme, sentinelSuffix)
	switch scheme {
	case "redis", "rediss", "valkey", "valkeys":
		if u.Hostname() == "" {
			return "", false, errors.New("no host; write redis://host:6379")
		}
	case "unix":
		if u.Host != "" || u.Path == "" || u.Path == "/" {
			return "", false, errors.New("a socket's path begins with a slash; write unix:///path")
		}
		if sentinel {
			return "", false, errors.New("a Sentinel has no socket; write redis-sentinel://host:26379")
		}
	default:
		return "", false, fmt.Errorf("the scheme is %q; write redis://, rediss://, unix:// or redis-sentinel://", u.Scheme)
	}
	if sentinel && u.Fragment != "" {
		return "", false, errors.New("a master's name behind a # is not read; write ?master=NAME")
	}
	for key := range u.Query() {
		switch key {
		case "addr", "db", "ca", "skip_verify", "prefix":
		case "master", "sentinel_user", "sentinel_password":
			if !sentinel {
				return "", false, fmt.Errorf("%s is for Sentinels; write redis-sentinel://host:26379", key)
			}
		default:
			if u.User == nil && strings.Contains(u.RawQuery, "@") {
				return "", false, errPassword
			}
			return "", false, fmt.Errorf("nothing is known about %q; db, ca, skip_verify, prefix, addr, and for Sentinels master, sentinel_user and sentinel_password are possible", key)
		}
	}
	return scheme, sentinel, nil
}

// trust has the certificates in a PEM file trusted instead of the system's.
func trust(config *tls.Config, file string) error {
	if config == nil {
		return errors.New("ca is for TLS; write rediss://")
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the trusted certificates: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return nil
}

// prefixOf is what keys begin with where a URL says prefix=name: with a colon, so that no
// prefix is the beginning of another one.
//
//	shop, shop: → shop:
func prefixOf(name string) (string, error) {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`{}*?[]\^"'`, r) }
	if name == "" {
		return defaultPrefix, nil
	}
	if len(name) > mostPrefix || strings.ContainsFunc(name, odd) {
		return "", fmt.Errorf("prefix is the beginning of keys, of up to %d letters, digits and characters like - and :; write one like shop", mostPrefix)
	}
	return strings.TrimSuffix(name, ":") + ":", nil
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
	if last := r.dialed.Swap(&address); r.client.Sentinel.MasterSet != "" && last != nil && *last != address {
		r.resubscribe() // it may be a new master
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
		return nil, r.stranger(err)
	}
	made := &conn{c, context.AfterFunc(r.closing, func() { c.Close() })}
	if err := pingNew(ctx, made, d.Timeout); err != nil {
		_ = made.Close() // there is another error already
		return nil, r.stranger(err)
	}
	return made, nil
}

// pingNew asks a server that was connected to for a sign of being a Redis. To the client
// library anything that comes unasked, such as another protocol's greeting, is a mistake of
// its own.
func pingNew(ctx context.Context, c net.Conn, most time.Duration) error {
	until := time.Now().Add(cmp.Or(most, defaultTimeout))
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	line, err := firstLine(c)
	switch {
	case err != nil:
		return err
	case line == "+PONG":
	case strings.HasPrefix(line, "-ERR "), strings.HasPrefix(line, "-DENIED "): // too many clients; protected mode
		return fmt.Errorf("the server says %.100s", line[1:])
	case !strings.HasPrefix(line, "-"): // -NOAUTH, for example
		return errStranger
	}
	return c.SetDeadline(time.Time{})
}

// errStranger tells that a server is no Redis.
var errStranger = errors.New("what is there does not answer as a Redis does")

// firstLine reads a line, and nothing behind it.
func firstLine(c net.Conn) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < 512; {
		if _, err := c.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		line = append(line, b[0])
	}
	return "", errStranger
}

// stranger says what to do where a server that never was a Redis may be none.
func (r *Redis) stranger(err error) error {
	secure := r.client.TLSConfig != nil
	switch {
	case secure && strings.Contains(err.Error(), "first record does not look like"):
		return errors.New("what is there speaks no TLS: write redis://")
	case !errors.Is(err, errStranger) && (!ended(err) || r.link.Load() != nil):
		return plain(err)
	case secure:
		return fmt.Errorf("%w: is it one?", errStranger)
	}
	return fmt.Errorf("%w: is it one? if it speaks TLS, write rediss://", errStranger)
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
