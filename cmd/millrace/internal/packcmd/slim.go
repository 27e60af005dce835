package packcmd

import (
	"encoding/json"
	"fmt"

	"millrace/internal/config"
	"millrace/internal/slim"
)

// slimPlan is the config for a slim base; nil where that could not serve it.
func slimPlan(cfg *config.Config) ([]byte, error) {
	plan := slim.Plan{Listen: cfg.Listen, TLS: slim.TLS(cfg.TLS), Log: cfg.Log, Lane: cfg.Lane, Limits: cfg.Limits}
	if cfg.TLS.Auto != nil || cfg.TLS.Tickets.Shared != "" || len(cfg.Limits.TrustedProxies) > 0 {
		return nil, nil
	}
	for _, s := range cfg.Sites {
		site := slim.Site{Hosts: s.Hosts, Routes: map[string]slim.Route{}}
		for pattern, r := range s.Routes {
			if r.Static == nil && r.Redirect == nil && r.Deny == nil || r.Images != nil || r.PHP != nil {
				return nil, nil
			}
			site.Routes[pattern] = slim.Route{Static: r.Static, Redirect: r.Redirect, Deny: r.Deny}
		}
		plan.Sites = append(plan.Sites, site)
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("writing the config for a slim base: %w", err)
	}
	return b, nil
}
