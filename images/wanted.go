package images

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/params"
	"millrace/internal/wire/negotiate"
)

// wanted is a variant that a request would take.
type wanted struct {
	format
	spec convert.Spec
	id   string // tells the variants of one original apart; says all of spec but its effort
	// weight is what the request gives the format, in thousandths.
	weight int
	// memory is how many bytes the conversion is predicted to take, once it is
	// ordered.
	memory int64
}

// want lists what the request would take, the best first: formats that it
// names in Accept (RFC 9110, 12.5.1), the ones with a higher weight first, and
// at the same weight in the order of the options. Wildcards count for nothing:
// every client sends them, also those that show no WebP. A format that the request
// weighs less than the original's is not made for it: "image/webp;q=0.5, */*" wants a
// JPEG as it is.
func (h *Handler) want(r *http.Request) ([]wanted, error) {
	var p params.Params
	if h.options.Params.Enabled() {
		var err error
		if p, err = h.options.Params.Parse(r); err != nil {
			return nil, err
		}
	}
	accept := r.Header["Accept"]
	if len(accept) == 0 {
		return nil, nil
	}
	offers := make([]string, len(h.formats))
	for i, f := range h.formats {
		offers[i] = f.media
	}
	least := negotiate.Weight(accept, mediaType(path.Ext(r.URL.Path)))
	var all []wanted
	for _, m := range negotiate.Media(nil, accept, offers) {
		if m.Weight < least {
			break
		}
		w := h.wanted(h.formats[slices.Index(offers, m.Type)], p)
		w.weight = m.Weight
		all = append(all, w)
	}
	return all, nil
}

// mediaType is that of the originals with an extension.
func mediaType(ext string) string {
	switch kind := strings.ToLower(strings.TrimPrefix(ext, ".")); kind {
	case "jpg":
		return "image/jpeg"
	case "tif":
		return "image/tiff"
	default:
		return "image/" + kind
	}
}

// wanted is the variant of a format and a size.
func (h *Handler) wanted(f format, p params.Params) wanted {
	quality := h.options.Quality
	if p.Quality != 0 {
		quality = p.Quality
	}
	s := convert.Spec{
		Format: f.Format, Quality: quality, Effort: codec.Fast,
		Width: p.Width, Height: p.Height, Fit: p.Fit,
		KeepCopyright: h.options.KeepCopyright,
		NearLossless:  h.options.NearLossless,
		Limits:        h.options.limits(),
		Memory:        h.budget,
	}
	id := fmt.Sprintf("%s %s q%d n%d", f.Format, f.level, quality, s.NearLossless)
	if s.KeepCopyright {
		id += " c"
	}
	if s.Resizes() {
		id += " " + p.Key()
	}
	return wanted{format: f, spec: s, id: id}
}
