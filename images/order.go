package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/images/queue"
	"millrace/images/worker"
	"millrace/internal/original"
	"millrace/store"
)

// How urgent an order is.
const (
	urgent = queue.Urgent
	behind = queue.Behind
)

// headBytes is how much of a file is read at first to learn its size and kind.
// Profiles and thumbnails may stand before that; then the whole file is read.
const headBytes = 128 << 10

// order is what became of one.
type order struct {
	ticket    *queue.Ticket // nil: it will not be made now
	reason    string        // why not
	predicted time.Duration // until it is done
}

// order has a variant made, unless that is under way.
func (h *Handler) order(rec *record, w wanted, p queue.Priority) order {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	v := h.table.variant(rec, w.id)
	switch {
	case v.state != missing && v.state != ordered:
		return order{reason: "converting"} // somebody has settled it meanwhile: the next request sees
	case !h.inspect(rec):
		return order{reason: rec.refused}
	}
	j := h.job(rec, w)
	o := order{}
	known := false
	if o.predicted, known = h.engine.queue.Predict(j); !known {
		o.predicted = guess(w, j.Megapixels)
	}
	j.Priority = p
	if p == urgent && o.predicted > h.options.Wait {
		j.Priority = behind // nobody will wait for it
	}
	ticket, err := h.engine.queue.Submit(j)
	switch {
	case errors.Is(err, queue.ErrTooBig):
		h.fail(rec, w, v, "memory", err)
		return order{reason: "memory"}
	case err != nil:
		h.meters.Shed.Add(0, 1)
		return order{reason: "busy"}
	}
	v.state, v.ticket, o.ticket = ordered, ticket, ticket
	return o
}

// guess is the time for a first conversion, as measured on a machine of two
// cores: milliseconds a megapixel, and the start of a worker.
func guess(w wanted, megapixels float64) time.Duration {
	perMegapixel := 60.0
	switch {
	case w.Format == codec.AVIF && w.level != "tools":
		perMegapixel = 900
	case w.Format == codec.AVIF:
		perMegapixel = 80
	case w.level != "tools":
		perMegapixel = 230
	}
	return time.Duration((50 + perMegapixel*megapixels) * float64(time.Millisecond))
}

// job is the conversion of a record's file; its lock is held.
func (h *Handler) job(rec *record, w wanted) queue.Job {
	f, info := rec.file, *rec.info
	effort := "fast"
	if w.spec.Effort == codec.Best {
		effort = "best"
	}
	k := key(h.keep.scope, f, w.id)
	return queue.Job{
		Key:        k + "\x00" + effort,
		Class:      queue.Class(fmt.Sprintf("%s>%s %s %s", info.Format, w.Format, effort, w.level)),
		Megapixels: info.Megapixels() * float64(max(1, info.Frames)),
		Memory:     convert.Memory(info, w.spec, w.level),
		Run: func(ctx context.Context, urgent bool) (time.Duration, error) {
			return h.run(ctx, rec, f, w, urgent)
		},
	}
}

// inspect reads the headers of a record's file once, and reports whether it may
// be converted; the record's lock is held.
func (h *Handler) inspect(rec *record) bool {
	if rec.refused != "" {
		return false
	}
	if rec.info != nil {
		return true
	}
	info, err := h.readHeader(rec.file)
	if err == nil {
		err = info.Check(h.options.limits())
	}
	if err != nil {
		rec.refused = cause(err)
		rec.gen.Void()
		h.meters.Failed.Add(rec.refused)
		h.log.Warn("a picture is served as it is: it cannot be converted", "file", rec.name, "err", err)
		return false
	}
	info.ICC = nil // the worker reads it again
	rec.info = &info
	return true
}

func (h *Handler) readHeader(f original.File) (header.Info, error) {
	r, err := f.Open()
	if err != nil {
		return header.Info{}, fmt.Errorf("opening it: %w", err)
	}
	defer r.Close()
	head, err := io.ReadAll(io.LimitReader(r, headBytes))
	if err != nil {
		return header.Info{}, fmt.Errorf("reading it: %w", err)
	}
	info, err := header.Read(head)
	whole := f.Size <= headBytes || info.Format != header.GIF && err == nil // a GIF's frames are counted
	if whole || f.Size > int64(h.options.MaxSize) {
		return info, err
	}
	rest, err := io.ReadAll(io.LimitReader(r, int64(h.options.MaxSize)-headBytes))
	if err != nil {
		return header.Info{}, fmt.Errorf("reading it: %w", err)
	}
	return header.Read(append(head, rest...))
}

// cause names an error for metrics and the status header.
func cause(err error) string {
	switch {
	case errors.Is(err, header.ErrUnknown):
		return "no picture"
	case errors.Is(err, header.ErrTooLarge):
		return "too large"
	case errors.Is(err, header.ErrBroken):
		return "broken"
	case errors.Is(err, worker.ErrCrashed):
		return "crashed"
	case errors.Is(err, codec.ErrUnsupported):
		return "unsupported"
	case errors.Is(err, codec.ErrFailed):
		return "encoder"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrDown):
		return "store"
	}
	return "failed"
}

// errChanged: the original changed while it was converted.
var errChanged = errors.New("the original has changed meanwhile")

// run is the queue's job. It returns what counts for the prediction.
func (h *Handler) run(ctx context.Context, rec *record, f original.File, w wanted, urgent bool) (time.Duration, error) {
	if err := h.closing.Err(); err != nil {
		h.settle(rec, f, w, missing)
		return 0, err
	}
	if h.keep.fetch(ctx, f, w.id) {
		h.meters.Converted.Add("shared")
		h.settle(rec, f, w, unknown)
		return 0, nil
	}
	r, err := h.convert(ctx, f, w, urgent)
	took := time.Duration(0)
	switch {
	case err == nil:
		took = r.Wall
		if err = h.keep.save(ctx, f, w.id, newMeta(f, w, r), r.Data); err == nil {
			h.settle(rec, f, w, unknown) // the next look loads it
			return took, nil
		}
	case errors.Is(err, convert.ErrNoGain):
		h.meters.NoGain.Add(0, 1)
		if err = h.keep.save(ctx, f, w.id, newMeta(f, w, nil), nil); err == nil {
			h.settle(rec, f, w, unknown)
			return 0, nil
		}
	}
	switch {
	case h.closing.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, errChanged):
		h.settle(rec, f, w, missing)
	default:
		rec.mu.Lock()
		if same(rec.file, f) {
			h.fail(rec, w, h.table.variant(rec, w.id), cause(err), err)
		}
		rec.mu.Unlock()
	}
	return took, err
}

// convert has a worker convert a file, which must be the same afterwards.
func (h *Handler) convert(ctx context.Context, f original.File, w wanted, urgent bool) (*convert.Result, error) {
	src, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: opening it: %w", errChanged, err)
	}
	defer src.Close()
	r, err := h.engine.converter.Convert(ctx, worker.Source{Reader: io.LimitReader(src, f.Size), Size: f.Size}, w.spec, !urgent)
	if now, lerr := h.source.Lookup(f.Name); lerr != nil || !same(now, f) {
		return nil, errChanged
	}
	if err != nil {
		return nil, err
	}
	h.meters.Converted.Add(string(w.Format) + " " + r.Level)
	h.meters.BytesIn.Add(0, uint64(f.Size))
	h.meters.BytesOut.Add(0, uint64(len(r.Data)))
	h.meters.CPU.Add(0, uint64(r.CPU))
	h.meters.Took.Observe(0, r.Wall)
	return r, nil
}

// settle notes what became of an order, if it is still about the same file.
func (h *Handler) settle(rec *record, f original.File, w wanted, s state) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if !same(rec.file, f) {
		return
	}
	v := h.table.variant(rec, w.id)
	h.table.release(v)
	v.state, v.ticket = s, nil
	rec.gen.Void()
}

// fail remembers that a variant cannot be made; the record's lock is held.
func (h *Handler) fail(rec *record, w wanted, v *variant, why string, err error) {
	v.state, v.until, v.why, v.ticket = failed, time.Now().Add(failedFor), why, nil
	rec.gen.Void()
	h.meters.Failed.Add(why)
	level := h.log.Warn
	if errors.Is(err, codec.ErrUnsupported) {
		level = h.log.Debug // nothing is wrong with the file
	}
	level("a picture is served as it is: it was not converted", "file", rec.name, "format", w.Format, "err", err)
}

// improve orders the smaller one that takes more effort, once; the record's
// lock is held.
func (h *Handler) improve(rec *record, w wanted, v *variant) {
	if h.options.NoBest || v.better || v.meta.Best || v.state != ready || w.Format == codec.AVIF && w.level != "tools" || !h.inspect(rec) {
		return
	}
	w.spec.Effort = codec.Best
	f, now := rec.file, v.meta
	j := h.job(rec, w)
	j.Priority = queue.Idle
	j.Run = func(ctx context.Context, _ bool) (time.Duration, error) { return h.runBest(ctx, rec, f, w, now) }
	_, err := h.engine.queue.Submit(j)
	v.better = err == nil
}

// runBest is the queue's job for it.
func (h *Handler) runBest(ctx context.Context, rec *record, f original.File, w wanted, now meta) (time.Duration, error) {
	if err := h.closing.Err(); err != nil {
		return 0, err
	}
	r, err := h.convert(ctx, f, w, false)
	switch {
	case err == nil && int64(len(r.Data)) < now.Bytes:
		m := newMeta(f, w, r)
		m.Best = true
		if err = h.keep.save(ctx, f, w.id, m, r.Data); err == nil {
			h.settle(rec, f, w, unknown)
		}
		return r.Wall, err
	case err == nil || errors.Is(err, convert.ErrNoGain):
		return 0, h.markBest(ctx, f, w, now)
	}
	return 0, err // what there is stays
}

// markBest notes that more effort does not make the variant smaller.
func (h *Handler) markBest(ctx context.Context, f original.File, w wanted, m meta) error {
	_, o, err := h.keep.find(ctx, f, w.id)
	if err != nil {
		return err
	}
	body := make([]byte, o.Size)
	n, err := o.Body.ReadAt(body, 0)
	_ = o.Close() // read only
	if int64(n) != m.Bytes {
		return err
	}
	m.Best = true
	return h.keep.save(ctx, f, w.id, m, body)
}
