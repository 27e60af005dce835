package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// The limits of a client. A server answers at once or within writeTimeout.
const (
	clientTimeout = writeTimeout + 5*time.Second
	clientIdle    = 10 * time.Second
)

// Client is for commands that talk to a running server. addr is where its admin
// listener is, as [Options.Listen], [Admin.Addr] and [Find] say it:
// unix:/path or host:port. Paths go behind base: base+"/addrs". An answer may
// take 65 seconds. It connects with the first request, whose error says what
// to do if nobody answers. It does not use proxies from the environment and does
// not follow redirects.
func Client(addr string) (c *http.Client, base string, err error) {
	network, target := "tcp", addr
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok {
		if path == "" {
			return nil, "", fmt.Errorf("admin address %q names no socket: write unix:/path", addr)
		}
		// Any name will do for Host; see listenUnix.
		network, target, base = "unix", path, "http://millrace"
	} else {
		host, port, err := net.SplitHostPort(addr)
		switch {
		case strings.HasPrefix(addr, "/"):
			return nil, "", fmt.Errorf("admin address %q: for a UNIX socket write unix:%s", addr, addr)
		case err != nil || port == "" || strings.ContainsAny(addr, "/ ?#@"):
			return nil, "", fmt.Errorf("admin address %q: write host:port or unix:/path", addr)
		case host == "":
			host = "localhost" // where Dial goes, too
		}
		base = "http://" + net.JoinHostPort(host, port)
	}
	return &http.Client{
		Timeout: clientTimeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, target)
				if err != nil {
					return nil, fmt.Errorf("no server answers at the admin address %s; start one, or name another with --admin: %w", addr, err)
				}
				return nc, nil
			},
			MaxIdleConns:    1,
			IdleConnTimeout: clientIdle,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, base, nil
}
