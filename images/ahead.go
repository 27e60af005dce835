package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"millrace/images/convert"
	"millrace/images/params"
	"millrace/internal/observe/meter"
	"millrace/static/original"
	"millrace/store"
)

var (
	errNoList = errors.New("the originals cannot be listed: only those of a folder can be converted ahead")
	errLarge  = errors.New("the file is larger than images.max_size")
	// errFolderFull: to convert ahead would push out what visitors have asked for.
	errFolderFull = fmt.Errorf("%w: the folder for variants is nearly full; raise images.store_size", store.ErrFull)
)

// fullAt is the percentage of its limit at which a store counts as full.
const fullAt = 95

// lister is a source that can name its files.
type lister interface {
	List(ctx context.Context, fn func(name string) error) error
}

// AheadOptions of Ahead.
type AheadOptions struct {
	// Jobs is how many images are worked on at once; default: the workers.
	Jobs int
	// Progress is called after each image, by one goroutine at a time; total
	// is known from the start.
	Progress func(Progress)
}

// Progress of Ahead.
type Progress struct {
	Done, Total int
	Name        string // of the image that was last done
	Err         error  // what kept it from being converted; nil if nothing did
}

// Summary is what Ahead has done.
type Summary struct {
	Pictures int
	Bytes    int64               // of the originals
	Formats  map[string]Saving   // by format
	Failed   map[string][]string // names, by cause
	// Smallest is what a browser gets that takes everything: bytes of the
	// smallest of original and variants.
	Smallest int64
}

// Saving is what a format saves.
type Saving struct {
	Made     int   `json:"made"`     // converted now
	Kept     int   `json:"kept"`     // found
	Original int   `json:"original"` // those of them whose original is smaller
	Bytes    int64 `json:"bytes"`    // of the smaller ones
	Of       int64 `json:"of"`       // of the originals
}

// Ahead converts every image of the source that is not converted yet, each to
// all formats, and returns when all is done or ctx ends. What it has done by
// then is kept: the next call goes on.
func (h *Handler) Ahead(ctx context.Context, o AheadOptions) (Summary, error) {
	s := Summary{Formats: map[string]Saving{}, Failed: map[string][]string{}}
	l, ok := h.source.(lister)
	if !ok {
		return s, errNoList
	}
	var names []string
	err := l.List(ctx, func(name string) error {
		if h.extensions[strings.ToLower(path.Ext(name))] {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	jobs := o.Jobs
	if jobs <= 0 {
		jobs = h.engine.workers
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	next := make(chan string)
	for range min(jobs, len(names)) {
		running.Go(func() {
			for name := range next {
				p := h.ahead(ctx, name)
				mu.Lock()
				s.add(p)
				if o.Progress != nil {
					o.Progress(Progress{Done: s.Pictures, Total: len(names), Name: name, Err: p.err})
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		select {
		case next <- name:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	running.Wait()
	return s, ctx.Err()
}

// picture is what Ahead found out about one.
type picture struct {
	name     string
	size     int64
	smallest int64
	formats  map[string]Saving
	err      error
	cause    string
}

func (s *Summary) add(p picture) {
	s.Pictures++
	s.Bytes += p.size
	s.Smallest += p.smallest
	for f, one := range p.formats {
		all := s.Formats[f]
		all.Made, all.Kept, all.Original = all.Made+one.Made, all.Kept+one.Kept, all.Original+one.Original
		all.Bytes, all.Of = all.Bytes+one.Bytes, all.Of+one.Of
		s.Formats[f] = all
	}
	if p.err != nil {
		s.Failed[p.cause] = append(s.Failed[p.cause], p.name)
	}
}

// ahead converts one image to all formats.
func (h *Handler) ahead(ctx context.Context, name string) (p picture) {
	p = picture{name: name, formats: map[string]Saving{}}
	f, err := h.source.Lookup(name)
	switch {
	case errors.Is(err, original.ErrYoung):
		p.err, p.cause = err, "just changed"
		return p
	case err != nil:
		p.err, p.cause = err, "not readable"
		return p
	}
	p.size, p.smallest = f.Size, f.Size
	if f.Size > int64(h.options.MaxSize) {
		p.err, p.cause = errLarge, "large file"
		return p
	}
	for _, format := range h.formats {
		w := h.wanted(format, params.Params{}, false)
		one, err := h.make(ctx, f, w)
		if err != nil {
			p.err, p.cause = err, cause(err)
			continue
		}
		if one.Original == 0 {
			p.smallest = min(p.smallest, one.Bytes)
		}
		p.formats[string(w.Format)] = one
	}
	return p
}

// make has one variant made, if it is not there. The table notes only a variant that
// was made: otherwise a look at a large folder would evict what visitors ask for.
func (h *Handler) make(ctx context.Context, f original.File, w wanted) (Saving, error) {
	if s, err := h.saving(ctx, f, w, 0); !errors.Is(err, store.ErrNotFound) {
		return s, err
	}
	if h.Full() {
		return Saving{}, errFolderFull
	}
	rec, before := h.table.record(f)
	h.discard(before)
	if rec == nil {
		return Saving{}, errChanged
	}
	rec.mu.Lock()
	if rec.gone {
		rec.mu.Unlock()
		return Saving{}, errChanged
	}
	v := h.table.variant(rec, w)
	v.expire()
	switch v.state {
	case unknown, ready, smaller: // the store was asked just now
		h.table.release(v)
		v.state = missing
	case failed:
		defer rec.mu.Unlock()
		return Saving{}, v.err
	}
	rec.mu.Unlock()
	o := h.order(rec, w, background)
	if o.err != nil {
		return Saving{}, o.err
	}
	if o.ticket != nil {
		select {
		case <-o.ticket.Done():
		case <-ctx.Done():
			return Saving{}, ctx.Err()
		}
		if err := o.ticket.Err(); err != nil && !errors.Is(err, convert.ErrNoGain) {
			return Saving{}, err
		}
	}
	return h.saving(ctx, f, w, 1)
}

// saving is what is kept of a variant, of which made were made just now.
func (h *Handler) saving(ctx context.Context, f original.File, w wanted, made int) (Saving, error) {
	m, o, err := h.variants.find(ctx, f, w.id)
	if err != nil {
		return Saving{}, err
	}
	_ = o.Close() // read only
	return m.saving(made), nil
}

// saving of one variant.
func (m *meta) saving(made int) Saving {
	s := Saving{Made: made, Kept: 1 - made, Bytes: m.Bytes, Of: m.Size}
	if m.Original {
		s.Original, s.Bytes = 1, m.Size
	}
	return s
}

// Inventory is what a store of variants holds.
type Inventory struct {
	Originals int               `json:"originals"` // distinct ones
	Formats   map[string]Saving `json:"formats"`
	Bytes     int64             `json:"bytes"`
	Scopes    map[string]int    `json:"scopes"` // variants, by whose originals they were made of
}

// ReadInventory looks at every variant in a store.
func ReadInventory(ctx context.Context, s store.Store) (Inventory, error) {
	inv := Inventory{Formats: map[string]Saving{}, Scopes: map[string]int{}}
	w, ok := s.(walker)
	if !ok {
		return inv, errNoList
	}
	seen := map[string]bool{}
	err := w.Walk(ctx, func(_ string, head []byte, size int64) error {
		var m meta
		if json.Unmarshal(head, &m) != nil {
			return nil
		}
		seen[m.Scope+"\x00"+m.Source] = true
		inv.Scopes[m.Scope]++
		one, all := m.saving(0), inv.Formats[m.Format]
		all.Kept, all.Original = all.Kept+1, all.Original+one.Original
		all.Bytes, all.Of = all.Bytes+one.Bytes, all.Of+one.Of
		inv.Formats[m.Format] = all
		inv.Bytes += size
		return nil
	})
	inv.Originals = len(seen)
	return inv, err
}

// Stats of a handler, as `millrace images stats` shows them.
type Stats struct {
	Level   string            `json:"level"`   // of the engine
	Formats map[string]string `json:"formats"` // and who writes them
	// Costs are the milliseconds a megapixel that were measured here, by what
	// is converted to what.
	Costs           map[string]float64 `json:"costs"`
	Running         int                `json:"running"`
	Waiting         int                `json:"waiting"`
	Workers         int                `json:"workers"`      // processes now
	WorkerBytes     int64              `json:"worker_bytes"` // their resident memory
	Converted       uint64             `json:"converted"`
	Failed          uint64             `json:"failed"`
	Shed            uint64             `json:"shed"`
	Kept            Inventory          `json:"kept"`
	Limit           int64              `json:"limit"` // of the folder, bytes
	Folder          string             `json:"folder"`
	BytesIn         uint64             `json:"bytes_in"` // of originals converted since the start
	BytesOut        uint64             `json:"bytes_out"`
	CPUMilliseconds uint64             `json:"cpu_ms"`
}

// Stats looks at everything, the store included.
func (h *Handler) Stats(ctx context.Context) (Stats, error) {
	q, w := h.engine.Stats()
	can := h.Abilities()
	s := Stats{
		Level: can.Level, Formats: map[string]string{}, Costs: map[string]float64{},
		Running: q.Running, Waiting: q.Waiting, Workers: w.Running + w.Idle, WorkerBytes: w.RSS,
		Converted: q.Done, Failed: q.Failed, Shed: q.Shed,
		BytesIn: h.meters.BytesIn.Load(), BytesOut: h.meters.BytesOut.Load(), CPUMilliseconds: h.meters.CPU.Load() / 1e6,
		Limit: h.variants.local.Stats().Limit,
	}
	for f, a := range can.Formats {
		s.Formats[string(f)] = a.By
	}
	for class, ms := range q.Costs {
		s.Costs[string(class)] = ms
	}
	s.Folder = h.Folder()
	var err error
	s.Kept, err = ReadInventory(ctx, h.variants.local)
	return s, err
}

// Measure sets the gauges.
func (h *Handler) Measure() {
	q, w := h.engine.Stats()
	kept := h.variants.local.Stats()
	m := h.meters
	m.Waiting.Set(int64(q.Waiting))
	m.Running.Set(int64(q.Running))
	m.Memory.Set(q.Memory)
	m.Workers.Set(int64(w.Running + w.Idle))
	m.WorkerBytes.Set(w.RSS)
	m.Crashed.Set(int64(w.Crashed))
	m.Variants.Set(kept.Objects)
	m.VariantBytes.Set(kept.Bytes)
	var encoders []meter.Encoder
	for f, a := range h.Abilities().Formats {
		encoders = append(encoders, meter.Encoder{Format: string(f), Level: a.Level, By: a.By})
	}
	m.Encoders.Store(&encoders)
}
