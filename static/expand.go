package static

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/wire/negotiate"
)

const (
	// maxExpanded bounds what a compressed file may become: it is held in
	// memory, and a few KiB can stand for gigabytes.
	maxExpanded = 16 << 20
	// maxWindow bounds what a decoder of zstd remembers: RFC 9659.
	maxWindow = 8 << 20
)

// onlyCompressed reports whether there are only compressed forms of the file.
func (f *found) onlyCompressed() bool {
	return f.file != "" && f.sources[negotiate.Identity] == (stamp{})
}

// probeCompressed is probe for a name of which there are only compressed forms.
func (h *Handler) probeCompressed(t *tree, name string) (f found, dir stamp, err error) {
	f.tree, f.file = t, name
	dir = t.stampOf(dirOf(name))
	some := false
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		if info, err := t.stat(f.source(c)); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			f.sources[c], some = stampOf(info), true
		}
	}
	if !some {
		return found{}, stamp{}, errNotFound
	}
	return f, dir, nil
}

// expandCompressed makes the form for clients that can take none of the compressed
// ones. There is none when it is too large, or what is there is broken.
func (h *Handler) expandCompressed(s *snapshot) error {
	if s.available == 0 {
		return errForbidden
	}
	for c := negotiate.Gzip; c < negotiate.Codings; c++ {
		a := s.answers[c]
		if a == nil || a.Size > maxExpanded {
			continue
		}
		plain, ok := plainBytes(a)
		if !ok {
			return errChanged
		}
		body, err := h.expanded(c, plain)
		if err != nil {
			continue
		}
		s.answers[negotiate.Identity] = h.finish(s, content{size: int64(len(body)), modified: h.modified(s, c), tag: contentTag(body), body: body})
		s.available = s.available.With(negotiate.Identity)
		return nil
	}
	return nil
}

func (h *Handler) expanded(c negotiate.Coding, packed []byte) (body []byte, err error) {
	r, err := h.expand(c, bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	body, err = io.ReadAll(io.LimitReader(r, maxExpanded+1))
	if err == nil && len(body) > maxExpanded {
		err = errNotAcceptable
	}
	return body, err
}

// expand decompresses.
func expand(c negotiate.Coding, r io.Reader) (io.ReadCloser, error) {
	switch c {
	case negotiate.Gzip:
		return gzip.NewReader(r) //nolint:wrapcheck // nobody is told
	case negotiate.Brotli:
		return io.NopCloser(brotli.NewReader(r)), nil
	case negotiate.Zstd:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err //nolint:wrapcheck // as above
		}
		return d.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("there is no decoder for %s", c)
}
