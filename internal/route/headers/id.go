package headers

import (
	"context"
	"crypto/rand"

	"millrace/internal/observe/trace"
)

type idKey struct{}

// WithID is for the context of a request: all that is told of it has the same id.
func WithID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, idKey{}, id)
}

// ID is the id of a request, a random one where it has none yet.
func ID(ctx context.Context) string {
	if id := KnownID(ctx); id != "" {
		return id
	}
	return rand.Text()
}

// KnownID is the id of a request; "": it has none.
func KnownID(ctx context.Context) string {
	if id, ok := ctx.Value(idKey{}).(string); ok {
		return id
	}
	return trace.From(ctx).ID()
}
