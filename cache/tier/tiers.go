// Package tier has the places where a cache keeps objects: memory, and below it
// a disk and a store that several machines share. The slower ones are written to
// in the background. What is found there is taken into memory; what cannot be
// read, or be written, is a miss.
package tier

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/wire/field"
	"millrace/internal/wire/send"
	"millrace/store"
	"millrace/store/disk"
)

const (
	// promoteLargest is the largest body from the disk that is taken into
	// memory: above it sendfile is as quick (crossover measured in lab/bench/AA.md's
	// embed-vs-disk: 8 to 32 KB; memory saves the open as well).
	promoteLargest = 256 << 10
	// inMemoryShare is the part of the memory budget that one body may take.
	inMemoryShare = 16
	// sharedTime bounds one look into a slower tier: the upstream is there, too.
	sharedTime = 2 * time.Second
	// maxVarySets is how many sets of fields one URL's answers may vary by.
	maxVarySets = 8
)

// The tiers by name.
const (
	Disk   = "disk"
	Shared = "shared"
)

// Order places objects from the shared store among the purges of this machine.
type Order interface {
	Epoch(at purge.Time) string
	Time(epoch string) (at purge.Time, known bool)
}

// Options of Tiers.
type Options struct {
	Budget  int64 // of memory, in bytes
	Largest int64 // body that is kept, in bytes
	// Prefix begins every key in the slower tiers. It stands for the options that
	// answers are chosen by: what was stored under others, by an earlier run or
	// another machine, is not found.
	Prefix       string
	Languages    []string    // see rfc9111.Normal
	Disk, Shared store.Store // nil: none. They stay the caller's
	Purges       *purge.Index
	Order        Order
	// Ahead is how far this machine's clock is ahead of the shared store's, by which the
	// times there are; nil: not at all.
	Ahead func() time.Duration
	// Unreachable says that stale answers may be served without limit while the upstream
	// cannot be reached.
	Unreachable bool
	Evicted     func() // called for each key that memory drops to make room
	ErrorLog    *slog.Logger
}

// Tiers are memory and the slower places for answers.
type Tiers struct {
	*Memory
	o        Options
	inMemory int64           // the largest body that memory takes
	touches  *touches        // nil: the shared store does not ask what is used
	asked    *disk.Admission // what came from the upstream lately; nil without a disk
	queue    chan entry
	done     chan struct{}
	stop     sync.Once
}

// entry is an answer on its way to the slower tiers.
type entry struct {
	key    string
	object *object.Object
}

// New makes the tiers. Nothing is written before [Tiers.Write] runs.
func New(o Options) (*Tiers, error) {
	memory, err := NewMemory(o.Budget, o.Evicted)
	if err != nil {
		return nil, err
	}
	t := &Tiers{
		Memory: memory, o: o, queue: make(chan entry, writeQueue), done: make(chan struct{}),
		inMemory: min(o.Largest, max(o.Budget/inMemoryShare, 64<<10)),
	}
	if o.Ahead == nil {
		t.o.Ahead = func() time.Duration { return 0 }
	}
	if o.Disk != nil {
		t.asked = new(disk.Admission)
	}
	if to, ok := o.Shared.(store.Toucher); ok {
		t.touches = &touches{to: to, wake: make(chan struct{}, 1)}
	}
	return t, nil
}

// Largest is the largest body that is kept, in bytes.
func (t *Tiers) Largest() int64 { return t.o.Largest }

// InMemory is the largest body that memory takes, in bytes.
func (t *Tiers) InMemory() int64 { return t.inMemory }

// Shares reports whether the shared store takes a body of that size; -1: it is not known yet.
func (t *Tiers) Shares(size int64) bool {
	bounded, ok := t.o.Shared.(store.Bounded)
	return size <= t.inMemory && (!ok || size <= bounded.Largest())
}

// Slow reports whether there are other tiers than memory.
func (t *Tiers) Slow() bool { return t.o.Disk != nil || t.o.Shared != nil }

// HasShared reports whether there is a store that several machines share.
func (t *Tiers) HasShared() bool { return t.o.Shared != nil }

// DiskStats is what the disk holds, and false without one.
func (t *Tiers) DiskStats() (store.Stats, bool) {
	if t.o.Disk == nil {
		return store.Stats{}, false
	}
	return t.o.Disk.Stats(), true
}

// variantKey is the key of one variant: the cache key, and the values by which
// its answer was chosen.
func variantKey(key string, names []string, values func(i int) string) string {
	if len(names) == 0 {
		return key
	}
	b := []byte(key)
	for i, name := range names {
		b = append(b, 0)
		b = append(b, name...)
		b = append(b, 0)
		v := values(i)
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(b, v...)
	}
	return string(b)
}

// storeKey is the key of an object in the slower tiers.
func (t *Tiers) storeKey(key string, o *object.Object) string {
	return variantKey(t.o.Prefix+key, o.Vary, func(i int) string { return o.By[i] })
}

// Find looks in the slower tiers for an answer to a request, and takes it into
// memory. tier is where it was.
func (t *Tiers) Find(ctx context.Context, request field.Lines, key string) (o *object.Object, tier string) {
	if t.o.Disk != nil {
		o, tier = t.findIn(ctx, t.o.Disk, request, key, Disk), Disk
	}
	if o == nil && t.o.Shared != nil {
		ctx, cancel := context.WithTimeout(ctx, sharedTime)
		defer cancel()
		o, tier = t.findIn(ctx, t.o.Shared, request, key, Shared), Shared
	}
	if o != nil {
		t.Put(key, o)
	}
	return o, tier
}

// Newer looks in the shared store for an answer that came later than o, which memory has,
// and takes it into memory: another machine may have got it.
func (t *Tiers) Newer(ctx context.Context, request field.Lines, key string, o *object.Object) *object.Object {
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	found := t.findIn(ctx, t.o.Shared, request, key, Shared)
	if found == nil || !later(found, o) {
		return nil
	}
	t.Put(key, found)
	return found
}

// sameAnswer is by how much two readings of one answer may differ, as its times are put on
// this machine's clock, which is compared with the store's again and again.
const sameAnswer = 500 * time.Millisecond

// later reports whether found came later than o.
func later(found, o *object.Object) bool {
	d := found.Facts.Received.Sub(o.Facts.Received)
	return d > 0 && (found.Stamp != o.Stamp || d > sameAnswer)
}

// LookOnDisk is Find in the disk alone, and takes nothing into memory.
func (t *Tiers) LookOnDisk(ctx context.Context, request field.Lines, key string) *object.Object {
	if t.o.Disk == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	return t.findIn(ctx, t.o.Disk, request, key, Disk)
}

func (t *Tiers) findIn(ctx context.Context, from store.Store, request field.Lines, key, tier string) *object.Object {
	base := t.o.Prefix + key
	o, sets := t.read(ctx, from, base, tier)
	for _, names := range sets {
		if o != nil {
			break
		}
		variant := variantKey(base, names, func(i int) string { return rfc9111.Normal(names[i], request, t.o.Languages) })
		o, _ = t.read(ctx, from, variant, tier)
	}
	if o == nil || !o.Selects(request, t.o.Languages) || o.State(t.o.Purges) == purge.Gone {
		return nil
	}
	return o
}

// read takes one object out of a tier; or, if it is an index, the sets of
// fields that the variants are filed by.
func (t *Tiers) read(ctx context.Context, from store.Store, key, tier string) (*object.Object, [][]string) {
	found, err := from.Get(ctx, key)
	if err != nil {
		return nil, nil // not there, or not to be had now: the upstream has it
	}
	defer func() { _ = found.Close() }() // read to the end, or useless
	rec, err := object.DecodeRecord(found.Head)
	if err != nil {
		return nil, nil
	}
	if rec.Varies != nil {
		return nil, rec.Varies[:min(len(rec.Varies), maxVarySets)]
	}
	if !rec.Whole(found.Size) {
		return nil, nil
	}
	o := rec.Object(found.Size)
	if tier == Shared {
		var known bool
		if o.Owner.At, known = t.o.Order.Time(rec.Epoch); !known {
			return nil, nil // it may be older than a purge that this machine has never heard of
		}
		o.Facts.Received = o.Facts.Received.Add(t.o.Ahead())
	}
	if tier == Disk && found.Size > promoteLargest {
		o.Disk = key
		return o, nil
	}
	if found.Size > t.inMemory {
		return nil, nil
	}
	o.Body = make([]byte, found.Size)
	if _, err := io.ReadFull(io.NewSectionReader(found.Body, 0, found.Size), o.Body); err != nil {
		return nil, nil
	}
	return o, nil
}

// Body is a body on disk, open.
type Body struct {
	File  *send.File
	Base  int64
	Close func()
}

// Open opens the body of an object that is on disk only.
func (t *Tiers) Open(ctx context.Context, o *object.Object) (Body, error) {
	found, err := t.o.Disk.Get(ctx, o.Disk)
	if err != nil {
		return Body{}, fmt.Errorf("opening the body of %s: %w", o.Owner.URL, err)
	}
	rec, err := object.DecodeRecord(found.Head)
	if err != nil || found.Size != o.Size || !rec.Holds(o) {
		_ = found.Close() // another one is wanted
		return Body{}, errors.New("the body on disk is another one by now")
	}
	// The descriptor is the store's, which counts what is open: it is given back
	// to it, and not closed by the last who sends it.
	done := func() { _ = found.Close() } // it was only read
	if found.File != nil {
		return Body{send.NewFile(found.File), found.Offset, done}, nil
	}
	return Body{send.NewReaderAt(found.Body, nil), 0, done}, nil
}
