package engine

import (
	"io"
	"strings"
	"time"

	"millrace/internal/server"
	"millrace/store"
	"millrace/store/s3"
)

// tickets is where the keys of TLS session tickets are shared.
func (b *builder) tickets() (server.SharedTickets, error) {
	o := b.config.TLS.Tickets
	if o.Shared.URL == "" || len(b.config.TLS.Listen) == 0 {
		return server.SharedTickets{}, nil
	}
	shared, err := reuseOrOpen(b, keyOf("tickets", o.Shared), func() (store.Store, io.Closer, error) {
		u := b.shared("session tickets")
		s, err := openStore(o.Shared.Address(), 0, 0, u)
		return s, u, err
	})
	return server.SharedTickets{Store: shared, Secret: o.Secret}, err
}

// openStore opens a bucket, or a Redis: see openRedis.
func openStore(url string, ttl, timeout time.Duration, u *sharedUse) (store.Store, error) {
	if scheme, _, _ := strings.Cut(url, ":"); scheme == "s3" || scheme == "s3+http" {
		bucket, err := s3.Open(s3.Options{URL: url, Timeout: timeout, ErrorLog: u.errorLog, Meters: u.counters("s3")})
		if err != nil {
			return nil, err // no *s3.Store that is nil
		}
		u.opened(bucket)
		return bucket, nil
	}
	return openRedis(url, ttl, timeout, u)
}
