package load

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// resolve finds the address behind the target's name. Of several, the first
// that lets a connection in is taken, for all connections: a load on two
// servers at once would be a load on neither.
func (p *plan) resolve(ctx context.Context) error {
	if p.network == "unix" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	host, service, err := net.SplitHostPort(p.address)
	if err != nil {
		return fmt.Errorf("read the address %q: %w", p.address, err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil || port == 0 {
		return fmt.Errorf("%q is not a port: give a number from 1 to 65535", service)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("%w: find the address of %s: %w", ErrNoAnswer, host, err)
	}
	p.addr = netip.AddrPortFrom(found[0].Unmap(), uint16(port))
	for _, ip := range found {
		if len(found) == 1 {
			break
		}
		addr := netip.AddrPortFrom(ip.Unmap(), uint16(port))
		d := net.Dialer{Timeout: time.Second}
		if c, err := d.DialContext(ctx, "tcp", addr.String()); err == nil {
			c.Close()
			p.addr = addr
			break
		}
	}
	p.spread(p.addr.Addr())
	return nil
}

// spread decides on source addresses for a target, if that is left to us.
func (p *plan) spread(target netip.Addr) {
	if p.Sources == 0 && p.Connections > perSource && target.Is4() && target.IsLoopback() {
		p.Sources = min((p.Connections+perSource-1)/perSource, maxSources)
	}
}
