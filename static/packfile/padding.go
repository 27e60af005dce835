package packfile

import (
	"bytes"
	"fmt"
	"io"
	"slices"
)

// checkPadding compares what lies between program, bodies and index with what was
// written there, which no sum covers: the header, and zeros.
func (s *Site) checkPadding() error {
	t, err := readTrailer(s.file)
	if err != nil {
		return err
	}
	header := aligned(t.base)
	magic := make([]byte, len(Magic))
	if _, err := s.file.ReadAt(magic, header); err != nil {
		return fmt.Errorf("reading the packed file: %w", err)
	}
	if t.base != s.Base.Size || string(magic) != Magic {
		return fmt.Errorf("the header: %w", ErrAltered)
	}
	type span struct{ from, to int64 }
	spans := []span{{t.base, t.base}, {header, header + int64(len(Magic))}, {t.index, t.index}}
	_ = s.eachBody(func(_ string, b Body) error { // which never fails
		spans = append(spans, span{b.Offset, b.Offset + b.Size})
		return nil
	})
	slices.SortFunc(spans, func(a, b span) int { return int(min(1, max(-1, a.from-b.from))) })
	end := t.base
	for _, next := range spans {
		if next.from > end {
			if err := s.zeros(end, next.from); err != nil {
				return err
			}
		}
		end = max(end, next.to)
	}
	return nil
}

// zeros is an error where the file has something else from one place to another.
func (s *Site) zeros(from, to int64) error {
	none := make([]byte, Align)
	b := make([]byte, Align)
	for r := io.NewSectionReader(s.file, from, to-from); ; {
		n, err := io.ReadFull(r, b)
		if !bytes.Equal(b[:n], none[:n]) {
			return fmt.Errorf("between the files, at byte %d or after: %w", from, ErrAltered)
		}
		if n < len(b) {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil
			}
			return fmt.Errorf("reading the packed file: %w", err)
		}
	}
}
