//go:build small

package engine

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"millrace/internal/access/admit"
	"millrace/internal/config"
	"millrace/internal/route/site"
	"millrace/internal/server"
	"millrace/store"
	"millrace/store/bus"
	"millrace/websocket/channels"
)

// Built with the tag small, Millrace has no Redis, no NATS, no automatic certificates, no HTTP/3, no plugins, nor the embedded
// encoders of images/codec: a first build takes three quarters of the time.
// docs/decisions/0022 has the figures.
var errSmall = errors.New("this millrace was built with -tags small, which leaves out Redis, NATS, automatic certificates, HTTP/3, plugins and the embedded image encoders: build it without")

func openShared(string, string, *relay, *sharedUse) (sharedStore, error) { return nil, errSmall }

func openRedis(string, time.Duration, time.Duration, *sharedUse) (store.Store, error) {
	return nil, errSmall
}

func openLimits(string, *sharedUse) (admit.Together, io.Closer, error) { return nil, nil, errSmall }

func openBus(channels.Options, bus.Keep, *sharedUse) (bus.Bus, error) { return nil, errSmall }

func openCertifier(server.AutoOptions, store.Store, *slog.Logger) (certifier, error) {
	return nil, errSmall
}

func (b *builder) plugins(sc config.Site, rc config.Route, _ *site.Route) error {
	if len(pluginsOf(sc, rc)) > 0 {
		return fmt.Errorf("plugins: %w", errSmall)
	}
	return nil
}

func http3() server.HTTP3 { return nil }

// Unsupported says what cfg asks for that this build leaves out.
func Unsupported(cfg *config.Config) error {
	var found []error
	if shared := cfg.TLS.Tickets.Shared.URL; shared != "" && !strings.HasPrefix(shared, "s3") {
		found = append(found, fmt.Errorf("tls.tickets.shared: %w", errSmall))
	}
	if cfg.TLS.HTTP3 {
		found = append(found, fmt.Errorf("tls.http3: %w", errSmall))
	}
	if cfg.TLS.Auto != nil {
		found = append(found, fmt.Errorf("tls.auto: %w", errSmall))
	}
	for _, s := range cfg.Sites {
		if s.RateLimit != nil && s.RateLimit.Shared.URL != "" {
			found = append(found, fmt.Errorf("rate_limit.shared: %w", errSmall))
		}
		for _, pattern := range slices.Sorted(maps.Keys(s.Routes)) {
			if len(pluginsOf(s, s.Routes[pattern])) > 0 {
				found = append(found, fmt.Errorf("route %s: plugins: %w", routeName(s.Hosts, pattern), errSmall))
			}
			key := ""
			switch r := s.Routes[pattern]; {
			case r.Cache != nil && r.Cache.Shared.URL != "":
				key = "cache.shared"
			case r.WebSocket != nil && r.WebSocket.Channels != nil && r.WebSocket.Channels.Bus != "":
				key = "websocket.channels.bus"
			case r.RateLimit != nil && r.RateLimit.Shared.URL != "":
				key = "rate_limit.shared"
			default:
				continue
			}
			found = append(found, fmt.Errorf("route %s: %s: %w", routeName(s.Hosts, pattern), key, errSmall))
		}
	}
	return errors.Join(found...)
}
