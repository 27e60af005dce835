package cachecmd

import (
	"context"

	"millrace/cache/control"
	"millrace/cmd/internal/cli"
)

// find is the running server with caches that is meant.
func find(ctx context.Context, f cli.Flags, pages ...string) (*cli.Server, error) {
	has := func(ctx context.Context, r *cli.Server) bool {
		all, err := caches(r).Stats(ctx)
		return err == nil && len(all) > 0
	}
	return f.Find(ctx, has, pages...)
}

// caches is the way to a server's caches.
func caches(r *cli.Server) *control.Client { return &control.Client{HTTP: r.HTTP, Base: r.Base} }
