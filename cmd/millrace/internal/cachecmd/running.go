package cachecmd

import (
	"context"

	"millrace/cache/control"
	"millrace/cmd/millrace/internal/remote"
)

// find is the running server with caches that is meant.
func find(ctx context.Context, f remote.Flags, pages ...string) (*remote.Server, error) {
	has := func(ctx context.Context, r *remote.Server) bool {
		all, err := caches(r).Stats(ctx)
		return err == nil && len(all) > 0
	}
	return f.Find(ctx, has, pages...)
}

// caches is the way to a server's caches.
func caches(r *remote.Server) *control.Client { return &control.Client{HTTP: r.HTTP, Base: r.Base} }
