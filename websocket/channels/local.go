package channels

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"millrace/internal/wire/field"
)

// notLocal says why a request may not come from a program on this machine; "": it
// does. A proxy or a browser on this machine speaks for others.
func notLocal(r *http.Request) string {
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		if !ap.Addr().Unmap().IsLoopback() {
			return "comes from " + ap.Addr().String()
		}
	} else if r.RemoteAddr != "" && r.RemoteAddr[0] != '@' && r.RemoteAddr[0] != '/' { // else a UNIX socket
		return "comes from an unknown address"
	}
	if !r.ProtoAtLeast(1, 1) {
		return "comes by HTTP/1.0, as from a proxy"
	}
	for name := range r.Header {
		switch {
		case name == "Origin" || name == "Referer" || strings.HasPrefix(name, "Sec-Fetch-"):
			return "comes from a web page (" + name + ")"
		case field.Trace(name):
			return "was passed on for somebody else (" + name + ")"
		}
	}
	// A proxy that leaves no other trace passes on the name of the site, and a
	// page whose name was made to resolve to this machine has its own.
	if !loopback(r.Host) {
		return "is for the host " + hostOnly(r.Host) + ", not for localhost"
	}
	return ""
}

// loopback reports whether a Host means this machine alone: localhost (RFC
// 6761, 6.3) or an address of loopback.
func loopback(host string) bool {
	host = hostOnly(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
