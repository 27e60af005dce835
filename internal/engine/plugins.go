//go:build !small

package engine

import (
	"crypto/sha256"
	"fmt"
	"io"

	"millrace/internal/config"
	"millrace/internal/plugin"
	"millrace/internal/route/site"
)

// plugins puts the plugins of a route before its job. They see every request, so nothing is
// answered without the handler: the lane keeps no answer, and no loop passes a request on.
// An error page is sent without them.
func (b *builder) plugins(sc config.Site, rc config.Route, r *site.Route) error {
	all := pluginsOf(sc, rc)
	if len(all) == 0 {
		return nil
	}
	var list []*plugin.Plugin
	for _, o := range all {
		p, err := b.plugin(o)
		if err != nil {
			return fmt.Errorf("plugins: %w", err)
		}
		list = append(list, p)
	}
	r.Open, r.Handler, r.Private, r.Passes = r.Handler, plugin.Handler(list, r.Handler), true, false
	return nil
}

// plugin takes a plugin over from the old graph if its options and its module are the same,
// or makes a new one. The old one goes on until its last request has ended.
func (b *builder) plugin(o plugin.Options) (*plugin.Plugin, error) {
	module, err := plugin.Read(o.Module)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	key := keyOf("plugin", []any{o, sha256.Sum256(module), b.config.TrustedProxies(), b.config.Limits.ClientHeader})
	return reuseOrOpen(b, key, func() (*plugin.Plugin, io.Closer, error) {
		p, err := plugin.New(o, module, plugin.Deps{Client: b.clients.Of, Meters: b.server.meters.Plugin(o.Name()), Log: b.server.errors})
		return p, p, err
	})
}
