package images

import (
	"context"
	"net/http"
	"time"

	"millrace/internal/lane"
	"millrace/internal/original"
	"millrace/internal/send"
)

const (
	// statusHeader says what was sent and, for an original, why.
	statusHeader = "Millrace-Image"
	// passingCache is for originals in the place of a variant that is being
	// made: the browser may use it on this page, and asks again on the next.
	passingCache = "max-age=5"
	timeFormat   = http.TimeFormat
)

// choice is what a request is answered with.
type choice struct {
	answer  *send.Answer // of a variant; nil: the original
	label   string       // of the variant, or the reason for the original
	passing bool         // soon there will be something better: not for the lane
	mark    lane.Mark    // falls when the choice may be another
}

func passing(reason string) choice { return choice{label: reason, passing: true} }

// done gives back what the choice held.
func (c *choice) done() {
	if c.answer != nil && c.answer.File != nil {
		c.answer.File.Release()
	}
}

// choose finds the best answer for what is wanted, and orders what is missing.
// It waits for that if it is worth it.
func (h *Handler) choose(ctx context.Context, f original.File, all []wanted) choice {
	rec, before := h.table.record(f)
	h.dropPast(before)
	mark := rec.gen.Now() // before anything is looked at
	if len(all) == 0 {
		return choice{label: "accept", mark: mark}
	}
	if f.Size > int64(h.options.MaxSize) {
		return choice{label: "large file", mark: mark}
	}
	s := h.survey(ctx, rec, all)
	s.choice.mark = mark
	if len(s.missing) == 0 {
		return s.choice
	}
	first := s.missing[0]
	if s.choice.answer != nil || !first.quick && len(s.missing) == 1 {
		// There is something to send, or the only thing missing takes too long.
		for _, v := range s.missing {
			h.order(rec, v, behind)
		}
		if s.choice.answer == nil {
			s.choice.label, s.choice.passing = "converting", true
		}
		return s.choice
	}
	reason := h.await(ctx, rec, s.missing)
	if reason != "" {
		s.choice.done()
		return passing(reason)
	}
	mark = rec.gen.Now()
	s = h.survey(ctx, rec, all)
	s.choice.mark = mark
	if s.choice.answer == nil && len(s.missing) > 0 {
		s.choice.passing = true
	}
	return s.choice
}

// surveyed is what a survey has found.
type surveyed struct {
	choice  choice
	missing []wanted // what is to be ordered, the best first
}

// survey looks at each variant that is wanted and picks the smallest.
func (h *Handler) survey(ctx context.Context, rec *record, all []wanted) (s surveyed) {
	defer h.table.trim()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.refused != "" {
		return surveyed{choice: choice{label: rec.refused}}
	}
	s.choice.label = "smaller"
	var best *variant
	for _, w := range all {
		v := h.table.variant(rec, w.id)
		if v.state == unknown {
			h.load(ctx, rec, w, v)
		}
		switch v.state {
		case ordered:
			if v.givenUp() {
				v.state = missing
			} else {
				s.missing = append(s.missing, w) // perhaps it can be waited for
			}
		case failed:
			if time.Now().After(v.until) {
				v.state = missing
			} else if best == nil {
				s.choice.label = v.why
			}
		case ready:
			if (best == nil || v.meta.Bytes < best.meta.Bytes) && h.answer(ctx, rec, w, v) {
				best = v
			}
			h.improve(rec, w, v)
		}
		if v.state == missing {
			s.missing = append(s.missing, w)
		}
	}
	if best == nil {
		return s
	}
	s.choice.label, s.choice.answer = best.meta.Format, best.answer
	if f := best.answer.File; f != nil && !f.Retain() {
		s.choice.answer = nil // cannot be: the record's own reference is held under its lock
	}
	return s
}

// load asks the store for a variant; the record's lock is held.
func (h *Handler) load(ctx context.Context, rec *record, w wanted, v *variant) {
	m, o, err := h.keep.find(ctx, rec.file, w.id)
	if err != nil {
		if ctx.Err() == nil {
			v.state = missing
		}
		return
	}
	v.meta, v.state = m, ready
	if m.Original {
		v.state = smaller
		_ = o.Close() // read only
		return
	}
	if h.table.hold(rec, v, o, h.vary) != nil {
		v.state = missing
	}
}

// answer makes sure that a variant that is there has its answer.
func (h *Handler) answer(ctx context.Context, rec *record, w wanted, v *variant) bool {
	if v.answer == nil {
		v.state = unknown
		h.load(ctx, rec, w, v) // the store may have evicted it meanwhile
	}
	return v.answer != nil
}

// await orders the best variant that is quick to make, and waits for it if it
// is predicted to be there in time. It returns why not, empty when it is.
func (h *Handler) await(ctx context.Context, rec *record, all []wanted) (reason string) {
	quick := all[0]
	for _, w := range all {
		if w.quick {
			quick = w
			break
		}
	}
	wait := h.options.Wait
	o := h.order(rec, quick, urgent)
	if o.ticket == nil {
		return o.reason
	}
	for _, w := range all {
		if w.id != quick.id && !w.quick {
			h.order(rec, w, behind) // what takes longer comes later
		}
	}
	if wait < 0 || o.predicted > wait {
		return "converting"
	}
	began := time.Now()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-o.ticket.Done():
		h.meters.Waited.Observe(0, time.Since(began))
		return ""
	case <-timer.C:
		return "slow"
	case <-ctx.Done():
		return "gone"
	}
}
