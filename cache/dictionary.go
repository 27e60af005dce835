package cache

import (
	"slices"
	"sync"

	"millrace/cache/object"
	"millrace/internal/wire/compress"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/negotiate"
)

// maxDeltas bounds the dictionaries that one answer is compressed with.
const maxDeltas = 8

// dictionaries are answers that clients may have, and that others are compressed with
// for them (RFC 9842). Package fetch marks those that are for everybody.
type dictionaries struct {
	rules dictionary.Rules
	kept  dictionary.Kept

	mu     sync.Mutex
	queued map[queuedDelta]bool // at most packQueue and one
}

type queuedDelta struct {
	object *object.Object
	hash   dictionary.Hash
}

// of is the rule by which an answer is a dictionary, 0 for none.
func (d *dictionaries) of(o *object.Object, path string) int {
	if len(d.rules) == 0 {
		return 0
	}
	rule := d.rules.Of(path)
	if rule == 0 || o.Get(dictionary.Field) != d.rules.Match(rule, "") { // of other rules, from a disk
		return 0
	}
	return rule
}

// shortened returns the smallest form of an answer for a client that has another one
// as a dictionary; nil if there is none yet, or it saves nothing. known is false where
// the lane must not keep the form, of whose variants it has room for a few: the next
// such request may get another one, or the client has made the dictionary's hash up.
func (x *exchange) shortened(o *object.Object, rule int) (body []byte, coding string, known bool) {
	if len(x.r.Header[dictionary.Header]) == 0 {
		return nil, "", true
	}
	ask, ok := dictionary.Asked(x.r.Header)
	if !ok || x.personal || !x.h.dictionaries.kept.Has(rule, ask.Hash) {
		return nil, "", false
	}
	var deltas []object.Delta
	if p := o.Packed.Load(); p != nil {
		deltas = p.Deltas
	}
	for i := range deltas {
		if deltas[i].Hash != ask.Hash {
			continue
		}
		for c, b := range deltas[i].Bodies {
			if b != nil && ask.Accepts[c] && (body == nil || len(b) < len(body)) {
				body, coding = b, dictionary.Coding(c).String()
			}
		}
		return body, coding, true
	}
	if len(deltas) < maxDeltas {
		x.h.wantDelta(packing{key: x.key, object: o, rule: rule, with: ask.Hash})
	}
	return nil, "", false
}

// wantDelta queues an answer for compression with a dictionary.
func (h *Handler) wantDelta(k packing) {
	d, q := &h.dictionaries, queuedDelta{k.object, k.with}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queued[q] {
		return
	}
	select {
	case h.packer.queue <- k:
		if d.queued == nil {
			d.queued = map[queuedDelta]bool{}
		}
		d.queued[q] = true
	default: // tried again at the next request
	}
}

// wantKept queues an answer that clients get now, to be kept as a dictionary.
func (h *Handler) wantKept(o *object.Object, rule int) {
	if o.Listed.Load() || !o.Listed.CompareAndSwap(false, true) {
		return
	}
	select {
	case h.packer.queue <- packing{object: o, rule: rule}:
	default:
		o.Listed.Store(false)
	}
}

// packWith makes both forms of an answer with a dictionary, of which those are kept
// that are smaller than what the client would get without.
func (h *Handler) packWith(tools *compress.Tools, k packing) {
	d, o := &h.dictionaries, k.object
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.queued, queuedDelta{o, k.with})
	}()
	e := new(object.Encodings)
	least := len(o.Body)
	if p := o.Packed.Load(); p != nil {
		*e = *p
		for c := negotiate.Gzip; c < negotiate.Codings; c++ {
			if p.Bodies[c] != nil {
				least = min(least, len(p.Bodies[c]))
			}
		}
	}
	with := d.kept.Get(k.rule, k.with)
	if with == nil || len(e.Deltas) >= maxDeltas {
		return
	}
	made := object.Delta{Hash: k.with}
	for c := range dictionary.Codings {
		packed, err := dictionary.Pack(tools, c, with, o.Body, h.packer.done)
		if err != nil {
			return
		}
		if compress.Pays(least, len(packed)) {
			made.Bodies[c] = slices.Clip(packed)
		}
	}
	e.Deltas = append(slices.Clip(e.Deltas), made)
	o.Packed.Store(e)
	h.tiers.Swap(k.key, o, o)
}
