package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"millrace/images/convert"
	"millrace/images/queue"
	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/wire/send"
	"millrace/static/original"
	"millrace/store"
)

const (
	// statusHeader says what was sent and, for an original, why.
	statusHeader = "Millrace-Image"
	// interimSeconds is how long an original may be used in the place of a
	// variant that is being made: on this page; for the next the browser asks again.
	interimSeconds = 5
)

// choice is what a request is answered with.
type choice struct {
	answer  *send.Answer // of a variant; nil: the original
	label   string       // of the variant, or the reason for the original
	interim bool         // soon there may be something better: not for the lane
	version lane.Version // invalidated when another choice may be better
	used    *atomic.Bool // the record's
	refused error        // why what is asked for cannot be had of this image; nil: it can
}

func interim(reason string) choice { return choice{label: reason, interim: true} }

// done gives back what the choice held.
func (c *choice) done() {
	if c.answer != nil && c.answer.File != nil {
		c.answer.File.Release()
	}
}

// choose finds the best answer for what is wanted, and orders what is missing.
// It waits for that if there is nothing else to send, and it is worth it.
func (h *Handler) choose(ctx context.Context, f original.File, all []wanted) choice {
	rec, before := h.table.record(f)
	h.discard(before)
	if rec == nil {
		return interim("new")
	}
	version := rec.gen.Now() // before anything is looked at
	if len(all) == 0 {
		return choice{label: "accept", version: version}
	}
	if f.Size > int64(h.options.MaxSize) {
		return choice{label: "large file", version: version}
	}
	s := h.survey(rec, all)
	if s.choice.answer == nil && slices.ContainsFunc(s.missing, func(w wanted) bool { return w.quick }) {
		reason := h.await(ctx, rec, s.missing)
		version = rec.gen.Now()
		s = h.survey(rec, all)
		if reason != "" && (len(s.missing) > 0 || s.choice.interim) { // else it is settled by now
			return interim(reason)
		}
	}
	for _, w := range s.missing {
		h.order(rec, w, background) // for the next visitors: it may be smaller still
	}
	if s.choice.answer == nil && len(s.missing) > 0 {
		return interim("converting")
	}
	s.choice.version, s.choice.used = version, rec.used
	return s.choice
}

// surveyed is the result of survey.
type surveyed struct {
	choice  choice
	missing []wanted // what is to be ordered, the best first
}

// survey looks at each variant that is wanted and picks, of those that the request weighs
// most, the smallest.
func (h *Handler) survey(rec *record, all []wanted) (s surveyed) {
	defer h.table.trim(rec) // without the record's lock
	rec.mu.Lock()
	defer rec.mu.Unlock()
	switch {
	case rec.gone:
		return surveyed{choice: interim("new")}
	case rec.refused != nil && !all[0].any:
		return surveyed{choice: choice{label: cause(rec.refused)}}
	}
	s.choice.label = "smaller"
	var best *variant
	var weight int // of the best
	usable := false
	for _, w := range all {
		if best != nil && w.weight < weight || w.optional && (usable || s.choice.refused != nil) {
			break
		}
		v := h.table.variant(rec, w)
		h.look(rec, v)
		usable = usable || v.state != failed
		switch v.state {
		case unknown: // the store cannot be asked now
			s.choice.interim, s.choice.label = true, "store"
		case missing, ordered: // that may be worth to be waited for, too
			s.missing = append(s.missing, w)
		case failed:
			s.choice.interim, s.choice.label = s.choice.interim || v.interim, cause(v.err)
			if errors.Is(v.err, convert.ErrOutside) || errors.Is(v.err, convert.ErrSVG) {
				s.choice.refused = v.err
			}
		case ready:
			if best == nil || v.meta.Bytes < best.meta.Bytes {
				best, weight = v, w.weight
			}
		}
	}
	if best == nil {
		return s
	}
	if f := best.answer.File; f == nil || f.Retain() { // cannot fail: the record's own reference is held under its lock
		s.choice.label, s.choice.answer = best.meta.Format, best.answer
	}
	return s
}

// look updates what is known of a variant, whose record is locked. A variant that is
// ready has its answer afterwards.
func (h *Handler) look(rec *record, v *variant) {
	v.expire()
	h.ended(rec, v)
	if v.state == ready && v.answer == nil {
		v.state = unknown // the store may have evicted it meanwhile
	}
	if v.state == unknown {
		h.load(rec, v)
	}
}

// ended finds out how an order ended of which the record was not notified: the queue
// gave it up, or it was made for another record of the same file.
func (h *Handler) ended(rec *record, v *variant) {
	if v.state != ordered {
		return
	}
	select {
	case <-v.ticket.Done():
	default:
		return
	}
	switch err := v.ticket.Err(); {
	case err == nil:
		v.state = unknown
	case errors.Is(err, queue.ErrFull):
		v.postpone(err)
	case errors.Is(err, queue.ErrPanicked):
		h.fail(rec, v, err)
	default:
		v.state = missing
	}
	v.ticket = nil
}

// errVanished: what was made is not there any more, so to make it again is in vain.
var errVanished = fmt.Errorf("%w: it has dropped what was just kept", store.ErrFull)

// load asks the store for a variant; the record's lock is held.
func (h *Handler) load(rec *record, v *variant) {
	m, o, err := h.variants.find(h.closing, rec.file, v.wanted.id)
	switch {
	case err == nil && m.Original:
		_ = o.Close() // read only
		v.state, v.meta = smaller, m
		return
	case err == nil:
		v.state, v.meta = ready, m
		err = h.table.hold(rec, v, o, h.vary)
	}
	switch {
	case err == nil:
	case !errors.Is(err, store.ErrNotFound):
		v.state = unknown
	case time.Since(v.made) < failedFor:
		h.fail(rec, v, errVanished)
	default:
		v.state = missing
	}
}

// await orders the best variant that is quick to make, and waits for it if it is
// predicted to be there in time. It returns the reason why it did not wait; "" means
// that the caller should survey again.
func (h *Handler) await(ctx context.Context, rec *record, all []wanted) (reason string) {
	quick := all[slices.IndexFunc(all, func(w wanted) bool { return w.quick })]
	wait := cmp.Or(quick.wait, h.options.Wait)
	o := h.order(rec, quick, urgent)
	if o.err != nil {
		return cause(o.err)
	}
	if o.ticket == nil {
		return ""
	}
	for _, w := range all {
		if !w.quick {
			h.order(rec, w, background) // what takes longer comes later
		}
	}
	if wait < 0 || o.predicted > wait {
		return "converting"
	}
	began := time.Now()
	step := trace.Begin(ctx, trace.Convert)
	defer func() { step.End(quick.id, nil) }()
	select {
	case <-o.ticket.Done():
		h.meters.Waited.Observe(0, time.Since(began))
		return ""
	case <-time.After(wait):
		return "slow"
	case <-ctx.Done():
		return "gone"
	}
}
