// Package netset knows IP addresses: who sent a request, which IP versions an
// address to listen at is for, and sets of them: those of trusted proxies, those that
// may ask and those that may not. A lookup among n networks takes log n steps, so
// that a published list with 100,000 of them costs no more than a dozen.
package netset

import (
	"fmt"
	"net/netip"
	"slices"
)

// Unix is the word for clients of UNIX sockets, which have no address.
const Unix = "unix"

// A Set of addresses. The zero value is empty. It never changes once it is made.
type Set struct {
	spans []span // sorted, none touches another
	unix  bool
}

// span is all addresses between two, both included.
type span struct{ from, to netip.Addr }

// Parse reads addresses (192.0.2.7), networks (192.0.2.0/24, 2001:db8::/32) and
// "unix". An IPv4 address in its IPv6 form is the IPv4 address.
func Parse(list []string) (Set, error) {
	var s Set
	for _, text := range list {
		if text == Unix {
			s.unix = true
			continue
		}
		p, err := network(text)
		if err != nil {
			return Set{}, err
		}
		s.spans = append(s.spans, span{p.Addr(), last(p)})
	}
	s.merge()
	return s, nil
}

// network reads an address or a network.
func network(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return p, fmt.Errorf("%q is neither an address nor a network like 10.0.0.0/8, nor unix", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%q: write the network of IPv4 addresses as such", text)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if m := p.Masked(); m != p {
		return p, fmt.Errorf("%q is an address within a network: write %s for the network, or %s for the address alone", text, m, p.Addr())
	}
	return p, nil
}

// last is the highest address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b) // as many bytes as it had
	return a
}

// merge sorts the spans and joins those that overlap.
func (s *Set) merge() {
	slices.SortStableFunc(s.spans, func(a, b span) int { return a.from.Compare(b.from) })
	kept := s.spans[:0]
	for _, n := range s.spans {
		if i := len(kept) - 1; i >= 0 && n.from.Compare(kept[i].to) <= 0 {
			if n.to.Compare(kept[i].to) > 0 {
				kept[i].to = n.to
			}
			continue
		}
		kept = append(kept, n)
	}
	s.spans = slices.Clip(kept)
}

// Empty reports whether nothing is in the set.
func (s Set) Empty() bool { return len(s.spans) == 0 && !s.unix }

// Has reports whether an address is in the set. An IPv4 address in its IPv6 form
// is the IPv4 address; a zone does not matter. The zero address stands for a
// client of a UNIX socket.
func (s Set) Has(a netip.Addr) bool {
	if !a.IsValid() {
		return s.unix
	}
	a = a.Unmap().WithZone("")
	i, found := slices.BinarySearchFunc(s.spans, a, func(n span, a netip.Addr) int { return n.from.Compare(a) })
	return found || i > 0 && a.Compare(s.spans[i-1].to) <= 0
}

// Union is the set of what is in either.
func (s Set) Union(o Set) Set {
	all := Set{spans: slices.Concat(s.spans, o.spans), unix: s.unix || o.unix}
	all.merge()
	return all
}
