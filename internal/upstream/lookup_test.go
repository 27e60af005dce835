package upstream

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/internal/wire/lookup"
)

// TestLookupFails: a server that is well is asked on new connections as well while its
// name cannot be looked up, over HTTP/1.1, TLS and HTTP/2, for requests, upgrades and
// probes.
func TestLookupFails(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		back := servertest.Serve(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
		to, _, _ := strings.Cut(back.URL, ":")
		_, port, _ := net.SplitHostPort(back.Listener.Addr().String())
		var fails atomic.Bool
		names := &lookup.Dialer{Log: slog.New(slog.DiscardHandler), Find: func(context.Context, string) ([]netip.Addr, error) {
			if fails.Load() {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}}
		o := Options{To: []string{to + "://api.example:" + port}, Retries: Retries{Attempts: 1}, Health: Health{Path: "/", Interval: time.Hour}}
		o.TLS.Insecure = to == "https"
		p, err := start(o, slog.New(slog.DiscardHandler), names.DialContext)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for i := range 4 {
			if status, _, err := get(t, p); err != nil || status != http.StatusOK {
				t.Fatalf("request %d: %d, %v", i, status, err)
			}
			fails.Store(true)
			p.servers[0].client.closeIdle()
			p.servers[0].transport.(*http.Transport).CloseIdleConnections()
		}
		if err := p.probe(p.servers[0]); err != nil {
			t.Errorf("the probe: %v", err)
		}
		if protocol == "h2" {
			return
		}
		r := newRequest(t, "GET", "/", nil)
		r.Header.Set("Connection", "upgrade")
		r.Header.Set("Upgrade", "websocket")
		if resp, _, err := p.UpgradeRequest(r); err != nil {
			t.Errorf("an upgrade: %v", err)
		} else {
			resp.Body.Close()
		}
	})
}
