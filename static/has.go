package static

import "net/url"

// Has reports whether a path below the root is that of a file, or if it ends in a
// slash, of a folder with an index.
func (h *Handler) Has(path string) bool {
	name, ok := h.requestName(&url.URL{Path: path})
	if !ok {
		return false
	}
	_, _, err := h.probe(name)
	return err == nil
}
