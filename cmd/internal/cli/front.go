package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// maxIdle is how many connections a front keeps: more at once is a load test.
const maxIdle = 256

// Site is how a running server's pages are called.
type Site struct {
	BaseURL string // its own address, without a slash at its end
	Secure  bool   // it serves HTTPS itself
}

// Site asks the server where it is.
func (r *Server) Site(ctx context.Context) (Site, error) {
	addrs, err := r.Addrs(ctx)
	if err != nil {
		return Site{}, err
	}
	f, err := NewFront(addrs)
	if err != nil {
		return Site{}, err
	}
	return f.Site, nil
}

// Asked is a URL as the server gets to see it: a path alone is one of its own
// address, and where something before it ends TLS, https has become http.
func (s Site) Asked(text string) string {
	if strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") {
		return s.BaseURL + text
	}
	if rest, ok := strings.CutPrefix(text, "https://"); ok && !s.Secure {
		return "http://" + rest
	}
	return text
}

// Purged is Asked for a purge, which knows URLs of any scheme.
func (s Site) Purged(text string) string {
	if rest, ok := strings.CutPrefix(text, "https://"); ok && !s.Secure {
		return rest
	}
	return s.Asked(text)
}

// Front reaches a server that runs here for the pages of any host.
type Front struct {
	Transport *http.Transport
	Site      Site
}

// called is the host of a listener's URLs: localhost, where it is at a socket or
// at all addresses of a family.
func called(network, place string) string {
	if network == "unix" {
		return "localhost"
	}
	at, err := netip.ParseAddrPort(place)
	if err != nil || !at.Addr().IsUnspecified() {
		return place
	}
	return net.JoinHostPort("localhost", strconv.Itoa(int(at.Port())))
}

// NewFront takes a server's addresses as it lists them.
func NewFront(addrs []string) (*Front, error) {
	places := map[string][2]string{} // scheme → network and address
	home := ""
	for _, a := range addrs {
		scheme, place, _ := strings.Cut(a, ":")
		network := "tcp"
		if s, unix := strings.CutSuffix(scheme, "+unix"); unix {
			scheme, network = s, "unix"
		} else {
			place = strings.TrimPrefix(place, "//")
		}
		if _, ok := places[scheme]; ok {
			continue
		}
		places[scheme] = [2]string{network, place}
		if home == "" {
			home = scheme + "://" + called(network, place)
		}
	}
	if len(places) == 0 {
		return nil, errors.New("the server has no address to ask at")
	}
	t := &http.Transport{
		DisableCompression:  true,
		MaxIdleConnsPerHost: maxIdle,
		// It is the server on this machine that its own admin socket has
		// named; its certificate may be for a name that nobody here knows.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	dial := func(scheme string) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, _ string) (net.Conn, error) {
			p, ok := places[scheme]
			if !ok {
				return nil, fmt.Errorf("the server has no address for %s", scheme)
			}
			return new(net.Dialer).DialContext(ctx, p[0], p[1])
		}
	}
	t.DialContext = dial("http")
	_, secureToo := places["https"]
	if secureToo {
		secure := dial("https")
		t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			nc, err := secure(ctx, network, address)
			if err != nil {
				return nil, err
			}
			host, _, _ := net.SplitHostPort(address)
			return tls.Client(nc, &tls.Config{ServerName: host, InsecureSkipVerify: true}), nil
		}
	}
	return &Front{Transport: t, Site: Site{home, secureToo}}, nil
}

// Close gives up the connections that are idle.
func (f *Front) Close() { f.Transport.CloseIdleConnections() }
