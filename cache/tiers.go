package cache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/cache/fill"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/send"
	"millrace/store"
)

const (
	// promoteLargest is the largest body from the disk that is taken into
	// memory: above it sendfile is as quick (crossover measured in bench/AA.md's
	// embed-vs-disk: 8 to 32 KB; memory saves the open as well).
	promoteLargest = 256 << 10
	// inMemoryShare is the part of the memory budget that one body may take.
	inMemoryShare = 16
	// writeNow is the size from which an answer is written to disk when it
	// comes, rather than when it is asked for a second time.
	writeNow = 64 << 10
	// keepQueue bounds the answers that wait to be written to the slower
	// tiers; what finds no place is tried again at its next hit.
	keepQueue = 512
	// keepers is how many are written at once.
	keepers = 2
	// slowTime bounds one look into a slower tier: the upstream is there, too.
	slowTime = 2 * time.Second
	// maxVarySets is how many sets of fields one URL's answers may vary by.
	maxVarySets = 8
)

// tiers are the slower places for answers.
type tiers struct {
	disk, shared store.Store // nil where there is none
	owned        bool        // disk was opened here
	queue        chan kept
	done         chan struct{}
	log          *sharedLog
}

// kept is an answer on its way to the slower tiers.
type kept struct {
	key    string
	object *object
}

// openTiers makes memory, disk and what belongs to them.
func (h *Handler) openTiers(o Options, d Deps) error {
	budget := int64(o.Memory)
	if budget == 0 {
		budget = defaultMemory
	}
	var err error
	if h.memory, err = newMemory(budget, func() { h.meters.Evicted.Add(0, 1) }); err != nil {
		return err
	}
	h.slow = tiers{disk: d.Disk, shared: d.Shared, queue: make(chan kept, keepQueue), done: make(chan struct{}), log: &h.shared}
	h.mark = markOf(o)
	h.packer.start()
	h.shared.publish = d.Publish
	if h.slow.disk == nil && o.Disk != "" {
		disk, err := store.OpenDisk(store.DiskOptions{Dir: o.Disk, Limit: o.DiskSize})
		if err != nil {
			return err
		}
		h.slow.disk, h.slow.owned = disk, true
	}
	h.largest = int64(o.Largest)
	if h.largest == 0 {
		h.largest = defaultLargest
		if h.slow.disk != nil {
			h.largest = largestOnDisk
		}
	}
	h.inMemory = min(h.largest, max(budget/inMemoryShare, 64<<10))
	if o.Disk == "" {
		return nil
	}
	return h.journal.open(o.Disk+".purges", h.book, h.errorLog)
}

// stop ends the writing; what waits is written first.
func (t *tiers) stop() {
	if t.done != nil {
		close(t.done)
	}
}

func (t *tiers) close() error {
	if t.disk == nil || !t.owned {
		return nil
	}
	return t.disk.Close()
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

// storeKey is the key of an object in the slower tiers. It begins with a mark of
// the options that answers are chosen by: what was stored under others, by an
// earlier run or another machine, is not found.
func (h *Handler) storeKey(key string, o *object) string {
	return variantKey(h.mark+key, o.vary, func(i int) string { return o.by[i] })
}

// markOf is that mark.
func markOf(o Options) string {
	said, err := json.Marshal([]any{o.Preset, o.To, o.Host, o.Key, o.Rules, o.CORS, o.Languages, o.Target, o.TagHeaders})
	if err != nil {
		panic(fmt.Sprintf("cache: options that cannot be compared: %v", err)) // a mistake in an Options type
	}
	sum := sha256.Sum256(said)
	return hex.EncodeToString(sum[:6]) + "\n"
}

// find looks for a journey's answer in the slower tiers, and takes it into memory.
func (t *tiers) find(ctx context.Context, j *journey) (o *object, tier string) {
	if t.disk != nil {
		o, tier = t.findIn(ctx, t.disk, j, "disk"), "disk"
	}
	if o == nil && t.shared != nil {
		ctx, cancel := context.WithTimeout(ctx, slowTime)
		defer cancel()
		o, tier = t.findIn(ctx, t.shared, j, "shared"), "shared"
	}
	if o != nil {
		j.h.memory.put(j.key, o)
	}
	return o, tier
}

func (t *tiers) findIn(ctx context.Context, from store.Store, j *journey, tier string) *object {
	base := j.h.mark + j.key
	o, sets := t.read(ctx, from, j, base, tier)
	for _, names := range sets {
		if o != nil {
			break
		}
		key := variantKey(base, names, func(i int) string { return rfc9111.Normal(names[i], j.r.Header, j.h.languages) })
		o, _ = t.read(ctx, from, j, key, tier)
	}
	if o == nil || !o.selects(j.r, j.h.languages) {
		return nil
	}
	if j.h.state(o) == purge.Gone {
		return nil
	}
	return o
}

// read takes one object out of a tier; or, if it is an index, the sets of
// fields that the variants are filed by.
func (t *tiers) read(ctx context.Context, from store.Store, j *journey, key, tier string) (*object, [][]string) {
	found, err := from.Get(ctx, key)
	if err != nil {
		return nil, nil // not there, or not to be had now: the upstream has it
	}
	defer func() { _ = found.Close() }() // read to the end, or useless
	rec, err := decodeRecord(found.Head)
	if err != nil {
		return nil, nil
	}
	if rec.Varies != nil {
		return nil, rec.Varies[:min(len(rec.Varies), maxVarySets)]
	}
	o := rec.object(found.Size)
	if tier == "shared" {
		o.owner.At = t.log.time(rec.Epoch)
	}
	if tier == "disk" && found.Size > promoteLargest {
		o.disk = key
		return o, nil
	}
	if found.Size > j.h.inMemory {
		return nil, nil
	}
	o.body = make([]byte, found.Size)
	if _, err := io.ReadFull(io.NewSectionReader(found.Body, 0, found.Size), o.body); err != nil {
		return nil, nil
	}
	return o, nil
}

// diskBody is a body on disk, open.
type diskBody struct {
	file  *send.File
	base  int64
	close func()
}

// open opens the body of an object that is on disk only.
func (t *tiers) open(ctx context.Context, o *object) (diskBody, error) {
	found, err := t.disk.Get(ctx, o.disk)
	if err != nil {
		return diskBody{}, fmt.Errorf("opening the body of %s: %w", o.owner.URL, err)
	}
	rec, err := decodeRecord(found.Head)
	if err != nil || found.Size != o.size || rec.stamp() != o.stamp {
		_ = found.Close() // another one is wanted
		return diskBody{}, errors.New("the body on disk is another one by now")
	}
	// The descriptor is the store's, which counts what is open: it is given back
	// to it, and not closed by the last who sends it.
	done := func() { _ = found.Close() } // it was only read
	if found.File != nil {
		return diskBody{send.NewFile(found.File), found.Offset, done}, nil
	}
	return diskBody{send.NewReaderAt(found.Body, nil), 0, done}, nil
}

// spills reports whether there is room for what is too large for memory.
func (t *tiers) spills() bool { return t.disk != nil }

// spill makes the place for a body that outgrows memory.
func (t *tiers) spill(key string, o *object, size, largest int64) func() (fill.Spill, error) {
	if t.disk == nil {
		return nil
	}
	return func() (fill.Spill, error) {
		w, err := t.disk.Create(context.Background(), key, size)
		if err != nil {
			return nil, fmt.Errorf("making room on disk for %s: %w", o.owner.URL, err)
		}
		return &spill{Writer: w, left: largest}, nil
	}
}

// spill is a body on its way to disk. It takes no more than is kept of one: the
// rest of a larger one goes past it to those who wait.
type spill struct {
	store.Writer
	left int64
}

// Write implements io.Writer.
func (s *spill) Write(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		return 0, store.ErrFull
	}
	n, err := s.Writer.Write(p)
	s.left -= int64(n)
	return n, err //nolint:wrapcheck // it is the store's own
}

// commitSpilt makes a body that went to disk an object there. Who still reads it
// goes on in that.
func (h *Handler) commitSpilt(key string, o *object, body *fill.Body) {
	w, ok := body.Spilt().(*spill)
	head, err := o.encode(h.shared.epoch(o.owner.At))
	if !ok || err != nil {
		retire(body)
		return
	}
	var there *store.Object
	err = body.Reseat(func() (io.ReaderAt, error) {
		if err := w.Commit(head); err != nil {
			return nil, err
		}
		there, err = h.slow.disk.Get(context.Background(), h.storeKey(key, o))
		if err != nil {
			return nil, err
		}
		return there.Body, nil
	})
	if err != nil {
		h.errorLog.Warn("an answer could not be kept on disk", "url", o.owner.URL, "err", err)
		retire(body)
		return
	}
	o.disk = h.storeKey(key, o)
	o.kept.Store(true)
	h.passes.remove(key)
	h.memory.put(key, o)
	body.Retire(func() { _ = there.Close() }) // nobody reads it any more; who comes now finds it in memory
	h.slow.index(context.Background(), h.slow.disk, h.mark+key, o)
}

// retire gives back what a body was written to, once nobody reads it any more.
func retire(b *fill.Body) {
	if w, ok := b.Spilt().(*spill); ok {
		b.Retire(func() { _ = w.Abort() }) // it is not there for anyone, whether or not its file could be removed
	}
}

// keepLarge queues what is worth a write before anyone asks again.
func (t *tiers) keepLarge(h *Handler, key string, o *object) {
	if t.shared != nil || o.size >= writeNow {
		h.keepLater(key, o)
	}
}

// keepLater queues an object for the slower tiers, once.
func (h *Handler) keepLater(key string, o *object) {
	if h.slow.disk == nil && h.slow.shared == nil || o.disk != "" || o.kept.Load() || !o.kept.CompareAndSwap(false, true) {
		return
	}
	select {
	case h.slow.queue <- kept{key, o}:
	default:
		o.kept.Store(false)
	}
}

// keepLoop writes until Close, and then what still waits.
func (h *Handler) keepLoop() {
	for range keepers - 1 {
		h.running.Go(h.keepUntilDone)
	}
	h.keepUntilDone()
}

func (h *Handler) keepUntilDone() {
	for {
		select {
		case k := <-h.slow.queue:
			h.write(h.base, k)
		case <-h.slow.done:
			for {
				select {
				case k := <-h.slow.queue:
					h.write(h.base, k)
				default:
					return
				}
			}
		}
	}
}

// write puts one object into the slower tiers. That it cannot is no loss: it
// is in memory, and the upstream has it.
func (h *Handler) write(ctx context.Context, k kept) {
	head, err := k.object.encode(h.shared.epoch(k.object.owner.At))
	if err != nil {
		return
	}
	for _, to := range []store.Store{h.slow.disk, h.slow.shared} {
		if to == nil {
			continue
		}
		w, err := to.Create(ctx, h.storeKey(k.key, k.object), k.object.size)
		if err != nil {
			continue
		}
		if _, err = w.Write(k.object.body); err == nil {
			err = w.Commit(head)
		}
		if err != nil {
			_ = w.Abort()
			continue
		}
		h.slow.index(ctx, to, h.mark+k.key, k.object)
	}
}

// index writes down by which fields the answers under a key vary, where the
// one without variants would be.
func (t *tiers) index(ctx context.Context, to store.Store, key string, o *object) {
	if len(o.vary) == 0 {
		return
	}
	sets := [][]string{o.vary}
	if found, err := to.Get(ctx, key); err == nil {
		if rec, err := decodeRecord(found.Head); err == nil {
			for _, s := range rec.Varies {
				if !slices.Equal(s, o.vary) && len(sets) < maxVarySets {
					sets = append(sets, s)
				}
			}
			if slices.EqualFunc(sets, rec.Varies, slices.Equal) {
				_ = found.Close()
				return
			}
		}
		_ = found.Close() // only its head was wanted
	}
	head, err := json.Marshal(record{Version: recordVersion, Varies: sets})
	if err != nil {
		return
	}
	if w, err := to.Create(ctx, key, 0); err == nil {
		if w.Commit(head) != nil {
			_ = w.Abort()
		}
	}
}

// Measure sets the gauges of what the tiers hold. It is quick: for whoever reads
// the meters, just before.
func (h *Handler) Measure() {
	h.meters.Memory.Set(h.memory.bytes())
	h.meters.Objects.Set(h.memory.entries())
	if h.slow.disk != nil {
		s := h.slow.disk.Stats()
		h.meters.DiskBytes.Set(s.Bytes)
		h.meters.DiskObjects.Set(s.Objects)
	}
}
