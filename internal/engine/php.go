package engine

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"millrace/internal/config"
	"millrace/internal/wire/netset"
	"millrace/php"
)

// php is the handler of a route with PHP. Files that are no scripts are served by static.
func (b *builder) php(name, pattern string, rc config.Route) (h *php.Handler, err error) {
	var files http.Handler
	if rc.Images != nil {
		files, err = b.images(name, rc)
	} else {
		files, err = b.static(rc)
	}
	if err != nil {
		return nil, err
	}
	trusted, err := netset.Parse(slices.Concat(b.config.Limits.TrustedProxies, rc.PHP.TrustForwarded))
	if err != nil {
		return nil, fmt.Errorf("php.trust_forwarded: %w", err)
	}
	prefix := "" // a name or a script takes nothing away from the path
	if before, ok := strings.CutSuffix(pattern, "/"); ok {
		prefix = before
	}
	return reuseOrOpen(b, keyOf("php "+name, []any{rc.PHP, rc.Static, rc.Images, b.config.Limits.TrustedProxies}), func() (*php.Handler, io.Closer, error) {
		h, err := php.Open(*rc.PHP, php.Deps{
			Files:    files,
			Static:   php.Static{Root: rc.Static.Root, Index: rc.Static.Index, Hides: rc.Static.Hider()},
			Prefix:   prefix,
			ErrorLog: b.server.errors,
			Room:     b.server.room,
			Clients:  netset.NewFinder(trusted, ""),
		})
		return h, h, err
	})
}
