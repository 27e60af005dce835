package static

import (
	"net/http"
	"strings"

	"millrace/internal/wire/negotiate"
)

// PackedVariants is the folder of a packed site in which an image has variants in
// other formats: img/a.jpg as img/a.jpg.webp below it. Its name begins with a dot,
// so nobody can ask for them by it.
const PackedVariants = ".millrace/images/"

// pictureFormats are the formats of variants.
var pictureFormats = []struct{ media, ending string }{{"image/avif", ".avif"}, {"image/webp", ".webp"}}

// The headers that answers of files with variants vary on.
var (
	varyAccept = []string{"Accept"}
	varyBoth   = []string{"Accept", "Accept-Encoding"} // of one that has encodings as well
)

// hasPictures reports whether a packed file has variants.
func (h *Handler) hasPictures(f *found) bool {
	return h.pictures && len(variantsOf(f.tree, f.file)) > 0
}

// variantsOf are the media types of a packed image's variants.
func variantsOf(t *tree, name string) (offers []string) {
	for _, f := range pictureFormats {
		if _, ok := t.packed.Body(PackedVariants+name+f.ending, negotiate.Identity); ok {
			offers = append(offers, f.media)
		}
	}
	return offers
}

// picture is the variant of a packed image that suits a client: of the formats
// that it names in Accept (RFC 9110, 12.5.1) with the highest weight, the smallest.
// Wildcards count for nothing: every client sends them. The name itself where
// there is none.
func (h *Handler) picture(name string, header http.Header) string {
	if !h.pictures || len(header["Accept"]) == 0 {
		return name
	}
	t, info, err := h.trees.stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return name
	}
	offers := variantsOf(t, name)
	if len(offers) == 0 {
		return name
	}
	best, least, weight := name, int64(0), 0
	for _, m := range negotiate.Media(nil, header["Accept"], offers) {
		variant := PackedVariants + name + "." + strings.TrimPrefix(m.Type, "image/")
		b, _ := t.packed.Body(variant, negotiate.Identity)
		if best == name || m.Weight == weight && b.Size < least {
			best, least, weight = variant, b.Size, m.Weight
		}
	}
	return best
}

// pictured is the image that a packed variant was made of; ok is false for others.
func (h *Handler) pictured(file string) (image string, ok bool) {
	if !h.pictures {
		return "", false
	}
	rest, ok := strings.CutPrefix(file, PackedVariants)
	if !ok {
		return "", false
	}
	return rest[:strings.LastIndexByte(rest, '.')], true
}
