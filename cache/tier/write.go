package tier

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/cache/fill"
	"millrace/cache/object"
	"millrace/store"
)

const (
	// writeNow is the size from which an answer is written to disk when it
	// comes, rather than when it is asked for a second time.
	writeNow = 64 << 10
	// writeQueue bounds the answers that wait to be written to the slower
	// tiers; what finds no place is tried again at its next hit.
	writeQueue = 512
	// writers is how many are written at once.
	writers = 2
)

// WriteNew queues what is worth a write as soon as it has come: what is large or
// for others as well, and what came before and did not find it in memory any
// more when it was asked for a second time.
func (t *Tiers) WriteNew(key string, o *object.Object) {
	again := t.asked != nil && t.asked.Again(t.storeKey(key, o))
	if t.o.Shared != nil || o.Size >= writeNow || again {
		t.WriteLater(key, o)
	}
}

// WriteLater queues an object for the slower tiers, once.
func (t *Tiers) WriteLater(key string, o *object.Object) {
	if !t.Slow() || o.Disk != "" || o.Kept.Load() || !o.Kept.CompareAndSwap(false, true) {
		return
	}
	select {
	case t.queue <- entry{key, o}:
	default:
		o.Kept.Store(false)
	}
}

// WriteNow is WriteLater that waits until it is written. It reports whether other machines
// find it now.
func (t *Tiers) WriteNow(ctx context.Context, key string, o *object.Object) (shared bool) {
	return o.Disk == "" && o.Kept.CompareAndSwap(false, true) && t.write(ctx, entry{key, o})
}

// Name is what a key is called in the slower tiers.
func (t *Tiers) Name(key string) string { return t.o.Prefix + key }

// Write writes what is queued, in goroutines that start begins. They end after
// [Tiers.Stop], with what waits then, or with ctx.
func (t *Tiers) Write(ctx context.Context, start func(func())) {
	for range writers {
		start(func() { t.writeUntilStop(ctx) })
	}
	if t.touches != nil {
		start(func() { t.touches.run(ctx, t.done) })
	}
}

// Stop ends the writing; what waits is written first.
func (t *Tiers) Stop() { t.stop.Do(func() { close(t.done) }) }

func (t *Tiers) writeUntilStop(ctx context.Context) {
	for {
		select {
		case e := <-t.queue:
			t.write(ctx, e)
		case <-t.done:
			for {
				select {
				case e := <-t.queue:
					t.write(ctx, e)
				default:
					return
				}
			}
		}
	}
}

// write puts one object into the slower tiers. That it cannot is not a loss: it
// is in memory, and the upstream has it. shared is whether the shared store has taken it.
func (t *Tiers) write(ctx context.Context, e entry) (shared bool) {
	epoch := t.o.Order.Epoch(e.object.Owner.At)
	lasts := t.lasts(e.object, time.Now())
	for _, to := range []store.Store{t.o.Disk, t.o.Shared} {
		if to == nil || to == t.o.Shared && lasts <= 0 {
			continue
		}
		ahead := time.Duration(0)
		if to == t.o.Shared {
			ahead = t.o.Ahead()
		}
		head, err := e.object.Encode(epoch, ahead)
		if err != nil {
			return false
		}
		w, err := to.Create(ctx, t.storeKey(e.key, e.object), e.object.Size)
		if err != nil {
			continue
		}
		expire(w, lasts)
		if _, err = w.Write(e.object.Body); err == nil {
			err = w.Commit(head)
		}
		if err != nil {
			_ = w.Abort()
			continue
		}
		index(ctx, to, t.o.Prefix+e.key, e.object, lasts)
		shared = to == t.o.Shared
	}
	return shared
}

const (
	// validated is how much longer an answer is of use that the upstream can confirm: its
	// body need not be sent again.
	validated = time.Hour
	// unreachable is how much longer one is that may be served until the upstream can be
	// reached again.
	unreachable = 24 * time.Hour
	// indexLasts is how long the shared store keeps an index at least, which is written again
	// only for answers that last longer.
	indexLasts = 24 * time.Hour
)

// lasts is for how long from now on the shared store keeps an answer: as long as it may be
// used, fresh or stale.
func (t *Tiers) lasts(o *object.Object, now time.Time) time.Duration {
	f := &o.Facts
	more := max(f.StaleWhileRevalidate, f.StaleIfError)
	if t.o.Unreachable && !f.NoStale {
		more = max(more, unreachable)
	}
	if o.Get("Etag") != "" || o.Get("Last-Modified") != "" {
		more = max(more, validated)
	}
	return f.TTL(now) + more
}

// expire has the store forget what w writes after a while, if it does such.
func expire(w store.Writer, after time.Duration) {
	if e, ok := w.(store.Expiring); ok {
		e.Expire(after)
	}
}

// index writes down by which fields the answers under a key vary, where the
// one without variants would be.
func index(ctx context.Context, to store.Store, key string, o *object.Object, lasts time.Duration) {
	if len(o.Vary) == 0 {
		return
	}
	sets := [][]string{o.Vary}
	if found, err := to.Get(ctx, key); err == nil {
		if rec, err := object.DecodeRecord(found.Head); err == nil {
			for _, s := range rec.Varies {
				if !slices.Equal(s, o.Vary) && len(sets) < maxVarySets {
					sets = append(sets, s)
				}
			}
			if slices.EqualFunc(sets, rec.Varies, slices.Equal) && lasts <= indexLasts {
				_ = found.Close()
				return
			}
		}
		_ = found.Close() // only its head was wanted
	}
	head, err := object.EncodeSets(sets)
	if err != nil {
		return
	}
	if w, err := to.Create(ctx, key, 0); err == nil {
		expire(w, max(lasts, indexLasts))
		if w.Commit(head) != nil {
			_ = w.Abort()
		}
	}
}

// Overflows reports whether there is room for what is too large for memory.
func (t *Tiers) Overflows() bool { return t.o.Disk != nil }

// Overflow makes the place on disk for the body of o, which may outgrow memory.
// size is -1 while it is not known. nil without a disk.
func (t *Tiers) Overflow(key string, o *object.Object, size int64) func() (fill.Overflow, error) {
	if t.o.Disk == nil {
		return nil
	}
	return func() (fill.Overflow, error) {
		w, err := t.o.Disk.Create(context.Background(), t.storeKey(key, o), size)
		if err != nil {
			return nil, fmt.Errorf("making room on disk for %s: %w", o.Owner.URL, err)
		}
		return &overflow{Writer: w, left: t.o.Largest}, nil
	}
}

// overflow is a body on its way to disk. It takes no more than is kept of one: the
// rest of a larger one goes past it to those who wait.
type overflow struct {
	store.Writer
	left int64
}

// Write implements io.Writer.
func (s *overflow) Write(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		return 0, store.ErrFull
	}
	n, err := s.Writer.Write(p)
	s.left -= int64(n)
	return n, err
}

// Commit makes a body that went to disk an object there, and puts it into memory.
// Who still reads the body goes on in that. It reports false when the body could
// not be kept; it is discarded then.
func (t *Tiers) Commit(key string, o *object.Object, body *fill.Body) bool {
	w, ok := body.Overflowed().(*overflow)
	head, err := o.Encode(t.o.Order.Epoch(o.Owner.At), 0)
	if !ok || err != nil {
		Discard(body)
		return false
	}
	var there *store.Object
	err = body.Reseat(func() (io.ReaderAt, error) {
		if err := w.Commit(head); err != nil {
			return nil, err
		}
		there, err = t.o.Disk.Get(context.Background(), t.storeKey(key, o))
		if err != nil {
			return nil, err
		}
		return there.Body, nil
	})
	if err != nil {
		t.o.ErrorLog.Warn("an answer could not be kept on disk", "url", o.Owner.URL, "err", err)
		Discard(body)
		return false
	}
	o.Disk = t.storeKey(key, o)
	o.Kept.Store(true)
	t.Put(key, o)
	body.Retire(func() { _ = there.Close() }) // nobody reads it any more; who comes now finds it in memory
	index(context.Background(), t.o.Disk, t.o.Prefix+key, o, 0)
	return true
}

// Discard gives back what a body was written to, once nobody reads it any more.
func Discard(b *fill.Body) {
	if w, ok := b.Overflowed().(*overflow); ok {
		b.Retire(func() { _ = w.Abort() }) // it is not there for anyone, whether or not its file could be removed
	}
}
