package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"millrace/images/codec"
	"millrace/images/container"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/images/icc"
	"millrace/images/jpeg"
	"millrace/images/queue"
	"millrace/images/worker"
	"millrace/static/original"
	"millrace/store"
)

// How urgent an order is.
const (
	urgent     = queue.Urgent
	background = queue.Background
)

// headBytes is how much of a file is read at first to learn its size and kind.
// Profiles and thumbnails may stand before that; then the whole file is read.
const headBytes = 128 << 10

// order is the outcome of an order.
type order struct {
	ticket    *queue.Ticket // nil: it will not be made now
	err       error         // why not; nil: somebody has settled it meanwhile
	predicted time.Duration // until it is done
}

// order has a variant made, unless that is under way.
func (h *Handler) order(rec *record, w wanted, p queue.Priority) (o order) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.gone {
		return order{}
	}
	v := h.table.variant(rec, w)
	if v.state == unknown {
		h.look(rec, v) // another request's trim has forgotten it since the survey
	}
	if v.state != missing && v.state != ordered {
		return order{}
	}
	if !w.any {
		if err := h.inspect(rec); err != nil {
			if rec.refused == nil {
				v.postpone(err)
			}
			return order{err: err}
		}
	}
	j := h.job(rec, w)
	predicted, known := h.engine.queue.Predict(j)
	switch {
	case known:
	case j.Guess > 0:
		predicted = j.Guess
	default:
		predicted = guess(w, j.Megapixels)
	}
	o.predicted = predicted
	j.Priority = p
	if p == urgent && o.predicted > cmp.Or(w.wait, h.options.Wait) {
		j.Priority = background // nobody will wait for it
	}
	switch o.ticket, o.err = h.engine.queue.Submit(j); {
	case o.err == nil:
		v.state, v.ticket = ordered, o.ticket
	case errors.Is(o.err, queue.ErrTooBig), errors.Is(o.err, queue.ErrTooLong):
		h.fail(rec, v, o.err)
	default:
		h.meters.Shed.Add(0, 1)
		v.postpone(o.err)
	}
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
	case w.Format != codec.WebP: // JPEG and PNG
		perMegapixel = 90
	case w.level != "tools":
		perMegapixel = 230
	}
	return time.Duration((50 + perMegapixel*megapixels) * float64(time.Millisecond))
}

// guessAnimation is guess for all frames of an animation, measured with ones
// like films; those like drawings take from all to a quarter of it. gif2webp
// looks for the smallest frames, which the embedded encoder does not.
func guessAnimation(w wanted, megapixels float64) time.Duration {
	best := w.spec.Effort == codec.Best
	perMegapixel := 400.0
	switch {
	case w.level == "tools" && best:
		perMegapixel = 1600
	case w.level == "tools":
		perMegapixel = 900
	case best:
		perMegapixel = 1300
	}
	return time.Duration(perMegapixel * megapixels * float64(time.Millisecond))
}

// job is the conversion of a record's file; its lock is held.
func (h *Handler) job(rec *record, w wanted) queue.Job {
	f, info := rec.file, header.Info{}
	if rec.info != nil {
		info = *rec.info
	}
	effort := "fast"
	if w.spec.Effort == codec.Best {
		effort = "best"
	}
	k := key(h.variants.scope, f, w.id)
	w.memory = convert.Memory(info, w.spec, w.level)
	kind, megapixels, guess := string(info.Format), info.Megapixels(), time.Duration(0)
	if w.spec.MaxBytes > 0 {
		effort += " searched"
	}
	if info.Frames > 1 {
		kind += " animation"
		megapixels *= float64(info.Frames)
		if w.Format == codec.WebP { // all others are refused, or of one frame
			w.level = convert.AnimationLevel(info, w.spec, w.level)
			guess = guessAnimation(w, megapixels)
		}
	}
	return queue.Job{
		Key:        k + "\x00" + effort,
		Class:      queue.Class(fmt.Sprintf("%s>%s %s %s", kind, w.Format, effort, w.level)),
		Megapixels: megapixels,
		Memory:     w.memory,
		Guess:      guess,
		Run: func(ctx context.Context, urgent bool) (time.Duration, error) {
			return h.run(ctx, rec, f, w, urgent)
		},
	}
}

// inspect reads the headers of a record's file once, and says why it may not be
// converted; the record's lock is held. What cannot be read now may be later.
func (h *Handler) inspect(rec *record) error {
	if rec.refused != nil || rec.info != nil {
		return rec.refused
	}
	info, err := h.readHeader(rec.file)
	if err == nil {
		err = info.Check(h.options.limits())
	}
	switch {
	case err == nil:
		info.ICC = nil // the worker reads it again
		rec.info = &info
		return nil
	case errors.Is(err, errUnreadable):
		h.meters.Failed.Add(cause(err))
		return err
	}
	rec.refused = err
	rec.gen.Invalidate()
	h.meters.Failed.Add(cause(err))
	level := slog.LevelWarn
	if cause(err) == "unsupported" { // then nothing is wrong with the file
		level = slog.LevelDebug
	}
	h.log.Log(h.closing, level, "an image is served as it is: it cannot be converted", "file", rec.name, "err", err)
	return err
}

func (h *Handler) readHeader(f original.File) (header.Info, error) {
	r, err := f.Open()
	if err != nil {
		return header.Info{}, fmt.Errorf("%w: opening it: %w", errUnreadable, err)
	}
	defer r.Close()
	head, err := io.ReadAll(io.LimitReader(r, headBytes))
	if err != nil {
		return header.Info{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	info, err := header.Read(head)
	// A GIF's frames are counted; a profile that looks broken may only be cut off.
	enough := info.Format != header.GIF && !info.BrokenICC && err == nil
	if enough || f.Size <= headBytes || f.Size > int64(h.options.MaxSize) {
		return info, err
	}
	h.whole.Lock()
	defer h.whole.Unlock()
	file := make([]byte, f.Size)
	n, err := io.ReadFull(r, file[copy(file, head):])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return header.Info{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return header.Read(file[:len(head)+n])
}

// causes are the names of errors for metrics and the status header. The first
// that fits counts.
func causes() []struct {
	name string
	errs []error
} {
	return []struct {
		name string
		errs []error
	}{
		{"unreadable", []error{errUnreadable}},
		{"busy", []error{queue.ErrFull, queue.ErrClosed, worker.ErrNotStarted}},
		{"memory", []error{queue.ErrTooBig, convert.ErrMemory}},
		{"not an image", []error{header.ErrUnknown}},
		{"outside", []error{convert.ErrOutside}},
		{"svg", []error{convert.ErrSVG}},
		{"too large", []error{header.ErrTooLarge, jpeg.ErrTooLarge}},
		{"unsupported", []error{header.ErrUnsupported, codec.ErrUnsupported, convert.ErrUnsupported, jpeg.ErrUnsupported, icc.ErrUnsupported}},
		{"broken", []error{header.ErrBroken, jpeg.ErrFormat, icc.ErrBroken}},
		{"crashed", []error{worker.ErrCrashed}},
		{"encoder", []error{codec.ErrFailed, container.ErrFormat}},
		{"timeout", []error{queue.ErrTooLong, context.DeadlineExceeded}},
		{"store", []error{store.ErrFull, store.ErrDown}},
	}
}

// cause names an error.
func cause(err error) string {
	for _, c := range causes() {
		for _, e := range c.errs {
			if errors.Is(err, e) {
				return c.name
			}
		}
	}
	return "failed"
}

var (
	// errChanged: the original changed while it was converted.
	errChanged = errors.New("the original has changed meanwhile")
	// errUnreadable: the original could not be read at this moment.
	errUnreadable = errors.New("the original cannot be read")
)

// run is the queue's job. It returns what counts for the prediction.
func (h *Handler) run(ctx context.Context, rec *record, f original.File, w wanted, urgent bool) (time.Duration, error) {
	if err := h.closing.Err(); err != nil {
		h.settle(rec, f, w, missing)
		return 0, err
	}
	if h.variants.fetch(ctx, f, w.id) {
		h.meters.Converted.Add("shared")
		h.settle(rec, f, w, unknown)
		return 0, nil
	}
	r, err := (*convert.Result)(nil), h.variants.refusal()
	if err == nil {
		r, err = h.convert(ctx, f, w, urgent)
	}
	took := time.Duration(0)
	switch {
	case err == nil:
		took = r.Wall
		if err = h.variants.save(ctx, f, w.id, newMeta(f, w, r), r.Data); err == nil {
			h.settle(rec, f, w, unknown) // the next look loads it
			return took, nil
		}
	case errors.Is(err, convert.ErrNoGain):
		h.meters.NoGain.Add(0, 1)
		if err = h.variants.save(ctx, f, w.id, newMeta(f, w, nil), nil); err == nil {
			h.settle(rec, f, w, unknown)
			return 0, nil
		}
	}
	switch {
	case h.closing.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, errChanged):
		h.settle(rec, f, w, missing)
	default:
		rec.mu.Lock()
		if !rec.gone && same(rec.file, f) { // else it is about another file by now
			h.note(rec, h.table.variant(rec, w), err)
		}
		rec.mu.Unlock()
	}
	return took, err
}

// note keeps the reason why a conversion failed; the record is locked.
func (h *Handler) note(rec *record, v *variant, err error) {
	started := !errors.Is(err, worker.ErrNotStarted)
	if started && !refusedForNow(err) {
		h.fail(rec, v, err)
		return
	}
	if h.variants.note(err) {
		h.log.Warn("images are served as they are: what is converted cannot be kept", "err", err)
	}
	if started { // else no conversion has failed
		h.meters.Failed.Add(cause(err))
	}
	v.postpone(err) // nothing is wrong with the file
	rec.gen.Invalidate()
}

// convert has a worker convert a file, which must be the same afterwards.
func (h *Handler) convert(ctx context.Context, f original.File, w wanted, urgent bool) (*convert.Result, error) {
	src, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: opening it: %w", errChanged, err)
	}
	defer src.Close()
	r, err := h.engine.converter.Convert(ctx, worker.Source{Reader: io.LimitReader(src, f.Size), Size: f.Size, Memory: w.memory}, w.spec, !urgent)
	if now, lerr := h.source.Lookup(f.Name); lerr != nil || !same(now, f) {
		return nil, errChanged
	}
	if err != nil {
		return nil, err
	}
	h.meters.Converted.Add(string(r.Format) + " " + r.Level)
	h.meters.BytesIn.Add(0, uint64(f.Size))
	h.meters.BytesOut.Add(0, uint64(len(r.Data)))
	h.meters.CPU.Add(0, uint64(r.CPU))
	h.meters.Took.Observe(0, r.Wall)
	return r, nil
}

// settle keeps the outcome of an order, if the record is still about the same file.
func (h *Handler) settle(rec *record, f original.File, w wanted, s state) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.gone || !same(rec.file, f) {
		return
	}
	v := h.table.variant(rec, w)
	h.table.release(v)
	v.state, v.ticket = s, nil
	if s == unknown { // it was made: the next look loads it
		v.made, v.failures = time.Now(), 0
	}
	rec.gen.Invalidate()
}

// fail notes that a variant cannot be made, and logs it once; the record is locked.
func (h *Handler) fail(rec *record, v *variant, err error) {
	v.state, v.err, v.ticket, v.interim = failed, err, nil, false
	v.until = time.Now().Add(min(failedFor<<min(v.failures, 10), maxFailedFor))
	v.failures++
	rec.gen.Invalidate()
	h.meters.Failed.Add(cause(err))
	if cause(err) == "memory" { // one setting mends it for all of them
		h.tooBig.Do(func() {
			h.log.Warn("images are served as they are, or in another format: they need more than images.memory; further ones are counted, not logged",
				"file", rec.name, "format", v.wanted.Format, "err", err)
		})
		return
	}
	level := slog.LevelWarn
	if v.failures > 1 || cause(err) == "unsupported" || cause(err) == "outside" { // then nothing is wrong with the file
		level = slog.LevelDebug
	}
	h.log.Log(h.closing, level, "an image is served as it is: it was not converted", "file", rec.name, "format", v.wanted.Format, "err", err)
}

// improve orders, once, the smaller variant that takes more effort; the record is
// locked.
func (h *Handler) improve(rec *record, v *variant) {
	w := v.wanted
	if w.Format != codec.WebP && w.Format != codec.AVIF || w.spec.MaxBytes > 0 {
		return
	}
	if h.options.NoBest || v.better || v.meta.Best || v.state != ready || w.Format == codec.AVIF && w.level != "tools" ||
		h.room == 0 {
		return
	}
	v.better = true // or it never will be, unless the queue says so
	if h.inspect(rec) != nil {
		return
	}
	w.spec.Effort = codec.Best
	f, now := rec.file, v.meta
	j := h.job(rec, w)
	j.Priority, w.memory = queue.Idle, j.Memory
	j.Run = func(ctx context.Context, _ bool) (time.Duration, error) { return h.runBest(ctx, rec, f, w, now) }
	switch t, err := h.engine.queue.Submit(j); {
	case err == nil:
		h.room--
		h.improving = append(h.improving, improvement{rec, v, t})
	case errors.Is(err, queue.ErrFull):
		h.room, v.better = 0, false
	}
}

// improvement is an order of a better one.
type improvement struct {
	rec    *record
	v      *variant
	ticket *queue.Ticket
}

// over reports whether it has ended. What the queue gave up is ordered again.
func (i improvement) over() bool {
	select {
	case <-i.ticket.Done():
	default:
		return false
	}
	if errors.Is(i.ticket.Err(), queue.ErrFull) {
		i.rec.mu.Lock()
		defer i.rec.mu.Unlock()
		i.v.better = false
	}
	return true
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
		if err = h.variants.save(ctx, f, w.id, m, r.Data); err == nil {
			h.settle(rec, f, w, unknown)
		}
		return r.Wall, err
	case err == nil || errors.Is(err, convert.ErrNoGain):
		return 0, h.markBest(ctx, f, w, now)
	}
	return 0, err // what there is stays
}

// markBest notes in the store that more effort does not make the variant smaller.
func (h *Handler) markBest(ctx context.Context, f original.File, w wanted, m meta) error {
	_, o, err := h.variants.find(ctx, f, w.id)
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
	return h.variants.save(ctx, f, w.id, m, body)
}
