package static

import (
	"fmt"
	"io"

	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

// packedSources notes which encodings of a file were packed. Their stamps prove
// nothing and need not: a packed file does not change.
func packedSources(f *found) {
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		if b, ok := f.tree.packed.Body(f.file, c); ok {
			f.sources[c] = stamp{size: b.Size, mtime: f.sources[negotiate.Identity].mtime, regular: true}
		}
	}
}

// readPacked is readSource for a packed file. Every tag is a content's, which
// was made when it was packed.
func (h *Handler) readPacked(s *snapshot, c negotiate.Coding) (*send.Answer, error) {
	folder := s.found.tree.packed
	b, ok := folder.Body(s.found.file, c)
	if !ok {
		return nil, errNotFound
	}
	if err := folder.Check(b); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	part := content{coding: c, size: b.Size, modified: h.modified(s, c), tag: sumTag(b.Sum)}
	if b.Size <= heldBytes {
		part.body = make([]byte, b.Size)
		if _, err := io.ReadFull(io.NewSectionReader(folder.Descriptor(), b.Offset, b.Size), part.body); err != nil {
			return nil, classify(err)
		}
	} else {
		part.file, part.base = send.NewShared(folder.Descriptor(), lent{}), b.Offset
	}
	return h.finish(s, part), nil
}

// lent closes nothing: the descriptor of a packed site is the program's own.
type lent struct{}

func (lent) Close() error { return nil }
