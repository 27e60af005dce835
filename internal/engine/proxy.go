package engine

import (
	"io"
	"net/http"

	"millrace/internal/proxy"
	"millrace/internal/upstream"
)

// proxy is a reverse proxy; routes with the same upstream have one pool.
func (b *builder) proxy(o proxy.Options) (http.Handler, error) {
	pool, err := b.pool(o.Options)
	if err != nil {
		return nil, err
	}
	h, err := proxy.New(o, pool, b.server.errors)
	if err != nil {
		return nil, err
	}
	h.Share(b.server.room)
	return h, nil
}

func (b *builder) pool(o upstream.Options) (*upstream.Pool, error) {
	return carry(b, keyOf("upstream", o), func() (*upstream.Pool, io.Closer, error) {
		p, err := upstream.New(o, b.server.errors)
		if err != nil {
			return nil, nil, err
		}
		p.OnUnasked(b.server.countUnasked)
		return p, p, nil
	})
}

// countUnasked counts a connection to an upstream that brought what nobody had
// asked for.
func (s *Server) countUnasked() { s.meters.UpstreamUnasked.Add(0, 1) }
