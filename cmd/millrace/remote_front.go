package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// site is how a running server's pages are called.
type site struct {
	home   string // its own address, without a slash at its end
	secure bool   // it serves HTTPS itself
}

// site asks the server where it is.
func (r *remote) site(ctx context.Context) (site, error) {
	addrs, err := r.addrs(ctx)
	if err != nil {
		return site{}, err
	}
	f, err := newFront(addrs)
	if err != nil {
		return site{}, err
	}
	return f.site, nil
}

// asked is a URL as the server gets to see it: a path alone is one of its own
// address, and where something before it ends TLS, https has become http.
func (s site) asked(text string) string {
	if strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") {
		return s.home + text
	}
	if rest, ok := strings.CutPrefix(text, "https://"); ok && !s.secure {
		return "http://" + rest
	}
	return text
}

// purged is asked for a purge, which knows URLs of any scheme.
func (s site) purged(text string) string {
	if rest, ok := strings.CutPrefix(text, "https://"); ok && !s.secure {
		return rest
	}
	return s.asked(text)
}

// front asks a server that runs here for the pages of any host.
type front struct {
	client    *http.Client
	transport *http.Transport
	site      site
}

// newFront takes a server's addresses as it lists them.
func newFront(addrs []string) (*front, error) {
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
		if network == "unix" {
			place = "localhost"
		}
		if home == "" {
			home = scheme + "://" + place
		}
	}
	if len(places) == 0 {
		return nil, errors.New("the server has no address to ask at")
	}
	t := &http.Transport{
		DisableCompression:  true,
		MaxIdleConnsPerHost: maxWorkers,
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
	return &front{
		transport: t, site: site{home, secureToo},
		client: &http.Client{
			Transport: t, Timeout: warmTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// get asks for a page, through the listener for its scheme if there is one:
// behind a server that ends TLS, https pages are asked for without it.
func (f *front) get(ctx context.Context, page string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.site.asked(page), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := f.client.Do(req)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return resp, err
}

func (f *front) close() { f.transport.CloseIdleConnections() }

// cacheStatus is what Cache-Status says of the cache that is nearest to us.
type cacheStatus struct{ cached, hit, stored bool }

// readCacheStatus reads the last member (RFC 9211, 2: each cache appends its
// own). What stands in quotes has no part in it.
func readCacheStatus(h http.Header) (s cacheStatus) {
	lines := h.Values("Cache-Status")
	if len(lines) == 0 {
		return s
	}
	unquoted, last := lines[len(lines)-1], ""
	for i, part := range strings.Split(unquoted, `"`) {
		if i%2 == 0 {
			last += part
		}
	}
	last = last[strings.LastIndexByte(last, ',')+1:]
	s.cached = strings.TrimSpace(last) != ""
	for i, parameter := range strings.Split(last, ";") {
		switch strings.TrimSpace(parameter) {
		case "hit":
			s.hit = s.hit || i > 0
		case "stored":
			s.stored = s.stored || i > 0
		}
	}
	return s
}
