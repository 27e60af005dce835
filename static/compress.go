package static

import (
	"io"
	"time"

	"millrace/internal/compress"
	"millrace/internal/dictionary"
	"millrace/internal/negotiate"
	"millrace/internal/send"
)

const (
	// compressQueue bounds the files that wait for compression. What finds no
	// place is tried again by the sweep.
	compressQueue = 256
	// encoderRest is how long the encoders are kept after the last file.
	encoderRest = 2 * time.Second
)

// compressJob is a snapshot to compress.
type compressJob struct {
	entry    *entry
	snapshot *snapshot
	with     *dictionary.Ask // nil: with no dictionary
}

// wantCompressed queues a snapshot for compression, once. One that is still
// racy is about to be read again, and then has its turn.
func (h *Handler) wantCompressed(e *entry, s *snapshot) {
	if s == nil || s.shut || !s.compressible && s.dictionary == 0 || s.racy && !h.trees.fixed() || !s.queued.CompareAndSwap(false, true) {
		return
	}
	select {
	case h.compress <- compressJob{entry: e, snapshot: s}:
	default:
		s.queued.Store(false)
	}
}

// compressLoop is the one worker: compressing must never take more than one
// core from serving. It runs until Close.
func (h *Handler) compressLoop() {
	var tools compress.Tools
	h.oldVersions()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-h.closing:
			return
		case job := <-h.compress:
			if job.with != nil {
				h.compressVersion(job, &tools)
			} else {
				h.compressOne(job, &tools)
			}
			rest.Reset(encoderRest)
		case <-rest.C:
			tools.Rest()
		}
	}
}

// compressOne makes all encodings of a file and publishes those that pay. A
// snapshot of which none does stays marked, so that it is not tried again.
func (h *Handler) compressOne(job compressJob, tools *compress.Tools) {
	s := job.snapshot
	identity := s.answers[negotiate.Identity]
	if !s.valid() {
		return
	}
	h.keepVersion(s)
	if !s.compressible {
		return
	}
	if !h.table.memory.Fits(identity.Size) {
		s.queued.Store(false) // evicting one to keep another would never end
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
		h.publish(job.entry, s, func(next *snapshot) { h.addEncodings(next, made) })
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

// publish replaces a snapshot by one that has more encodings. The lane's
// answers fall, so that the next request gets the smaller one.
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
