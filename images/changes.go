package images

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"millrace/images/params"
	"millrace/internal/lane"
	"millrace/static/original"
	"millrace/store"
)

const (
	// followEvery is how often the originals that are remembered are looked at:
	// with the watching of package static, what changes shows within a second.
	followEvery = 300 * time.Millisecond
	// maxLooks bounds how many originals are looked at each time, at some 15 µs:
	// of more the rest has its turn the next time.
	maxLooks = 400
	// maxImproving bounds the better variants that are ordered at once: the
	// queue is not for what can wait.
	maxImproving = 8
	// maxStale bounds the records whose variants are still to be removed. CleanUp
	// finds those beyond it.
	maxStale = 4096
	// cleanUpEvery is how often the whole store is looked through.
	cleanUpEvery = time.Hour
	// cleanUpAfter lets a server start before its folder is read.
	cleanUpAfter = 10 * time.Second
	// prefetchEvery is how often new originals are looked for.
	prefetchEvery = 10 * time.Minute
)

// again calls do after first, and then each time that every has passed since the last
// call ended, until Close.
func (h *Handler) again(first, every time.Duration, do func()) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-h.closing.Done():
			return
		case <-timer.C:
			do()
			timer.Reset(every)
		}
	}
}

// follow checks the records of originals that may have changed: those whose generation
// was invalidated, and those that never had one.
func (h *Handler) follow() {
	h.improving = slices.DeleteFunc(h.improving, improvement.over)
	h.room = maxImproving - len(h.improving)
	all := h.table.all()
	if h.watermarksChanged() {
		for _, rec := range all {
			rec.gen.Invalidate() // the lane asks again, and the next request makes it anew
		}
	}
	for _, rec := range all {
		h.review(rec)
	}
	looks := 0
	for i := range all {
		at := (h.turn + i) % len(all)
		rec := all[at]
		rec.mu.Lock()
		f := rec.file
		rec.mu.Unlock()
		if f.Generation != (lane.Version{}) && f.Generation.Valid() {
			continue
		}
		if looks++; looks > maxLooks {
			h.turn = at
			return
		}
		h.lookUp(rec, f)
	}
}

// review does what is due for a record's variants, and invalidates what the lane has
// where another answer may be the best one now.
func (h *Handler) review(rec *record) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, v := range rec.variants {
		before := v.state
		v.expire()
		h.ended(rec, v)
		if v.state != before {
			rec.gen.Invalidate()
		}
		h.improve(rec, v)
	}
}

// lookUp discards what was made of an original that has changed since f, or is gone.
func (h *Handler) lookUp(rec *record, f original.File) {
	now, err := h.source.Lookup(rec.name)
	switch {
	case err == nil && same(now, f): // it was only forgotten by its source
		rec.mu.Lock()
		if same(rec.file, f) {
			rec.file.Open = now.Open
		}
		rec.mu.Unlock()
	case err == nil || errors.Is(err, original.ErrNone):
		h.discard(h.table.drop(rec, f))
	}
}

// discard has the variants of a stale record removed in the background.
func (h *Handler) discard(p *staleRecord) {
	if p == nil {
		return
	}
	select {
	case h.stale <- p:
	default:
	}
}

// dropLoop removes the variants of stale records, until Close.
func (h *Handler) dropLoop() {
	for {
		select {
		case <-h.closing.Done():
			return
		case p := <-h.stale:
			h.drop(p)
		}
	}
}

func (h *Handler) drop(p *staleRecord) {
	if now, err := h.source.Lookup(p.file.Name); err == nil && same(now, p.file) {
		return // it is as it was before
	}
	ids := map[string]bool{}
	for _, id := range p.ids {
		ids[id] = true
	}
	for _, f := range h.formats { // what was made by an earlier process
		ids[h.wanted(f, params.Params{}, false).id] = true
	}
	h.meters.Dropped.Add(0, uint64(h.variants.drop(h.closing, p.file, ids)))
}

// cleanUpAll removes orphans from the store.
func (h *Handler) cleanUpAll() {
	if _, err := h.CleanUp(h.closing); err != nil && h.closing.Err() == nil {
		h.log.Warn("the folder of converted images could not be cleaned", "err", err)
	}
}

// walker is a store that can list what it has.
type walker interface {
	Walk(ctx context.Context, fn func(key string, head []byte, size int64) error) error
}

// CleanedUp is what CleanUp has done.
type CleanedUp struct {
	Looked, Removed int
	Bytes           int64 // of what was removed
}

// CleanUp removes the variants whose original has changed or is gone. A store that
// cannot be listed is left alone.
func (h *Handler) CleanUp(ctx context.Context) (t CleanedUp, err error) {
	w, ok := h.variants.local.(walker)
	if !ok {
		return t, nil
	}
	err = w.Walk(ctx, func(k string, head []byte, size int64) error {
		var m meta
		if json.Unmarshal(head, &m) != nil || m.Scope != h.variants.scope {
			return nil // somebody else's
		}
		t.Looked++
		f, err := h.source.Lookup(m.Source)
		if err == nil && m.ofFile(f) && key(h.variants.scope, f, m.Variant) == k {
			return nil
		}
		if err != nil && !errors.Is(err, original.ErrNone) {
			return nil // it cannot be told now
		}
		if err := h.variants.local.Delete(ctx, k); err != nil {
			return err
		}
		t.Removed++
		t.Bytes += size
		h.meters.Dropped.Add(0, 1)
		return nil
	})
	if errors.Is(err, store.ErrDown) && ctx.Err() != nil {
		err = ctx.Err()
	}
	return t, err
}

// prefetch converts ahead.
func (h *Handler) prefetch() {
	if _, err := h.Ahead(h.closing, AheadOptions{}); err != nil && h.closing.Err() == nil {
		h.log.Warn("converting ahead stopped", "err", err)
	}
}
