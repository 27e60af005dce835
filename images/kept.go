package images

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// Kept is a variant in the store of a handler, or a note there that the original is the
// smaller one.
type Kept struct {
	Original      string // its name
	OriginalBytes int64
	Format        string
	Width, Height int   // 0: as the original
	Bytes         int64 // 0 where the original is smaller
	Smaller       bool  // the original is
	Best          bool  // made with the most effort
	Made          time.Time
}

// errEnough ends a walk.
var errEnough = errors.New("there are enough")

// Kept returns variants whose original's name has part in it, those made or asked for last
// first, but not more than most; more: there are others.
func (h *Handler) Kept(ctx context.Context, part string, most int) (list []Kept, more bool, err error) {
	w, ok := h.variants.local.(walker)
	if !ok {
		return nil, false, nil
	}
	err = w.Walk(ctx, func(_ string, head []byte, _ int64) error {
		var m meta
		if json.Unmarshal(head, &m) != nil || m.Scope != h.variants.scope || !strings.Contains(m.Source, part) {
			return nil
		}
		if len(list) == most {
			return errEnough
		}
		list = append(list, Kept{
			Original: m.Source, OriginalBytes: m.Size, Format: m.Format, Width: m.Width, Height: m.Height,
			Bytes: m.Bytes, Smaller: m.Original, Best: m.Best, Made: time.Unix(m.Made, 0),
		})
		return nil
	})
	if errors.Is(err, errEnough) {
		return list, true, nil
	}
	return list, false, err
}

// Unmade is a variant that was asked for, and is not there.
type Unmade struct {
	Original      string
	OriginalBytes int64
	Format        string    // "": nothing is made of this original
	Cause         string    // a word, as in the field Millrace-Image
	Why           string    // "": it is being made
	Again         time.Time // when it is tried again, at the earliest; zero: not before the file changes
}

// Unmade returns what could not be made, or is not made yet, of the originals that were
// asked for last; part and most are as for Kept.
func (h *Handler) Unmade(part string, most int) (list []Unmade) {
	for _, rec := range h.table.all() {
		if len(list) >= most {
			break
		}
		if strings.Contains(rec.name, part) {
			list = append(list, h.unmade(rec)...)
		}
	}
	return list[:min(len(list), most)]
}

func (h *Handler) unmade(rec *record) (list []Unmade) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.gone {
		return nil
	}
	one := Unmade{Original: rec.name, OriginalBytes: rec.file.Size}
	if rec.refused != nil {
		one.Cause, one.Why = cause(rec.refused), rec.refused.Error()
		return []Unmade{one}
	}
	for _, v := range rec.variants {
		one.Format, one.Cause, one.Why, one.Again = string(v.wanted.Format), "", "", time.Time{}
		switch {
		case v.state == ordered:
			one.Cause = "converting"
		case v.state == failed && v.err != nil:
			one.Cause, one.Why, one.Again = cause(v.err), v.err.Error(), v.until
		default:
			continue
		}
		list = append(list, one)
	}
	return list
}

// Refusal says why variants cannot be kept now, nil if nothing is known against it.
func (h *Handler) Refusal() error { return h.variants.refusal() }

// Full reports whether the store has so little room left that variants push each other out.
func (h *Handler) Full() bool {
	s := h.variants.local.Stats()
	return s.Limit > 0 && s.Bytes > s.Limit/100*fullAt
}
