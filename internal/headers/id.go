package headers

import (
	"context"
	"crypto/rand"
)

type idKey struct{}

// WithID is for the context of a request: all that is told of it has the same id.
func WithID(ctx context.Context) context.Context {
	return context.WithValue(ctx, idKey{}, rand.Text())
}

// ID is the id of a request, a random one where it has none yet.
func ID(ctx context.Context) string {
	if id, ok := ctx.Value(idKey{}).(string); ok {
		return id
	}
	return rand.Text()
}
