package negotiate

import (
	"slices"
	"strings"

	"millrace/internal/wire/field"
)

// Medium is a media type that a client takes.
type Medium struct {
	Type   string // as it was offered
	Weight int    // 1 to 1000: the qvalue in thousandths
}

// Media appends to dst those of the media types offered that the Accept lines
// of a request take by name (RFC 9110, 12.5.1): the highest weight first, and
// in the order of offers among equals. Offers are types like image/webp,
// without parameters, each once. With room in dst it allocates nothing.
//
// Wildcards are no yes. By the RFC image/* takes every format; in practice it
// stands in the Accept of every browser there ever was, of those that show
// neither WebP nor AVIF too, and curl, crawlers and mail programs say */* to
// anything. What really decodes a newer format says so by its name: that was
// made the custom for this very reason, since a wildcard cannot mean formats
// that its sender had never heard of. A wildcard is not a refusal either, whatever
// its weight: the name is more specific.
//
// A weight of 0 refuses. Members that cannot be parsed are ignored. Parameters
// other than the weight are tolerated: image/avif;v=b is image/avif, unless the
// bare type is there as well and says something else. The highest weight
// counts of a type that is named twice.
func Media(dst []Medium, lines, offers []string) []Medium {
	first := len(dst)
	for _, offer := range offers {
		if w := mediaWeight(lines, offer); w > 0 {
			dst = append(dst, Medium{offer, w})
		}
	}
	slices.SortStableFunc(dst[first:], func(a, b Medium) int { return b.Weight - a.Weight })
	return dst
}

// Weight is the weight of a media type that every client can take, from 0 to 1000: by
// its name, or else by the wildcards that it falls under (RFC 9110, 12.5.1). 1000 without
// Accept.
func Weight(lines []string, offer string) int {
	if len(lines) == 0 {
		return 1000
	}
	kind, _, _ := strings.Cut(offer, "/")
	for _, r := range []string{offer, kind + "/*", "*/*"} {
		if w := mediaWeight(lines, r); w != unset {
			return w
		}
	}
	return 0
}

// mediaWeight is the weight of one type, or unset.
func mediaWeight(lines []string, offer string) int {
	bare, special := unset, unset
	for _, line := range lines {
		for line != "" {
			var member string
			member, line, _ = field.Cut(line, ',')
			name, params, _ := strings.Cut(member, ";")
			if !strings.EqualFold(strings.Trim(name, " \t"), offer) || !field.Closed(params) {
				continue
			}
			weight, plain, ok := parseMediaParams(params)
			switch {
			case !ok:
			case plain:
				bare = max(bare, weight)
			default:
				special = max(special, weight)
			}
		}
	}
	if bare != unset {
		return bare
	}
	return special
}

// parseMediaParams reads what stands behind a media type and its semicolon.
// plain says that nothing but a weight qualifies the type.
func parseMediaParams(s string) (weight int, plain, ok bool) {
	weight, plain = 1000, true
	weighted := false
	for s != "" {
		var param string
		param, s, _ = field.Cut(s, ';')
		param = strings.Trim(param, " \t")
		if param == "" { // RFC 9110, 5.6.6 allows it
			continue
		}
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.Trim(name, " \t"), "q") {
			// What follows the weight was an accept-ext once (RFC 7231, 5.3.2)
			// and says nothing of the type.
			plain = plain && weighted
			continue
		}
		weight, ok = field.Weight(value)
		if !ok || weighted || len(name) != 1 {
			return 0, false, false
		}
		weighted = true
	}
	return weight, plain, true
}
