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

// front asks a server that runs here for the pages of any host.
type front struct {
	client    *http.Client
	transport *http.Transport
	home      string // what a path alone belongs to
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
	if _, ok := places["https"]; ok {
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
		transport: t, home: home,
		client: &http.Client{
			Transport: t, Timeout: warmTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// get asks for a page, through the listener for its scheme if there is one:
// behind a server that ends TLS, https pages are asked for without it.
func (f *front) get(ctx context.Context, page string, header http.Header) (*http.Response, error) {
	if strings.HasPrefix(page, "/") {
		page = f.home + page
	}
	if rest, ok := strings.CutPrefix(page, "https://"); ok && f.transport.DialTLSContext == nil {
		page = "http://" + rest
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
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
