package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"millrace/store"
)

// Session tickets (RFC 8446, 4.6.1; RFC 5077) let a client come back without a
// full handshake. The state is in the ticket, encrypted with our keys. A key encrypts
// for ticketPeriod and decrypts for twice as long after that.
const (
	ticketPeriod = 12 * time.Hour
	ticketLife   = 3 * ticketPeriod
	// ticketLead is how long before its use a shared key is made. All machines
	// know it by then, those that could not reach the store for a while too.
	ticketLead = 10 * time.Minute
	// ticketEvery is how often the keys are looked at, here and in the store.
	ticketEvery = time.Minute
	// mostTicketKeys bounds what a store may hand us. Three are in use.
	mostTicketKeys = 16
	// ticketKeyBytes is the length of a key in the store: when its use starts, in Unix
	// seconds, and the key.
	ticketKeyBytes = 8 + 32
)

// SharedTickets is where several machines keep the keys of their session
// tickets. The zero value: nowhere, each has its own.
type SharedTickets struct {
	Store store.Store
	// Secret seals what is in the store, and is the same on all machines. Whoever
	// has it and the store has the keys; with the store alone they can only be deleted.
	Secret string
}

// ticketKey is one key.
type ticketKey struct {
	startsAt int64 // when it begins to encrypt, in Unix seconds
	secret   [32]byte
	shared   bool // it is in the store
}

func newTicketKey(turn int64) ticketKey {
	k := ticketKey{startsAt: turn}
	_, _ = rand.Read(k.secret[:]) // never fails
	return k
}

// ticketKeys are the keys of the session tickets. Without a store they are all this
// process's own. With a store its keys are used, and own keys are made only while it
// cannot be reached or is empty.
type ticketKeys struct {
	errors *slog.Logger
	wake   chan struct{} // a token: share has set another store

	mu          sync.Mutex // not held while the store is asked
	keys        []ticketKey
	shared      SharedTickets
	storeFailed bool // the log has said that the store fails
}

func newTickets(l *slog.Logger) *ticketKeys {
	return &ticketKeys{errors: l, wake: make(chan struct{}, 1)}
}

// share sets the store that keys are shared in. The existing keys stay.
func (t *ticketKeys) share(s SharedTickets) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shared == s {
		return
	}
	t.shared, t.storeFailed = s, false
	for i := range t.keys {
		t.keys[i].shared = false
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run renews the keys until ctx ends, and calls use with them.
func (t *ticketKeys) run(ctx context.Context, use func([][32]byte)) {
	for {
		t.syncStore(ctx)
		use(t.current(time.Now()))
		select {
		case <-time.After(ticketEvery):
		case <-t.wake:
		case <-ctx.Done():
			return
		}
	}
}

// current returns the keys in use at a time, first the one that encrypts. Where none can,
// it makes a new one.
func (t *ticketKeys) current(now time.Time) [][32]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	unix := now.Unix()
	t.keys = slices.DeleteFunc(t.keys, func(k ticketKey) bool { return k.ended(unix) })
	best := sealingKey(t.keys, unix)
	if best < 0 {
		t.keys = append(t.keys, newTicketKey(unix))
		best = len(t.keys) - 1
	}
	all := [][32]byte{t.keys[best].secret}
	for i, k := range t.keys {
		if i != best {
			all = append(all, k.secret)
		}
	}
	return all
}

// save encodes all keys, for another process.
func (t *ticketKeys) save() (b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.keys[:min(len(t.keys), mostTicketKeys)] {
		b = append(binary.BigEndian.AppendUint64(b, uint64(k.startsAt)), k.secret[:]...)
	}
	return b
}

// restore adds the keys that another process has saved; other bytes are ignored.
func (t *ticketKeys) restore(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = append(t.keys, readTicketKeys(b)...)
}

// readTicketKeys reads keys one after the other: none, where the length is wrong.
func readTicketKeys(b []byte) (keys []ticketKey) {
	if len(b)%ticketKeyBytes != 0 {
		return nil
	}
	for ; len(b) > 0 && len(keys) < mostTicketKeys; b = b[ticketKeyBytes:] {
		k := ticketKey{startsAt: int64(binary.BigEndian.Uint64(b))}
		copy(k.secret[:], b[8:])
		keys = append(keys, k)
	}
	return keys
}

// ended reports whether a key is too old to decrypt anything, or starts so far in the
// future that it comes from a machine with a wrong clock.
func (k ticketKey) ended(unix int64) bool {
	return unix >= k.startsAt+int64(ticketLife/time.Second) || k.startsAt > unix+int64(2*ticketPeriod/time.Second)
}

// sealingKey returns the index of the key that encrypts now: the newest of the shared
// ones, or without one the newest; -1 when all are too old. If two keys start at the same
// time, every machine chooses the same one.
func sealingKey(keys []ticketKey, unix int64) int {
	best := -1
	for i, k := range keys {
		length := ticketPeriod
		if k.shared {
			length += ticketLead // for the next one to come
		}
		if k.startsAt > unix || unix >= k.startsAt+int64(length/time.Second) {
			continue
		}
		if best < 0 || compareKeys(k, keys[best]) > 0 {
			best = i
		}
	}
	return best
}

func compareKeys(a, b ticketKey) int {
	switch {
	case a.shared != b.shared:
		if a.shared {
			return 1
		}
		return -1
	case a.startsAt != b.startsAt:
		return cmp.Compare(a.startsAt, b.startsAt)
	}
	return bytes.Compare(a.secret[:], b.secret[:])
}

// syncStore reads the keys in the store, and adds one there if the last is about to end.
// When two machines do so at once the second one's stays, and the first machine finds
// that out a minute later, before the key is used.
func (t *ticketKeys) syncStore(ctx context.Context) {
	t.mu.Lock()
	shared := t.shared
	t.mu.Unlock()
	if shared.Store == nil {
		return
	}
	vault := newTicketStore(shared)
	known, err := vault.read(ctx)
	t.mu.Lock()
	if t.shared != shared { // changed meanwhile
		t.mu.Unlock()
		return
	}
	var put []ticketKey
	if err == nil {
		put = t.learn(known, time.Now().Unix())
	}
	t.mu.Unlock()
	if put != nil {
		err = vault.write(ctx, put)
	}
	t.reportStore(ctx, err)
}

// learn takes the keys that were just read from the store, and returns the keys to write
// to it, nil where it has all. t.mu is held.
func (t *ticketKeys) learn(known []ticketKey, unix int64) []ticketKey {
	known = slices.DeleteFunc(known, func(k ticketKey) bool { return k.ended(unix) })
	best := sealingKey(known, unix)
	added := best < 0
	if added { // this is the first machine, or the store has lost them: our keys go on
		if i := sealingKey(t.keys, unix); i >= 0 {
			known = append(known, t.keys[i])
		} else {
			known = append(known, newTicketKey(unix))
		}
		best = len(known) - 1
	}
	next := known[best].startsAt + int64(ticketPeriod/time.Second)
	if unix >= next-int64(ticketLead/time.Second) && !slices.ContainsFunc(known, func(k ticketKey) bool { return k.startsAt >= next }) {
		known, added = append(known, newTicketKey(next)), true
	}
	for i := range known {
		known[i].shared = true
	}
	own := t.keys
	t.keys = known
	for _, k := range own { // a key that the store does not have still decrypts its tickets
		if !slices.ContainsFunc(known, func(o ticketKey) bool { return o.secret == k.secret }) {
			k.shared = false
			t.keys = append(t.keys, k)
		}
	}
	if !added {
		return nil
	}
	return slices.Clone(known)
}

// reportStore logs once that the store fails, and once that it works again.
func (t *ticketKeys) reportStore(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && !t.storeFailed:
		t.errors.Warn("the keys of TLS session tickets cannot be shared now; this machine goes on with those it has", "err", err)
	case err == nil && t.storeFailed:
		t.errors.Info("the keys of TLS session tickets are shared again")
	}
	t.storeFailed = err != nil
}

// ticketStore is the keys in a store: one object, sealed with AES-256-GCM.
type ticketStore struct {
	store store.Store
	name  string
	seal  cipher.AEAD
}

// newTicketStore derives key and name of the object from the secret: machines with another
// secret have an object of their own.
func newTicketStore(s SharedTickets) *ticketStore {
	key, err := hkdf.Key(sha256.New, []byte(s.Secret), nil, "millrace tls tickets: key", 32)
	must(err)
	name, err := hkdf.Key(sha256.New, []byte(s.Secret), nil, "millrace tls tickets: name", 8)
	must(err)
	block, err := aes.NewCipher(key)
	must(err)
	seal, err := cipher.NewGCMWithRandomNonce(block)
	must(err)
	return &ticketStore{s.Store, "tls-tickets/" + hex.EncodeToString(name), seal}
}

// must is for calls that only fail for key lengths that are not used here.
func must(err error) {
	if err != nil {
		panic("millrace: sealing the keys of TLS session tickets: " + err.Error())
	}
}

// read returns the keys in the store, none if it has none.
func (v *ticketStore) read(ctx context.Context) ([]ticketKey, error) {
	o, err := v.store.Get(ctx, v.name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	defer func() { _ = o.Close() }()
	most := int64(mostTicketKeys*ticketKeyBytes + v.seal.Overhead())
	sealed, err := io.ReadAll(io.NewSectionReader(o.Body, 0, min(o.Size, most)))
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	plain, err := v.seal.Open(nil, nil, sealed, []byte(v.name))
	if err != nil {
		return nil, nil // not sealed with this secret: it is replaced
	}
	return readTicketKeys(plain), nil
}

// write replaces the keys in the store.
func (v *ticketStore) write(ctx context.Context, keys []ticketKey) error {
	slices.SortStableFunc(keys, func(a, b ticketKey) int { return cmp.Compare(b.startsAt, a.startsAt) })
	var plain []byte
	for _, k := range keys[:min(len(keys), mostTicketKeys)] {
		plain = binary.BigEndian.AppendUint64(plain, uint64(k.startsAt))
		plain = append(plain, k.secret[:]...)
	}
	sealed := v.seal.Seal(nil, nil, plain, []byte(v.name))
	w, err := v.store.Create(ctx, v.name, int64(len(sealed)))
	if err != nil {
		return fmt.Errorf("write the keys: %w", err)
	}
	if _, err = w.Write(sealed); err == nil {
		err = w.Commit(nil)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the keys: %w", err), w.Abort())
	}
	return nil
}
