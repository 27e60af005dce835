package images

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

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
	// optional ones are made if none of the others can be.
	optional bool
	// any original will do, also one that is no image.
	any bool
	// wait is how long a visitor waits for it; 0: Options.Wait.
	wait time.Duration
	// memory is how many bytes the conversion is predicted to take, once it is
	// ordered.
	memory int64
}

// want lists what the request would take, the best first: formats that it
// names in Accept (RFC 9110, 12.5.1), the ones with a higher weight first, and
// at the same weight in the order of the options. Wildcards count for nothing:
// every client sends them, also those that show no WebP. A format that the request
// weighs less than the original's is not made for it: "image/webp;q=0.5, */*" wants a
// JPEG as it is. If it asks for more than a format, there is one that every client takes. A
// format that it names in the query is the only one.
func (h *Handler) want(r *http.Request) ([]wanted, error) {
	var p params.Params
	if h.options.Params.Enabled() {
		var err error
		if p, err = h.options.Params.Parse(r); err != nil {
			return nil, err
		}
	}
	all, err := h.wantAs(r, p)
	if err != nil || p.Watermark == "" {
		return all, err
	}
	mark, id, err := h.watermark(p.Watermark)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].spec.Watermark = mark
		all[i].id += id
	}
	return all, nil
}

// wantAs is want for what the URL says.
func (h *Handler) wantAs(r *http.Request, p params.Params) ([]wanted, error) {
	if p.Format != "" {
		f, ok := h.formatOf(p.Format)
		if !ok {
			return nil, fmt.Errorf("%w: format=%s is not made here", params.ErrRefused, p.Format)
		}
		w := h.wanted(f, p, true)
		if convert.IsFact(p.Format) {
			w.wait = waitAtMost
		}
		return []wanted{w}, nil
	}
	accept, ext := r.Header["Accept"], path.Ext(r.URL.Path)
	must := false
	if mediaType(ext) == "image/avif" { // few clients show it: it is no answer for those that do not name it
		must = len(negotiate.Media(nil, accept, []string{"image/avif"})) == 0
		if !must && !p.Changes() && p.Quality == 0 {
			return nil, nil // nothing that is made of it would be smaller
		}
	}
	offers := make([]string, len(h.formats))
	for i, f := range h.formats {
		offers[i] = f.media
	}
	least := negotiate.Weight(accept, mediaType(ext))
	var all []wanted
	for _, m := range negotiate.Media(nil, accept, offers) {
		if m.Weight < least {
			break
		}
		w := h.wanted(h.formats[slices.Index(offers, m.Type)], p, must)
		w.weight = m.Weight
		all = append(all, w)
	}
	if p.Changes() || must {
		f, _ := h.formatOf(codec.Plain)
		w := h.wanted(f, p, must)
		w.weight, w.optional = least, true
		all = append(all, w)
	}
	for i := range all {
		if must {
			all[i].wait = waitAtMost
		}
	}
	return all, nil
}

// waitAtMost is how long a visitor waits where nothing else can be sent, or nothing that it shows.
const waitAtMost = 10 * time.Second

// formatOf is a format that a request names, if it is made here. JPEG and PNG always are.
func (h *Handler) formatOf(name codec.Format) (format, bool) {
	if name == codec.WebP || name == codec.AVIF {
		all := h.engine.formats([]string{string(name)})
		return append(all, format{})[0], len(all) > 0
	}
	return format{name, mediaType(string(name)), "embedded", true}, true
}

// mediaType is that of the originals with an extension.
func mediaType(ext string) string {
	switch kind := strings.ToLower(strings.TrimPrefix(ext, ".")); kind {
	case "jpg", "jpe", "jfif":
		return "image/jpeg"
	case "tif":
		return "image/tiff"
	case "hif":
		return "image/heif"
	default:
		return "image/" + kind
	}
}

// wanted is the variant of a format and a size. must says that the original will not do in its
// place.
func (h *Handler) wanted(f format, p params.Params, must bool) wanted {
	quality := h.options.Quality
	if p.Quality != 0 {
		quality = p.Quality
	}
	s := convert.Spec{
		Format: f.Format, Quality: quality, Effort: codec.Fast,
		Width: p.Width, Height: p.Height, Fit: p.Fit, Edit: p.Edit, MaxBytes: p.MaxBytes,
		Must:          must,
		KeepCopyright: h.options.KeepCopyright,
		SRGB:          h.options.SRGB,
		NearLossless:  h.options.NearLossless,
		Limits:        h.options.limits(),
		Memory:        h.budget,
	}
	id := fmt.Sprintf("%s %s q%d n%d", f.Format, f.level, quality, s.NearLossless)
	if s.KeepCopyright {
		id += " c"
	}
	if s.SRGB {
		id += " srgb"
	}
	if s.Must {
		id += " as asked"
	}
	if p.Changes() {
		id += " " + p.Key()
	}
	return wanted{format: f, spec: s, id: id}
}

// Asked says what a request for an image asks for beside the image, as "w600-rotate=90" or
// "format=png"; "" for nothing, or where no image is asked for. An error says why it is refused.
func (o Options) Asked(r *http.Request) (string, error) {
	o = o.withDefaults()
	ext := strings.TrimPrefix(strings.ToLower(path.Ext(r.URL.Path)), ".")
	if ext == "" || !slices.ContainsFunc(o.Extensions, func(e string) bool { return strings.EqualFold(strings.TrimPrefix(e, "."), ext) }) {
		return "", nil
	}
	p, err := o.Params.Parse(r)
	if err != nil || p.Format == "" {
		return p.Key(), err
	}
	return strings.TrimSuffix("format="+string(p.Format)+"-"+p.Key(), "-"), nil
}
