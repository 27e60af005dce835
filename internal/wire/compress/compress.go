// Package compress makes the encodings of finished content: brotli, zstd and
// gzip. It does not choose between them: see package negotiate.
//
// Compressing is done once, in the background, and its result served many
// times, so the settings are far above those of servers that compress each
// answer again. Files have the best ones that pay; answers that live for
// seconds or minutes have Quick ones.
package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/wire/negotiate"
)

const (
	// MinSize is the least content, in bytes, that is worth compressing: below
	// it the Content-Encoding and Vary headers eat what is gained.
	MinSize = 256
	// MaxSize is the most: it takes the best settings about two seconds of one
	// core.
	MaxSize = 1 << 20
	// bestSize is the largest content for brotli's best level; beyond it a
	// level that is five times as fast has to do.
	bestSize = 64 << 10
	// minGain is the part of the content, in percent, that a packed form must
	// save to be kept.
	minGain = 5
	// piece is how much is compressed between two looks at stop: a few
	// milliseconds' work at the best settings.
	piece = 16 << 10
)

// Effort is how much time compressing may take.
type Effort uint8

const (
	// Best is for files, and answers that live for hours: the smallest form
	// that any setting makes, at any price below MaxSize.
	Best Effort = iota
	// Quick is for answers that live for less than an hour. Measured on 32 KB
	// of JSON, in ms of one core and percent of its size that are left
	// (BenchmarkPack, and all levels beside the chosen ones):
	//
	//	        Best        Quick
	//	brotli  112  16.3   1.9  19.5   level 5; 4: 1.4 22.7, 6: 2.3 18.8, 9: 3.7 18.0
	//	zstd    0.24 20.1   the same    default: 0.18 20.7, best: 1.0 19.6
	//	gzip    3.5  18.6   0.35 20.5   level 6; 5: 0.26 20.9, 7: 0.89 20.4
	Quick
	// Ahead is for files that are compressed before anybody serves them: the best
	// levels at any price, for up to 16 MiB.
	Ahead
	efforts // how many there are
)

// Levels of brotli and gzip, which count up to 11 and 9.
const (
	bestBrotli, goodBrotli, quickBrotli = 11, 9, 5
	bestGzip, quickGzip                 = 9, 6
)

// ErrStopped is returned by Pack when it was told to stop.
var ErrStopped = errors.New("compress: stopped")

// Tools are encoders that are kept from one use to the next: at their best
// settings brotli has tables of 34 MB, gzip of 1 MB, and zstd of 5 MB one level
// below its best, where they would be 36 MB for the few clients that take zstd
// but not brotli. Tools belong to one goroutine. The zero value is ready.
type Tools struct {
	best, good, quick *brotli.Writer
	zstd, zstdAhead   *zstd.Encoder
	gzip              [efforts]*gzip.Writer
	dictionaries      bool // there were some, whose tables are garbage now
}

// encoder is what the encoders have in common.
type encoder interface {
	io.WriteCloser
	Reset(w io.Writer)
}

func (t *Tools) get(c negotiate.Coding, e Effort, size int) (encoder, error) {
	switch c {
	case negotiate.Brotli:
		return t.brotli(e, size), nil
	case negotiate.Zstd:
		return t.zstandard(e)
	case negotiate.Gzip:
		level := bestGzip
		if e == Quick {
			level = quickGzip
		}
		var err error
		if t.gzip[e] == nil {
			t.gzip[e], err = gzip.NewWriterLevel(nil, level)
		}
		return t.gzip[e], err
	}
	return nil, errors.New("there is no such encoder")
}

func (t *Tools) brotli(e Effort, size int) encoder {
	kept, level := &t.best, bestBrotli
	switch {
	case e == Quick:
		kept, level = &t.quick, quickBrotli
	case e == Best && size > bestSize:
		kept, level = &t.good, goodBrotli
	}
	if *kept == nil {
		*kept = brotli.NewWriterLevel(nil, level)
	}
	return *kept
}

func (t *Tools) zstandard(e Effort) (encoder, error) {
	var err error
	if e == Ahead {
		if t.zstdAhead == nil {
			// Browsers take windows of up to 8 MiB (RFC 9659).
			t.zstdAhead, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1),
				zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
		}
		return t.zstdAhead, err
	}
	if t.zstd == nil {
		t.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(MaxSize))
	}
	return t.zstd, err
}

// Pack compresses in one coding, of which Identity is none. A closed stop ends
// it early with ErrStopped; nil never does. The result has no spare capacity.
func (t *Tools) Pack(c negotiate.Coding, e Effort, plain []byte, stop <-chan struct{}) ([]byte, error) {
	w, err := t.get(c, e, len(plain))
	if err != nil {
		return nil, fmt.Errorf("compress with %s: %w", c, err)
	}
	var out bytes.Buffer
	w.Reset(&out)
	for rest := plain; len(rest) > 0; {
		select {
		case <-stop:
			return nil, ErrStopped
		default:
		}
		n := min(len(rest), piece)
		if _, err := w.Write(rest[:n]); err != nil {
			return nil, fmt.Errorf("compress with %s: %w", c, err)
		}
		rest = rest[n:]
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress with %s: %w", c, err)
	}
	return bytes.Clone(out.Bytes()), nil
}

// FreeMemory gives the encoders' memory back to the system. Call it when nothing has
// been compressed for seconds.
func (t *Tools) FreeMemory() {
	if *t == (Tools{}) {
		return
	}
	*t = Tools{}
	// Forty megabytes that nobody needs any more: without this they would
	// stay with the process for minutes.
	debug.FreeOSMemory()
}

// Pays reports whether a packed form, in bytes, saves enough to be kept.
func Pays(plain, packed int) bool { return packed*100 <= plain*(100-minGain) }
