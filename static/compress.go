package static

import (
	"bytes"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/negotiate"
	"millrace/internal/send"
)

const (
	// minCompress is the smallest file worth compressing: below it the
	// Content-Encoding and Vary headers eat what is gained.
	minCompress = 256
	// maxCompress is the largest: it takes the best settings about two seconds
	// of one core.
	maxCompress = 1 << 20
	// bestBrotli is for files up to heldBytes, goodBrotli, five times as fast,
	// for larger ones.
	bestBrotli, goodBrotli = 11, 9
	// minGain is the part of a file, in percent, that a variant must save.
	minGain = 5
	// compressQueue bounds the files that wait for compression. What finds no
	// place is tried again by the sweep.
	compressQueue = 256
	// compressPiece is how much is compressed between two looks at whether
	// the handler is being closed.
	compressPiece = 16 << 10
	// encoderRest is how long the encoders are kept after the last file.
	encoderRest = 2 * time.Second
)

var errClosing = errors.New("closing")

// compressJob is a snapshot to compress.
type compressJob struct {
	entry    *entry
	snapshot *snapshot
}

// wantCompressed queues a snapshot for compression, once. One that is still
// racy is about to be read again, and then has its turn.
func (h *Handler) wantCompressed(e *entry, s *snapshot) {
	if s == nil || !s.compressible || s.racy && !h.tree.fixed() || !s.queued.CompareAndSwap(false, true) {
		return
	}
	select {
	case h.compress <- compressJob{e, s}:
	default:
		s.queued.Store(false)
	}
}

// compressLoop is the one worker: compressing must never take more than one
// core from serving. It runs until Close.
func (h *Handler) compressLoop() {
	var tools encoders
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-h.closing:
			return
		case job := <-h.compress:
			h.compressOne(job, &tools)
			rest.Reset(encoderRest)
		case <-rest.C:
			if tools != (encoders{}) {
				tools = encoders{}
				// Forty megabytes that nobody needs any more: without this
				// they would stay with the process for minutes.
				debug.FreeOSMemory()
			}
		}
	}
}

// compressOne makes all encodings of a file and publishes those that pay. A
// snapshot of which none does stays marked, so that it is not tried again.
func (h *Handler) compressOne(job compressJob, tools *encoders) {
	s := job.snapshot
	identity := s.answers[negotiate.Identity]
	if !s.valid() || !s.compressible {
		return
	}
	if !h.table.room(identity.Size) {
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
		packed, err := h.pack(tools, c, plain)
		if err != nil {
			return
		}
		if len(packed)*100 <= len(plain)*(100-minGain) {
			made[c], useful = bytes.Clone(packed), true // without the buffer's spare room
		}
	}
	if useful {
		h.publish(job.entry, s, made)
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
	_, err := io.ReadFull(a.File.Section(0, a.Size), b)
	return b, err == nil
}

// encoders are kept from one file to the next: at their best settings brotli
// has tables of 34 MB, gzip of 1 MB, and zstd of 5 MB one level below its best,
// where they would be 36 MB for the few clients that take zstd but not brotli.
type encoders struct {
	best, good *brotli.Writer
	zstd       *zstd.Encoder
	gzip       *gzip.Writer
}

// encoder is what the encoders have in common.
type encoder interface {
	io.WriteCloser
	Reset(w io.Writer)
}

func (t *encoders) get(c negotiate.Coding, size int) (encoder, error) {
	var err error
	switch {
	case c == negotiate.Brotli && size <= heldBytes:
		if t.best == nil {
			t.best = brotli.NewWriterLevel(nil, bestBrotli)
		}
		return t.best, nil
	case c == negotiate.Brotli:
		if t.good == nil {
			t.good = brotli.NewWriterLevel(nil, goodBrotli)
		}
		return t.good, nil
	case c == negotiate.Zstd:
		if t.zstd == nil {
			t.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
				zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(maxCompress))
		}
		return t.zstd, err
	}
	if t.gzip == nil {
		t.gzip, err = gzip.NewWriterLevel(nil, gzip.BestCompression)
	}
	return t.gzip, err
}

// pack compresses in one coding.
func (h *Handler) pack(tools *encoders, c negotiate.Coding, plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := tools.get(c, len(plain))
	if err != nil {
		return nil, err
	}
	w.Reset(&out)
	for rest := plain; len(rest) > 0; {
		select {
		case <-h.closing:
			return nil, errClosing
		default:
		}
		n := min(len(rest), compressPiece)
		if _, err := w.Write(rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// publish replaces a snapshot by one that has encodings as well. The lane's
// answers fall, so that the next request gets the smaller one.
func (h *Handler) publish(e *entry, s *snapshot, made [negotiate.Codings][]byte) {
	e.loading.Lock()
	defer e.loading.Unlock()
	if e.snapshot.Load() != s || !s.valid() {
		return
	}
	e.gen.Void()
	next := &snapshot{
		read: s.read, mark: e.gen.Now(), found: s.found,
		answers: s.answers, available: s.available, vary: true,
	}
	next.dir.Store(s.dir.Load())
	identity := s.answers[negotiate.Identity]
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
	// The new mark is younger than the bytes. They are only right if the file
	// is still the same after it was taken, and nobody has said otherwise.
	if !h.tree.fixed() && !h.unchanged(e, next) || !next.read.Valid() {
		return
	}
	if identity.File != nil && !identity.File.Retain() {
		return
	}
	next.checked.Store(s.checked.Load())
	if !h.table.install(e, next) && identity.File != nil {
		identity.File.Release()
	}
}
