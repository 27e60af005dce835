package packcmd

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"millrace/internal/config"
	"millrace/internal/engine/slim"
	"millrace/internal/process/confine"
)

// slimPlan is the config for a slim base; nil where that could not serve it.
func slimPlan(cfg *config.Config) ([]byte, error) {
	plan := slim.Plan{Listen: cfg.Listen, TLS: slim.TLS(cfg.TLS), Log: cfg.Log, Lane: cfg.Lane, Limits: cfg.Limits}
	if cfg.TLS.Auto != nil || cfg.TLS.HTTP3 || cfg.TLS.Tickets.Shared.URL != "" || len(cfg.Limits.TrustedProxies) > 0 || !reflect.ValueOf(cfg.ProxyProtocol).IsZero() || usesServerWideOptions(cfg) {
		return nil, nil
	}
	for _, s := range cfg.Sites {
		if !reflect.DeepEqual(s, config.Site{Hosts: s.Hosts, Routes: s.Routes, Headers: s.Headers, CORS: s.CORS, Use: s.Use}) {
			return nil, nil
		}
		site := slim.Site{Hosts: s.Hosts, Routes: map[string]slim.Route{}, HeaderOptions: headerOptions(cfg, s, nil)}
		for pattern, r := range s.Routes {
			if !slimRoute(r) {
				return nil, nil
			}
			site.Routes[pattern] = slim.Route{Static: r.Static, Redirect: r.Redirect, Deny: r.Deny, HeaderOptions: headerOptions(cfg, s, &r)}
		}
		plan.Sites = append(plan.Sites, site)
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("writing the config for a slim base: %w", err)
	}
	return b, nil
}

// usesServerWideOptions reports whether a config has what holds for all sites, which a slim base
// does without: closed sites and a process that may not reach other files above all.
func usesServerWideOptions(cfg *config.Config) bool {
	return cfg.Tracing != nil || cfg.RequestID != nil && !cfg.RequestID.Off || cfg.SlowRequests != nil && !cfg.SlowRequests.Off ||
		cfg.Sandbox.Mode != "" && cfg.Sandbox.Mode != confine.Off || !reflect.ValueOf(cfg.Maintenance).IsZero()
}

// slimRoute reports whether a slim base can do all that a route says.
func slimRoute(r config.Route) bool {
	known := config.Route{Static: r.Static, Redirect: r.Redirect, Deny: r.Deny, Headers: r.Headers, CORS: r.CORS, Use: r.Use}
	template := r.Redirect != nil && strings.Contains(r.Redirect.To, "{")
	return reflect.DeepEqual(r, known) && !template && (r.Static != nil || r.Redirect != nil || r.Deny != nil)
}

func headerOptions(cfg *config.Config, s config.Site, r *config.Route) slim.HeaderOptions {
	return slim.HeaderOptions{Headers: cfg.HeaderLists(s, r), CORS: (*slim.CORS)(s.CORSOptions(r))}
}
