// Package lookup connects to servers by their names. While looking a name up fails, it
// goes on with the addresses that the name had: a server that is well can be reached
// without DNS.
package lookup

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// keepFor is how long addresses are used that cannot be looked up any more. Later
	// they may be somebody else's.
	keepFor = time.Hour
	// patience is how long a look-up may take where there are addresses already.
	patience = time.Second
	// again is how long they are used after a look-up that failed without another one.
	again = 5 * time.Second
	// lately is how long addresses that were looked up may be used without another look-up, by
	// those who cannot wait for one.
	lately = time.Second
	// mostNames bounds the names that are remembered; who connects is told a few by its config.
	mostNames = 1024
)

// Apart is how long one of several addresses is tried until the next is (RFC 8305, 8: 250 ms);
// those that gave no answer are then tried again, for as long as there is time.
const Apart = 250 * time.Millisecond

// Dialer connects as [net.Dialer] does. Its fields are set before it is used.
type Dialer struct {
	net.Dialer
	Log  *slog.Logger // nil: slog.Default()
	Kept func()       // called for each look-up that failed and had addresses; nil: nobody

	// Both for tests; nil: the system's.
	Find    func(ctx context.Context, host string) ([]netip.Addr, error)
	Connect func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	names map[string]*name
}

// name is what is known of a name.
type name struct {
	addresses []netip.Addr
	found     time.Time // when they were looked up
	failing   bool      // the latest look-up has failed
	next      time.Time // while failing: when another one may be made
}

// DialContext is that of [net.Dialer].
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	connect := d.Connect
	if connect == nil {
		connect = d.connect
	}
	host, port, err := net.SplitHostPort(address)
	if network != "tcp" || err != nil {
		return connect(ctx, network, address)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return connect(ctx, network, address)
	}
	addresses, err := d.addresses(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	var errs []error
	var late []string
	for _, a := range addresses {
		to := net.JoinHostPort(a.String(), port)
		nc, err := dial(ctx, connect, network, to, len(addresses) > 1)
		switch {
		case err == nil:
			return nc, nil
		case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
			late = append(late, to)
		}
		errs = append(errs, err)
	}
	for _, to := range late {
		nc, err := connect(ctx, network, to)
		if err == nil {
			return nc, nil
		}
		errs[0] = err
	}
	return nil, errs[0] // the first address is the one that the system likes best
}

// Lately returns the addresses of a host that was looked up a moment ago, without a look-up of
// its own; nil: it was not. The caller must not change them.
func (d *Dialer) Lately(host string) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.names[host]; n != nil && !n.failing && time.Since(n.found) < lately {
		return n.addresses
	}
	return nil
}

// connect is DialContext for an address without a name. What is on this machine needs no
// probes of TCP (keepalive): the system says at once when it is gone.
func (d *Dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().IsLoopback() {
		return d.Dialer.DialContext(ctx, network, address)
	}
	near := d.Dialer
	near.KeepAlive = -1
	return near.DialContext(ctx, network, address)
}

// dial tries one address; brief: for a short time.
func dial(ctx context.Context, connect func(context.Context, string, string) (net.Conn, error), network, to string, brief bool) (net.Conn, error) {
	if brief {
		short, cancel := context.WithTimeout(ctx, Apart)
		defer cancel()
		ctx = short
	}
	return connect(ctx, network, to)
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// addresses looks a host up, or remembers what it had.
func (d *Dialer) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	began := time.Now()
	d.mu.Lock()
	n := d.names[host]
	var known []netip.Addr
	if n != nil && began.Sub(n.found) < keepFor {
		known = n.addresses
		if n.failing && began.Before(n.next) {
			d.mu.Unlock()
			return known, nil
		}
		n.next = began.Add(again) // the others do not wait for this look-up
	}
	d.mu.Unlock()
	within := ctx
	if known != nil {
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		within = short
	}
	found, err := d.find(within, host)
	switch {
	case err == nil && len(found) > 0:
		d.learn(host, found)
		return found, nil
	case known == nil || ctx.Err() != nil:
		return nil, err
	}
	d.missed(host, err)
	return known, nil
}

func (d *Dialer) find(ctx context.Context, host string) ([]netip.Addr, error) {
	if d.Find != nil {
		return d.Find(ctx, host)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, err //nolint:wrapcheck // it says which host
}

// learn takes in what a look-up has found.
func (d *Dialer) learn(host string, found []netip.Addr) {
	d.mu.Lock()
	n := d.names[host]
	if n == nil && len(d.names) < mostNames {
		if d.names == nil {
			d.names = map[string]*name{}
		}
		n = new(name)
		d.names[host] = n
	}
	back := false
	if n != nil {
		back = n.failing
		n.addresses, n.found, n.failing = found, time.Now(), false
	}
	d.mu.Unlock()
	if back {
		d.log().Info("a host's name can be looked up again", slog.String("host", host))
	}
}

// missed takes in that a look-up has failed.
func (d *Dialer) missed(host string, err error) {
	d.mu.Lock()
	n := d.names[host]
	first := !n.failing
	n.failing, n.next = true, time.Now().Add(again)
	d.mu.Unlock()
	if d.Kept != nil {
		d.Kept()
	}
	if first {
		d.log().Warn("a host's name cannot be looked up: the addresses it had are used", slog.String("host", host), slog.Any("error", err), slog.Duration("for", keepFor))
	}
}

func (d *Dialer) log() *slog.Logger {
	if d.Log == nil {
		return slog.Default()
	}
	return d.Log
}
