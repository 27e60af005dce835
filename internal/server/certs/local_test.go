package certs

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/certmagic"
)

// locked counts how often a storage is locked.
type locked struct {
	certmagic.Storage
	times atomic.Int32
}

func (l *locked) Lock(ctx context.Context, name string) error {
	l.times.Add(1)
	return l.Storage.Lock(ctx, name)
}

// TestRootIsMadeOnce: names that need the root at the same moment get the same one,
// and do not wait for each other by the storage's lock, which is polled.
func TestRootIsMadeOnce(t *testing.T) {
	storage := &locked{Storage: &certmagic.FileStorage{Path: t.TempDir()}}
	l := &local{storage: storage}
	var all sync.WaitGroup
	serials := make([]string, 20)
	for i := range serials {
		all.Go(func() {
			root, _, err := l.root(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			serials[i] = root.SerialNumber.String()
		})
	}
	all.Wait()
	for _, s := range serials {
		if s != serials[0] {
			t.Fatalf("several roots: %v", serials)
		}
	}
	if n := storage.times.Load(); n != 1 {
		t.Errorf("the storage was locked %d times, want once", n)
	}
}
