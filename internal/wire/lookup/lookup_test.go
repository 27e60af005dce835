package lookup

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errDNS = errors.New("no such host")

// network answers look-ups and connects.
type network struct {
	addresses []netip.Addr // nil: looking up fails
	hangs     bool         // looking up never ends
	asked     int
	up        map[string]bool // host:port that takes connections
	silent    map[string]bool // gives no answer
	tried     []string
}

func (n *network) find(ctx context.Context, _ string) ([]netip.Addr, error) {
	n.asked++
	if n.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if n.addresses == nil {
		return nil, errDNS
	}
	return n.addresses, nil
}

func (n *network) connect(ctx context.Context, _, address string) (net.Conn, error) {
	n.tried = append(n.tried, address)
	switch {
	case n.silent[address]:
		<-ctx.Done()
		return nil, ctx.Err()
	case n.up[address]:
		a, b := net.Pipe()
		b.Close()
		return a, nil
	}
	return nil, errors.New("connection refused")
}

func setup(t *testing.T) (*network, *Dialer, *strings.Builder, *int) {
	n := &network{addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, up: map[string]bool{"192.0.2.1:80": true}, silent: map[string]bool{}}
	said, kept := new(strings.Builder), new(int)
	d := &Dialer{Find: n.find, Connect: n.connect, Kept: func() { *kept++ }, Log: slog.New(slog.NewTextHandler(said, nil))}
	return n, d, said, kept
}

func dialed(t *testing.T, d *Dialer) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	nc, err := d.DialContext(ctx, "tcp", "api.example:80")
	if err == nil {
		nc.Close()
	}
	return err
}

// TestAddressesAreKept: while looking up fails, or hangs, a name has the addresses that
// it had, for an hour; it is said once, and once when that is over.
func TestAddressesAreKept(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, d, said, kept := setup(t)
			if err := dialed(t, d); err != nil {
				t.Fatal(err)
			}
			n.addresses, n.hangs = nil, hangs
			for range 100 {
				began := time.Now()
				if err := dialed(t, d); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > patience {
					t.Errorf("it took %v", took)
				}
				time.Sleep(time.Second / 10)
			}
			if n.asked > 5 || *kept != n.asked-1 || strings.Count(said.String(), "cannot be looked up") != 1 {
				t.Errorf("%d look-ups, %d counted, said %q", n.asked, *kept, said)
			}
			time.Sleep(again)
			n.addresses, n.hangs = []netip.Addr{netip.MustParseAddr("192.0.2.2")}, false
			n.up["192.0.2.2:80"] = true
			if err := dialed(t, d); err != nil || n.tried[len(n.tried)-1] != "192.0.2.2:80" {
				t.Errorf("after all: %v, %v", err, n.tried[len(n.tried)-1])
			}
			if strings.Count(said.String(), "can be looked up again") != 1 {
				t.Errorf("said %q", said)
			}
			n.addresses = nil
			time.Sleep(keepFor)
			if err := dialed(t, d); !errors.Is(err, errDNS) {
				t.Errorf("after an hour: %v", err)
			}
		})
	}
}

// TestUnknownNames: a name that was never found is an error, each time.
func TestUnknownNames(t *testing.T) {
	n, d, _, _ := setup(t)
	n.addresses = nil
	for range 3 {
		if err := dialed(t, d); !errors.Is(err, errDNS) {
			t.Error(err)
		}
	}
	if n.asked != 3 {
		t.Errorf("%d look-ups", n.asked)
	}
}

// TestAllAddresses: addresses that refuse or do not answer do not hide the others.
func TestAllAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, d, _, _ := setup(t)
		n.addresses = []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("192.0.2.1")}
		n.silent["[2001:db8::1]:80"] = true
		began := time.Now()
		if err := dialed(t, d); err != nil || time.Since(began) != Apart {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if want := []string{"[2001:db8::1]:80", "192.0.2.9:80", "192.0.2.1:80"}; !slices.Equal(n.tried, want) {
			t.Errorf("tried %v", n.tried)
		}
		delete(n.up, "192.0.2.1:80")
		if err := dialed(t, d); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with none: %v", err)
		}
	})
}

// TestLately: who cannot wait gets what was looked up within the last second, and nothing
// while looking up fails.
func TestLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing error
		d := &Dialer{
			Log: slog.New(slog.DiscardHandler),
			Find: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, failing
			},
			Connect: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
		}
		ask := func() { _, _ = d.DialContext(t.Context(), "tcp", "api.test:80") }
		want := func(n int, when string) {
			t.Helper()
			if got := d.Lately("api.test"); len(got) != n {
				t.Errorf("%s: %v", when, got)
			}
		}
		want(0, "before a look-up")
		ask()
		want(1, "after it")
		time.Sleep(lately)
		want(0, "a second later")
		ask()
		failing = net.ErrClosed
		ask()
		want(0, "while looking up fails")
	})
}
