package images

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"millrace/images/params"
	"millrace/internal/original"
	"millrace/store"
)

const (
	// followEvery is how often the originals that are remembered are looked at:
	// with the watching of package static, what changes shows within a second.
	followEvery = 300 * time.Millisecond
	// lookEvery is how often an original is looked at whose mark has not
	// fallen: it may have no watcher.
	tidyEvery = time.Hour
	// tidyAfter lets a server start before its folder is read.
	tidyAfter = 10 * time.Second
	// prefetchEvery is how often new originals are looked for.
	prefetchEvery = 10 * time.Minute
)

// followLoop drops the variants of originals that change or go away, until
// Close.
func (h *Handler) followLoop() {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.closing.Done():
			return
		case <-tick.C:
			h.follow()
		}
	}
}

// follow looks at the records whose originals may have changed.
func (h *Handler) follow() {
	now := time.Now()
	for _, rec := range h.table.all() {
		rec.mu.Lock()
		f := rec.file
		for _, v := range rec.variants {
			if v.state == failed && now.After(v.until) {
				v.state = missing
				rec.gen.Void() // the lane has the original: somebody may try again
			}
		}
		rec.mu.Unlock()
		if f.Mark.Valid() {
			continue
		}
		now, err := h.source.Lookup(rec.name)
		switch {
		case errors.Is(err, original.ErrYoung):
		case err == nil && same(now, f):
			// It was only forgotten by its source. The next request brings a
			// mark; until then it is looked at like this.
		case err == nil || errors.Is(err, original.ErrNone):
			h.dropPast(h.table.drop(rec))
		}
	}
}

// dropPast removes the variants of what an original was before.
func (h *Handler) dropPast(p *past) {
	if p == nil {
		return
	}
	ids := map[string]bool{}
	for _, id := range p.ids {
		ids[id] = true
	}
	for _, f := range h.formats { // what was made by an earlier process
		ids[h.wanted(f, params.Params{}).id] = true
	}
	for id := range ids {
		if h.keep.drop(h.closing, p.file, id) {
			h.meters.Dropped.Add(0, 1)
		}
	}
}

// tidyLoop removes orphans from the store at the start and every hour, until
// Close.
func (h *Handler) tidyLoop() {
	timer := time.NewTimer(tidyAfter)
	defer timer.Stop()
	for {
		select {
		case <-h.closing.Done():
			return
		case <-timer.C:
			if _, err := h.Tidy(h.closing); err != nil && h.closing.Err() == nil {
				h.log.Warn("the folder of converted pictures could not be tidied", "err", err)
			}
			timer.Reset(tidyEvery)
		}
	}
}

// walker is a store that can list what it has.
type walker interface {
	Walk(ctx context.Context, fn func(key string, head []byte, size int64) error) error
}

// Tidied is what Tidy has done.
type Tidied struct {
	Looked, Removed int
	Bytes           int64 // of what was removed
}

// Tidy removes the variants whose original has changed or is gone. A store that
// cannot be listed is left alone.
func (h *Handler) Tidy(ctx context.Context) (t Tidied, err error) {
	w, ok := h.keep.local.(walker)
	if !ok {
		return t, nil
	}
	err = w.Walk(ctx, func(k string, head []byte, size int64) error {
		var m meta
		if json.Unmarshal(head, &m) != nil || m.Scope != h.keep.scope {
			return nil // somebody else's
		}
		t.Looked++
		f, err := h.source.Lookup(m.Source)
		if err == nil && m.ofFile(f) && key(h.keep.scope, f, m.Variant) == k {
			return nil
		}
		if err != nil && !errors.Is(err, original.ErrNone) {
			return nil // it cannot be told now
		}
		if err := h.keep.local.Delete(ctx, k); err != nil {
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

// prefetchLoop converts ahead, until Close.
func (h *Handler) prefetchLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-h.closing.Done():
			return
		case <-timer.C:
			if _, err := h.Ahead(h.closing, AheadOptions{}); err != nil && h.closing.Err() == nil {
				h.log.Warn("converting ahead stopped", "err", err)
			}
			timer.Reset(prefetchEvery)
		}
	}
}
