package static

import (
	"io"

	"millrace/internal/wire/compress"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

// wantCompressed queues a snapshot for compression, once. A racy one is left out: it
// is about to be read again, and is queued then. In a crowded table most files are let
// go of before the next request for them, so only those are compressed that are asked for
// again and again.
func (h *Handler) wantCompressed(e *entry, s *snapshot) {
	if h.table.crowded() && e.uses.Load() < usesToCompress {
		return
	}
	if s == nil || s.shut || !s.compressible && s.dictionary == 0 || s.racy && !h.trees.fixed() || !s.queued.CompareAndSwap(false, true) {
		return
	}
	if !h.background.submit(h, func(tools *compress.Tools) { h.compress(e, s, tools) }) {
		s.queued.Store(false)
	}
}

// compressOne makes all encodings of a file and publishes those that pay. A
// snapshot of which none does stays marked, so that it is not tried again.
func (h *Handler) compressOne(e *entry, s *snapshot, tools *compress.Tools) {
	identity := s.answers[negotiate.Identity]
	if !s.valid() {
		return
	}
	h.keepVersion(s)
	if !s.compressible {
		return
	}
	if !h.table.memory.Fits(identity.Size) && e.uses.Load() < usesToCompress {
		s.queued.Store(false) // evicting one to keep another that is not asked for would never end
		return
	}
	plain, ok := plainBytes(identity)
	if !ok {
		return
	}
	var made [negotiate.Codings][]byte
	useful := false
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		packed, err := tools.Pack(c, compress.Best, plain, h.closing)
		if err != nil {
			return
		}
		if compress.Pays(len(plain), len(packed)) {
			made[c], useful = packed, true
		}
	}
	if useful {
		h.publish(e, s, func(next *snapshot) { h.addEncodings(next, made) })
	}
}

// plainBytes returns what is to be compressed.
func plainBytes(a *send.Answer) ([]byte, bool) {
	if a.File == nil {
		return a.Body, true
	}
	if !a.File.Retain() {
		return nil, false
	}
	defer a.File.Release()
	b := make([]byte, a.Size)
	_, err := io.ReadFull(a.File.Section(a.Base, a.Size), b)
	return b, err == nil
}

// publish replaces a snapshot by one that has more encodings. What the lane has of it
// becomes invalid, so that the next request gets the smaller one.
func (h *Handler) publish(e *entry, s *snapshot, add func(next *snapshot)) {
	e.loading.Lock()
	defer e.loading.Unlock()
	if e.snapshot.Load() != s || !s.valid() {
		return
	}
	e.gen.Invalidate()
	next := &snapshot{
		name: s.name, read: s.read, version: e.gen.Now(), found: s.found,
		answers: s.answers, available: s.available, vary: true,
		dictionary: s.dictionary, deltas: s.deltas, streamed: s.streamed,
	}
	next.queued.Store(true) // done
	next.dirs.Store(s.dirs.Load())
	add(next)
	// The new version is younger than the bytes. They are only right if the file
	// is still the same after it was taken, and nobody has said otherwise.
	if !h.trees.fixed() && !h.unchanged(e, next) || !next.read.Valid() {
		return
	}
	held, all := 0, true
	for _, a := range next.answers {
		if a != nil && a.File != nil {
			if all = a.File.Retain(); !all {
				break
			}
			held++
		}
	}
	next.checked.Store(s.checked.Load())
	if all && h.table.install(e, next) {
		return
	}
	for _, a := range next.answers {
		if a != nil && a.File != nil && held > 0 {
			a.File.Release()
			held--
		}
	}
}

// addEncodings adds what was made of a snapshot's content.
func (h *Handler) addEncodings(next *snapshot, made [negotiate.Codings][]byte) {
	identity := next.answers[negotiate.Identity]
	for c, body := range made {
		if body == nil {
			continue
		}
		coding := negotiate.Coding(c)
		next.answers[c] = h.finish(next, content{
			coding:   coding,
			size:     int64(len(body)),
			modified: identity.LastModified,
			tag:      contentTag(body),
			body:     body,
		})
		next.available = next.available.With(coding)
	}
}
