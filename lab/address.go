package lab

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"millrace/lab/record"
)

// listening finds the processes that listen at a URL's address, or at the one that is
// connected to instead.
func listening(raw, connectTo string) ([]int, error) {
	if strings.HasPrefix(raw, "unix:") {
		return record.Listening(raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%q is not a URL: %w", raw, err)
	}
	host, port := u.Hostname(), u.Port()
	if connectTo != "" {
		if host, port, err = net.SplitHostPort(connectTo); err != nil {
			return nil, fmt.Errorf("%q is not host:port: %w", connectTo, err)
		}
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%s is not on this machine; name its process with --pid if it is", u.Host)
	}
	switch {
	case port != "":
	case u.Scheme == "https" || u.Scheme == "wss":
		port = "443"
	default:
		port = "80"
	}
	return record.Listening(net.JoinHostPort(host, port))
}
