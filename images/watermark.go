package images

import (
	"cmp"
	"fmt"
	"io"
	"sync"

	"millrace/images/convert"
	"millrace/images/params"
	"millrace/static/original"
)

// maxWatermark is what goes to a worker beside each image, in bytes.
const maxWatermark = 32 << 10

// watermarks are those that were read, by their names.
type watermarks struct {
	mu   sync.Mutex
	read map[string]mark
}

type mark struct {
	file original.File
	data []byte
}

// watermark is one of a name as it is now, and what tells it apart from what it was.
func (h *Handler) watermark(name string) (*convert.Watermark, string, error) {
	o := h.options.Params.Watermarks[name]
	data, err := h.readWatermark(o)
	if err != nil {
		return nil, "", fmt.Errorf("the watermark %s: %w", name, err)
	}
	w := &convert.Watermark{
		Image: data, Position: cmp.Or(o.Position, "se"),
		Opacity: cmp.Or(o.Opacity, 1), Scale: cmp.Or(o.Scale, 0.2), Margin: o.Margin,
	}
	return w, fmt.Sprintf(" %s %s %v %v %d", tagOf(data), w.Position, w.Opacity, w.Scale, w.Margin), nil
}

// readWatermark reads its file, once until that changes.
func (h *Handler) readWatermark(o params.Watermark) ([]byte, error) {
	f, err := h.source.Lookup(o.Image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Image, err)
	}
	h.marks.mu.Lock()
	defer h.marks.mu.Unlock()
	if m, there := h.marks.read[o.Image]; there && same(m.file, f) {
		return m.data, nil
	}
	if f.Size > maxWatermark {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d", o.Image, f.Size, maxWatermark)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", o.Image, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxWatermark))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.Image, err)
	}
	if h.marks.read == nil {
		h.marks.read = map[string]mark{}
	}
	h.marks.read[o.Image] = mark{f, data}
	return data, nil
}

// watermarksChanged forgets those whose files have changed, and reports whether there are any.
func (h *Handler) watermarksChanged() (changed bool) {
	h.marks.mu.Lock()
	defer h.marks.mu.Unlock()
	for name, m := range h.marks.read {
		if now, err := h.source.Lookup(name); err != nil || !same(now, m.file) {
			delete(h.marks.read, name)
			changed = true
		}
	}
	return changed
}
