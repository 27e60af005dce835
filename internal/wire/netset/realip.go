package netset

// This file finds out who sent a request: the connection's other end, or, where
// that is a proxy that is trusted, whom the proxy names. A field that anybody
// else has sent is never believed.

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"millrace/internal/wire/field"
)

// DefaultHeader is the field that a proxy names the client in when nothing else
// is said.
const DefaultHeader = "X-Forwarded-For"

// forwarded is the field of RFC 7239, whose entries have a form of their own.
const forwarded = "Forwarded"

// maxHops is how many entries are looked at, from the last one on. A proxy adds
// one; more than that is an attempt to keep us busy.
const maxHops = 32

// A Finder finds clients. A nil one believes nobody.
type Finder struct {
	trusted Set
	header  string // in its canonical form
}

// NewFinder returns a Finder that believes the addresses of trusted, which name the
// client in header; empty: [DefaultHeader]. It is nil when nobody is trusted.
func NewFinder(trusted Set, header string) *Finder {
	if trusted.Empty() {
		return nil
	}
	header = cmp.Or(header, DefaultHeader)
	return &Finder{trusted, textproto.CanonicalMIMEHeaderKey(header)}
}

// ValidHeader reports whether a field can have this name.
func ValidHeader(header string) bool { return field.Token(header) }

// Header is the name of the field that a client is named in.
func (f *Finder) Header() string { return f.header }

// Trusts reports whether what stands in the fields of this peer is believed. The
// zero address is a UNIX socket.
func (f *Finder) Trusts(peer netip.Addr) bool { return f != nil && f.trusted.Has(peer) }

// Of returns the client that sent r; zero for a UNIX socket of which nobody says
// who is behind it.
func (f *Finder) Of(r *http.Request) netip.Addr {
	peer := Peer(r.RemoteAddr)
	if !f.Trusts(peer) {
		return peer
	}
	return f.Named(peer, strings.Join(r.Header[f.header], ","))
}

// Peer is the address of a connection's other end, as net/http has it, or as a handler
// before this one has put it there, without a port.
func Peer(remote string) netip.Addr {
	addr, _ := PeerPort(remote)
	return addr
}

// PeerPort is Peer with the port.
func PeerPort(remote string) (addr netip.Addr, port uint16) {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		addr, _ = netip.ParseAddr(remote) // the zero one for a UNIX socket
		return addr.Unmap().WithZone(""), 0
	}
	return ap.Addr().Unmap().WithZone(""), ap.Port()
}

// Named is the client that a trusted peer names with the field's value. The list
// is read from its end, where the peer has written; it ends at the first address
// that is not trusted, since what stands before it is what that one claims. What
// is no address ends it too: then the client is the one that is known last.
func (f *Finder) Named(peer netip.Addr, value string) netip.Addr {
	client := peer
	for range maxHops {
		entry, rest, ok := lastEntry(value)
		if !ok {
			break
		}
		a, ok := f.address(entry)
		if !ok {
			break
		}
		if client = a; !f.trusted.Has(a) {
			break
		}
		value = rest
	}
	return client
}

// lastEntry cuts the last entry off a list.
func lastEntry(list string) (entry, rest string, ok bool) {
	for list != "" {
		i := lastComma(list)
		entry, list = textproto.TrimString(list[i+1:]), list[:max(i, 0)]
		if entry != "" {
			return entry, list, true
		}
	}
	return "", "", false
}

// lastComma is the place of the last comma outside quotes (RFC 7239, 4), -1 if
// there is none. It is looked for from the end, where a trusted peer has written:
// quotes that a client left open before have no say.
func lastComma(list string) int {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case '"':
			escapes := 0
			for escapes < i && list[i-escapes-1] == '\\' {
				escapes++
			}
			if escapes%2 == 0 {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// address reads an entry of the field.
func (f *Finder) address(entry string) (netip.Addr, bool) {
	if f.header == forwarded {
		var ok bool
		if entry, ok = node(entry); !ok {
			return netip.Addr{}, false
		}
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]"))
	if err != nil {
		ap, err := netip.ParseAddrPort(entry)
		if err != nil {
			return netip.Addr{}, false
		}
		a = ap.Addr()
	}
	return a.Unmap().WithZone(""), true
}

// node is what an entry of Forwarded has behind "for=" (RFC 7239, 4).
func node(entry string) (string, bool) {
	for more := true; more; {
		var pair string
		pair, entry, more = field.Cut(entry, ';')
		name, value, _ := strings.Cut(textproto.TrimString(pair), "=")
		if strings.EqualFold(name, "for") {
			return field.Unquote(value)
		}
	}
	return "", false
}
