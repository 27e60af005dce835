package certs

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"millrace/store"
	"millrace/store/memory"
)

// machines are storages of several machines over one store.
func machines(t *testing.T, n int) []*shared {
	t.Helper()
	s := memory.New(1 << 20)
	t.Cleanup(func() { _ = s.Close() })
	var all []*shared
	for range n {
		m, err := newShared(s, strings.Repeat("secret", 6), &certmagic.FileStorage{Path: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// Of many that want a lock at once one has it, then the next; a lock whose holder
// has died is free after a while, and nobody waits beyond its own time.
func TestSharedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := machines(t, 4)
		var inside, times atomic.Int32
		var wg sync.WaitGroup
		for _, m := range all {
			for range 3 {
				wg.Go(func() {
					if err := m.Lock(t.Context(), "name"); err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two have the lock")
					}
					times.Add(1)
					time.Sleep(time.Minute)
					inside.Add(-1)
					if err := m.Unlock(t.Context(), "name"); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if times.Load() != 12 {
			t.Errorf("%d of 12 had the lock", times.Load())
		}
		if err := all[0].Lock(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := all[1].Lock(ctx, "dead"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lock that is held: %v", err)
		}
		all[0].held["dead"].stop() // it dies
		began := time.Now()
		if err := all[1].Lock(t.Context(), "dead"); err != nil || time.Since(began) > 2*lockLife {
			t.Errorf("a dead lock: %v after %v", err, time.Since(began))
		}
		all[1].release()
	})
}

// What one machine stores the others have, sealed on the way; a copy is read while
// the store is down, but not what lives for a moment.
func TestSharedStorage(t *testing.T) {
	all := machines(t, 2)
	ctx := t.Context()
	const key, token = "certificates/ca/a.example/a.example.key", "acme/ca/challenge_tokens/a.example.json"
	for _, k := range []string{key, token} {
		if err := all[0].Store(ctx, k, []byte("private")); err != nil {
			t.Fatal(err)
		}
		if got, err := all[1].Load(ctx, k); err != nil || string(got) != "private" {
			t.Errorf("%s: %q, %v", k, got, err)
		}
		if o, err := all[0].store.Get(ctx, sharedPrefix+k); err != nil {
			t.Error(err)
		} else {
			b := make([]byte, o.Size)
			_, _ = o.Body.ReadAt(b, 0)
			if strings.Contains(string(b), "private") {
				t.Errorf("%s is not sealed", k)
			}
			_ = o.Close()
		}
	}
	if _, err := all[1].Load(ctx, "none"); !errors.Is(err, fs.ErrNotExist) || all[1].Exists(ctx, "none") || !all[1].Exists(ctx, key) {
		t.Errorf("a file that is not there: %v", err)
	}
	thief, err := newShared(all[0].store, strings.Repeat("guesses", 6), &certmagic.FileStorage{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := thief.Load(ctx, key); err == nil || !strings.Contains(err.Error(), "another secret") {
		t.Errorf("with another secret: %v", err)
	}
	if err := all[0].put(ctx, "other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = all[0].store.Close()
	if got, err := all[1].Load(ctx, key); err != nil || string(got) != "private" {
		t.Errorf("with the store down: %q, %v", got, err)
	}
	if _, err := all[1].Load(ctx, token); !errors.Is(err, store.ErrDown) {
		t.Errorf("a token with the store down: %v", err)
	}
	if err := all[1].Store(ctx, key, []byte("new")); !errors.Is(err, store.ErrDown) {
		t.Errorf("storing with the store down: %v", err)
	}
}
