package engine

import (
	"io"
	"net/http"

	"millrace/internal/upstream"
	"millrace/proxy"
)

// proxy is a reverse proxy; routes with the same upstream have one pool, and so have
// caches and WebSockets.
func (b *builder) proxy(o proxy.Options) (http.Handler, error) {
	h, err := b.proxyTo(o)
	if err != nil || len(o.Canary.To) == 0 {
		return h, err
	}
	canary, err := b.proxyTo(o.OfCanary())
	if err != nil {
		return nil, err
	}
	return proxy.NewSplit(o, h, canary), nil
}

func (b *builder) proxyTo(o proxy.Options) (*proxy.Handler, error) {
	pool, err := b.pool(o.Options)
	if err != nil {
		return nil, err
	}
	h, err := proxy.New(o, pool, b.server.errors)
	if err != nil {
		return nil, err
	}
	h.Share(b.server.room)
	if len(o.Mirror.To) == 0 {
		return h, nil
	}
	copies, err := b.copies(o)
	if err != nil {
		return nil, err
	}
	h.Mirror(copies)
	return h, nil
}

func (b *builder) copies(o proxy.Options) (*proxy.Copies, error) {
	to := o.OfMirror()
	pool, err := b.pool(to)
	if err != nil {
		return nil, err
	}
	return reuseOrOpen(b, keyOf("mirror", []any{o.Mirror, to}), func() (*proxy.Copies, io.Closer, error) {
		c := proxy.NewCopies(o.Mirror, pool, b.server.countUnmirrored)
		return c, c, nil
	})
}

func (b *builder) pool(o upstream.Options) (*upstream.Pool, error) {
	return reuseOrOpen(b, keyOf("upstream", o), func() (*upstream.Pool, io.Closer, error) {
		p, err := upstream.New(o, b.server.errors)
		if err != nil {
			return nil, nil, err
		}
		p.OnUnsolicited(b.server.countUnasked)
		p.OnLookupFailure(b.server.countLookupFailure)
		return p, p, nil
	})
}

// countUnasked counts a connection on which an upstream sent bytes that belong to no
// request.
func (s *Server) countUnasked() { s.meters.UpstreamUnasked.Add(0, 1) }

// countUnmirrored counts a request of which a mirror got no copy.
func (s *Server) countUnmirrored() { s.meters.Unmirrored.Add(0, 1) }

// countLookupFailure counts a look-up that failed for a name whose addresses are known.
func (s *Server) countLookupFailure() { s.meters.UpstreamLookups.Add(0, 1) }
