package certs

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"millrace/store"
)

// shared is a storage that several machines share: a store with sealed objects, and a copy
// of them in a local folder, which is read while the store cannot be reached.
type shared struct {
	store  store.Store
	folder *certmagic.FileStorage
	seal   cipher.AEAD

	mu   sync.Mutex
	held map[string]*claim // by the lock's name
}

// Bounds of what is stored, and of locks.
const (
	// mostStored is the largest file: a chain of certificates has some kilobytes.
	mostStored = 1 << 20
	// settle is how long a claim to a lock must stay unchanged before it counts: longer
	// than another machine needs between its check and its own claim.
	settle = 2 * time.Second
	// beat is how often the holder of a lock renews its claim. A claim that has not
	// changed for lockLife, by this machine's clock, is abandoned.
	beat     = 5 * time.Second
	lockLife = 4 * beat
	// lockPoll is how often a lock is checked by those who wait for it.
	lockPoll = 500 * time.Millisecond
	// callTime bounds each call to the store.
	callTime = settle / 2
	// sharedPrefix begins the keys of all objects.
	sharedPrefix = "certificates/"
)

var errOtherSecret = errors.New("it was sealed with another secret")

// claim is a lock that this process holds.
type claim struct {
	stop context.CancelFunc
	done chan struct{}
}

func newShared(s store.Store, secret string, folder *certmagic.FileStorage) (*shared, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "millrace certificates: key", 32)
	if err != nil {
		return nil, fmt.Errorf("storage_secret: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("storage_secret: %w", err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("storage_secret: %w", err)
	}
	return &shared{store: s, folder: folder, seal: seal, held: map[string]*claim{}}, nil
}

// put writes an object. Its key is authenticated with it, so that objects cannot be
// exchanged by someone who can write to the store.
func (s *shared) put(ctx context.Context, key string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	sealed := s.seal.Seal(nil, nil, value, []byte(key))
	w, err := s.store.Create(ctx, sharedPrefix+key, int64(len(sealed)))
	if err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	if _, err = w.Write(sealed); err != nil {
		return fmt.Errorf("store %s: %w", key, errors.Join(err, w.Abort()))
	}
	if err = w.Commit(nil); err != nil {
		return fmt.Errorf("store %s: %w", key, err)
	}
	return nil
}

func (s *shared) get(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	o, err := s.store.Get(ctx, sharedPrefix+key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", key, err)
	}
	defer o.Close() //nolint:errcheck // only read from
	sealed, err := io.ReadAll(io.NewSectionReader(o.Body, 0, min(o.Size, mostStored)))
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", key, err)
	}
	value, err := s.seal.Open(nil, nil, sealed, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("load %s: %w: use the same storage_secret on all machines, or delete what is stored below %s", key, errOtherSecret, sharedPrefix)
	}
	return value, nil
}

// copied reports whether a file is copied to the folder. Files that live for a moment are
// not.
func copied(key string) bool { return !strings.Contains(key, "challenge_tokens") }

// Store implements [certmagic.Storage].
func (s *shared) Store(ctx context.Context, key string, value []byte) error {
	if err := s.put(ctx, key, value); err != nil {
		return err
	}
	if copied(key) {
		return s.folder.Store(ctx, key, value)
	}
	return nil
}

// Load implements [certmagic.Storage].
func (s *shared) Load(ctx context.Context, key string) ([]byte, error) {
	value, err := s.get(ctx, key)
	switch {
	case err == nil:
		if copied(key) {
			if old, e := s.folder.Load(ctx, key); e != nil || string(old) != string(value) {
				_ = s.folder.Store(ctx, key, value) // for the time when the store is down
			}
		}
		return value, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if value, e := s.folder.Load(ctx, key); e == nil && copied(key) {
		return value, nil
	}
	return nil, err
}

// Delete implements [certmagic.Storage].
func (s *shared) Delete(ctx context.Context, key string) error {
	if copied(key) {
		_ = s.folder.Delete(ctx, key) // there may be none
	}
	return s.remove(ctx, key)
}

// remove is Delete in the store alone.
func (s *shared) remove(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.store.Delete(ctx, sharedPrefix+key); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// Exists implements [certmagic.Storage].
func (s *shared) Exists(ctx context.Context, key string) bool {
	_, err := s.Load(ctx, key)
	return err == nil
}

// List implements [certmagic.Storage]. A store has no lists. certmagic asks for
// accounts whose address is not known, which are then found by their own key.
func (s *shared) List(context.Context, string, bool) ([]string, error) { return nil, nil }

// Stat implements [certmagic.Storage].
func (s *shared) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	value, err := s.Load(ctx, key)
	return certmagic.KeyInfo{Key: key, Size: int64(len(value)), IsTerminal: true}, err
}

// Lock implements [certmagic.Locker], on a store without locks. A machine that finds no
// live claim writes its own, and waits for settle: by then every other machine that found
// none has written, too. Whose claim is there then has the lock. The lock for putting back
// what was lost excludes all others: who has only claimed one of these gives way.
func (s *shared) Lock(ctx context.Context, name string) error {
	own := watched{s: s, key: "locks/" + name}
	restoring := watched{s: s, key: "locks/" + restoreLock}
	me := rand.Text()
	for {
		free, err := own.free(ctx)
		if err == nil && free && name != restoreLock {
			free, err = restoring.free(ctx)
		}
		if err != nil {
			return err
		}
		if !free {
			if err := pause(ctx, lockPoll); err != nil {
				return err
			}
			continue
		}
		if err := s.put(ctx, own.key, claimOf(me, 0)); err != nil {
			return err
		}
		if err := pause(ctx, settle); err != nil {
			return err
		}
		now, err := s.get(ctx, own.key)
		if err != nil || string(now) != string(claimOf(me, 0)) {
			continue
		}
		if name != restoreLock {
			if free, err := restoring.free(ctx); err != nil || !free {
				_ = s.remove(ctx, own.key) // it ends by itself
				continue
			}
		}
		s.hold(name, own.key, me)
		return nil
	}
}

// watched is a lock that is watched: one whose claim does not change any more is free.
type watched struct {
	s     *shared
	key   string
	claim string // as it was when it was last seen to change
	since time.Time
}

// free reports whether there is no live claim.
func (w *watched) free(ctx context.Context) (bool, error) {
	standing, err := w.s.get(ctx, w.key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if text := string(standing); text != w.claim || w.since.IsZero() {
		w.claim, w.since = text, time.Now()
	}
	return len(standing) == 0 || time.Since(w.since) >= lockLife, nil
}

func claimOf(me string, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte(me), n) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller's own
	}
}

// hold renews the claim until the lock is released by Unlock, which waits for the
// goroutine, or by release.
func (s *shared) hold(name, key, me string) {
	ctx, stop := context.WithCancel(context.Background())
	c := &claim{stop, make(chan struct{})}
	s.mu.Lock()
	s.held[name] = c
	s.mu.Unlock()
	go func() {
		defer close(c.done)
		for n := uint64(1); pause(ctx, beat) == nil; n++ {
			_ = s.put(ctx, key, claimOf(me, n)) // next time, perhaps
		}
	}()
}

// Unlock implements [certmagic.Locker].
func (s *shared) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	c := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	c.stop()
	<-c.done
	return s.remove(context.WithoutCancel(ctx), "locks/"+name)
}

// release releases all locks.
func (s *shared) release() {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.held))
	s.mu.Unlock()
	for _, name := range names {
		_ = s.Unlock(context.Background(), name) // they end by themselves
	}
}
