package engine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"millrace/internal/config"
)

// families are the hosts of the addresses that a listener may have, and at which
// ones of this machine it answers then.
var families = []struct {
	name       string
	hosts      []string
	ipv4, ipv6 bool
	announced  []string // the hosts in what the server calls its addresses
}{
	{"0.0.0.0", []string{"0.0.0.0"}, true, false, []string{"0.0.0.0"}},
	{"[::]", []string{"[::]"}, false, true, []string{"[::]"}},
	{"every", []string{""}, true, true, []string{"localhost"}},
	{"both", []string{"0.0.0.0", "[::]"}, true, true, []string{"localhost"}},
}

// needsIPv6 skips a test on a machine that has none.
func needsIPv6(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	_ = ln.Close()
}

// listenConfig is the config of a server that listens at some hosts.
func listenConfig(t *testing.T, hosts []string, plain, secure int, cert, key string) *config.Config {
	t.Helper()
	list := func(port int) string {
		var all []string
		for _, h := range hosts {
			all = append(all, fmt.Sprintf("%q", fmt.Sprintf("%s:%d", h, port)))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return parse(t, fmt.Sprintf(`
listen: %s
tls: {listen: %s, cert: %q, key: %q, http3: true, redirect: false}
sites: [{routes: {/: {respond: {text: here}}}}]
`, list(plain), list(secure), cert, key))
}

// TestFamilies: 0.0.0.0 is IPv4, [::] is IPv6, :port is both; for plain HTTP, TLS,
// HTTP/3 and the admin listener.
func TestFamilies(t *testing.T) {
	needsIPv6(t)
	cert, key, pool := certificate(t)
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			plain, secure, admin := freePort(t), freePort(t), freePort(t)
			cfg := listenConfig(t, f.hosts, plain, secure, cert, key)
			cfg.Admin.Listen = fmt.Sprintf("%s:%d", f.hosts[0], admin)
			srv := start(t, cfg)
			var want []string
			for _, host := range f.announced {
				want = append(want, "http://"+host+":"+strconv.Itoa(plain), "https://"+host+":"+strconv.Itoa(secure))
			}
			if got := srv.Addrs(); !slices.Equal(got, want) {
				t.Errorf("the server says that it is at %q, want %q", got, want)
			}
			for host, open := range map[string]bool{"127.0.0.1": f.ipv4, "[::1]": f.ipv6} {
				for _, port := range []int{plain, secure} {
					if got := accepts(host, port); got != open {
						t.Errorf("%s:%d is open: %v, want %v", host, port, got, open)
					}
				}
				if got := answersHTTP3(t, host, secure, pool); got != open {
					t.Errorf("UDP %s:%d answers: %v, want %v", host, secure, got, open)
				}
				if f.name == "both" {
					open = host == "127.0.0.1" // the admin has one address
				}
				if got := accepts(host, admin); got != open {
					t.Errorf("the admin listener at %s:%d is open: %v, want %v", host, admin, got, open)
				}
			}
		})
	}
}

// TestFamiliesReloaded: a reload from one to the other refuses nobody of a family
// that both have, and closes what the new one has not.
func TestFamiliesReloaded(t *testing.T) {
	needsIPv6(t)
	cert, key, pool := certificate(t)
	plain, secure := freePort(t), freePort(t)
	srv := start(t, listenConfig(t, families[0].hosts, plain, secure, cert, key))
	now := families[0]
	for _, i := range []int{2, 0, 3, 1, 3, 2, 1, 2, 0} {
		next := families[i]
		ctx, stop := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for host, open := range map[string]bool{"127.0.0.1": now.ipv4 && next.ipv4, "[::1]": now.ipv6 && next.ipv6} {
			for _, port := range []int{plain, secure} {
				if open {
					callers.Go(func() {
						for ctx.Err() == nil {
							if !accepts(host, port) {
								t.Errorf("%s to %s: %s:%d refuses somebody", now.name, next.name, host, port)
								return
							}
						}
					})
				}
			}
		}
		err := srv.Reload(listenConfig(t, next.hosts, plain, secure, cert, key))
		stop()
		callers.Wait()
		if err != nil {
			t.Fatalf("%s to %s: %v", now.name, next.name, err)
		}
		for host, open := range map[string]bool{"127.0.0.1": next.ipv4, "[::1]": next.ipv6} {
			if accepts(host, plain) != open || accepts(host, secure) != open || answersHTTP3(t, host, secure, pool) != open {
				t.Errorf("%s to %s: %s is not open: %v", now.name, next.name, host, open)
			}
		}
		now = next
	}
}

// accepts reports whether somebody accepts connections at an address.
func accepts(host string, port int) bool {
	nc, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", host, port), 5*time.Second)
	if err != nil {
		return false
	}
	return nc.Close() == nil
}

// answersHTTP3 reports whether there is HTTP/3 at an address.
func answersHTTP3(t *testing.T, host string, port int, pool *x509.CertPool) bool {
	t.Helper()
	pc, err := net.ListenPacket("udp", net.JoinHostPort(strings.Trim(host, "[]"), fmt.Sprint(port)))
	if err == nil { // nobody has it
		return pc.Close() != nil
	}
	tr := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}}
	defer tr.Close()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+":"+strconv.Itoa(port)+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(r)
	return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}
