package remote

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"millrace/internal/wire/lookup"
)

var (
	// errAddress is why no connection was made.
	errAddress = errors.New("the host has a private address; add private: true if that is meant")
	// errRedirect is why a redirect was not followed.
	errRedirect = errors.New("a redirect that is not followed")
)

// special are addresses that are not of the public Internet, or that stand for
// others (IANA's IPv4 and IPv6 Special-Purpose Address Registries, RFC 6890).
// Of IPv6, only 2000::/3 is public to begin with.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // RFC 1122: this network
	netip.MustParsePrefix("10.0.0.0/8"),      // RFC 1918
	netip.MustParsePrefix("100.64.0.0/10"),   // RFC 6598: carrier-grade NAT
	netip.MustParsePrefix("127.0.0.0/8"),     // RFC 1122: loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // RFC 3927: link-local; clouds tell secrets there
	netip.MustParsePrefix("172.16.0.0/12"),   // RFC 1918
	netip.MustParsePrefix("192.0.0.0/24"),    // RFC 6890: protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // RFC 5737: documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // RFC 7526: 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),  // RFC 1918
	netip.MustParsePrefix("198.18.0.0/15"),   // RFC 2544: benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // RFC 5737
	netip.MustParsePrefix("203.0.113.0/24"),  // RFC 5737
	netip.MustParsePrefix("224.0.0.0/4"),     // RFC 5771: multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // RFC 1112: reserved; broadcast
	netip.MustParsePrefix("2001::/23"),       // RFC 2928: Teredo, ORCHID, benchmarks …
	netip.MustParsePrefix("2001:db8::/32"),   // RFC 3849: documentation
	netip.MustParsePrefix("2002::/16"),       // RFC 3056: 6to4, an IPv4 address in disguise
	netip.MustParsePrefix("3fff::/20"),       // RFC 9637: documentation
}

var (
	unicast = []netip.Prefix{netip.MustParsePrefix("2000::/3")}     // RFC 4291, 2.4
	nat64   = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")} // RFC 6052
)

func within(a netip.Addr, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// public reports whether an address is one of the public Internet.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if within(a, nat64) { // with an IPv4 address in its last bytes
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a.IsValid() && (a.Is4() || within(a, unicast)) && !within(a, special)
}

// control is asked before each connection, when the name was resolved: what DNS
// says at another time does not matter.
func (s *Source) control(_, address string, _ syscall.RawConn) error {
	if s.o.Private {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errAddress, address)
	}
	if !public(to.Addr()) {
		return fmt.Errorf("%w: %s", errAddress, to.Addr())
	}
	return nil
}

const (
	// mostRedirects is how many are followed.
	mostRedirects = 3
	// mostHeader is how large the header of an answer may be.
	mostHeader = 64 << 10
)

// connect makes the client: without cookies, and without proxies, which would
// connect for us to addresses that we do not see. Each fetch has a connection of
// its own, over which only its answer can come: with more of them, bytes after an
// answer could be taken for the next one, and be kept as another image. TLS
// sessions are resumed, so that this costs a round trip or two and few signatures.
func (s *Source) connect() {
	dialer := &lookup.Dialer{Dialer: net.Dialer{Timeout: min(s.o.Timeout, 10*time.Second), Control: s.control}, Log: s.log}
	s.transport = &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    min(s.o.Timeout, 10*time.Second),
		MaxResponseHeaderBytes: mostHeader,
		DisableKeepAlives:      true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		DisableCompression:     true, // images are compressed; a bomb need not be looked for
		ForceAttemptHTTP2:      true,
	}
	s.client = &http.Client{
		Transport: s.transport,
		CheckRedirect: func(r *http.Request, before []*http.Request) error {
			if len(before) > mostRedirects {
				return fmt.Errorf("%w: more than %d of them", errRedirect, mostRedirects)
			}
			r.Header.Del("Referer")
			return s.allowed(r.URL)
		},
	}
}
