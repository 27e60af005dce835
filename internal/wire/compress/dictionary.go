package compress

import (
	"fmt"

	"github.com/andybalholm/brotli"
	"github.com/andybalholm/brotli/matchfinder"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/wire/negotiate"
)

// PackWith is Pack with a dictionary, from which the content may copy as if it stood
// before it: for Brotli as RFC 9841 has it, for Zstd as RFC 8878, 5. Gzip has none.
// It looks at stop once, at the beginning.
func (t *Tools) PackWith(c negotiate.Coding, dictionary, plain []byte, stop <-chan struct{}) ([]byte, error) {
	select {
	case <-stop:
		return nil, ErrStopped
	default:
	}
	t.dictionaries = true
	switch c {
	case negotiate.Brotli:
		return sharedBrotli(dictionary, plain), nil
	case negotiate.Zstd:
		return zstdWith(dictionary, plain)
	}
	return nil, fmt.Errorf("compress with %s: it knows no dictionaries", c)
}

// zstdWith names no dictionary in the frame: whoever decodes it has a content
// without a number. The window holds both (RFC 9842, 5).
func zstdWith(dictionary, plain []byte) ([]byte, error) {
	window := zstd.MinWindowSize
	for window < len(dictionary)+len(plain) {
		window *= 2
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderDictRaw(0, dictionary), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(window))
	if err != nil {
		return nil, fmt.Errorf("compress with zstd and a dictionary: %w", err)
	}
	return w.EncodeAll(plain, nil), nil
}

// sharedBrotli compresses with a dictionary as Shared Brotli has it (RFC 9841): the
// content may copy from the dictionary as if it stood before it. The library's
// writers know no dictionary, but its parts do: the finder of matches has seen the
// dictionary first, and the encoder writes distances of any length.
func sharedBrotli(dictionary, plain []byte) []byte {
	find := &matchfinder.Pathfinder{
		MaxDistance: len(dictionary) + len(plain),
		ChainLength: 32,
		TableBits:   18,
	}
	find.FindMatches(nil, dictionary)
	matches := cutAtEnd(find.FindMatches(nil, plain))
	var e brotli.Encoder
	return e.Encode(nil, plain, matches, true)
}

// cutAtEnd cuts the matches that begin in the dictionary and end in the content, which
// decoders refuse.
func cutAtEnd(matches []matchfinder.Match) []matchfinder.Match {
	const shortest = 2 // copy that brotli has (RFC 7932, 5)
	cut := make([]matchfinder.Match, 0, len(matches)+1)
	pos, spare := 0, 0 // literals that were a match's
	for _, m := range matches {
		pos += m.Unmatched
		m.Unmatched += spare
		spare = 0
		inside := m.Distance - pos // bytes of the dictionary's end
		if m.Length == 0 || inside <= 0 || inside >= m.Length {
			cut = append(cut, m)
			pos += m.Length
			continue
		}
		pos += m.Length
		rest := m.Length - inside
		if inside >= shortest {
			m.Length = inside
			cut = append(cut, m)
			m.Unmatched = 0
		} else {
			m.Unmatched += inside
		}
		if rest >= shortest {
			cut = append(cut, matchfinder.Match{Unmatched: m.Unmatched, Length: rest, Distance: m.Distance})
		} else {
			spare = m.Unmatched + rest
		}
	}
	if spare > 0 {
		cut = append(cut, matchfinder.Match{Unmatched: spare})
	}
	return cut
}
