// Package negotiate chooses between the representations of one resource by
// what the client says it can take (RFC 9110, 12.5).
package negotiate

import (
	"strings"

	"millrace/internal/wire/field"
)

// Coding is a content coding (RFC 9110, 8.4.1), in the order in which we
// prefer them when the client does not mind: the last is the best.
type Coding uint8

// The codings we know.
const (
	Identity Coding = iota
	Gzip
	Zstd
	Brotli
	Codings // how many there are
)

// String is the coding's name in Accept-Encoding and Content-Encoding.
func (c Coding) String() string {
	switch c {
	case Gzip:
		return "gzip"
	case Zstd:
		return "zstd"
	case Brotli:
		return "br"
	}
	return "identity"
}

// Set is a set of codings. Identity need not be put in: it is always there.
type Set uint8

// With returns the set with c in it.
func (s Set) With(c Coding) Set { return s | 1<<c }

// Has reports whether c is in the set.
func (s Set) Has(c Coding) bool { return c == Identity || s&(1<<c) != 0 }

// unset is the weight of a coding that was not named.
const unset = -1

// Encoding picks the best available coding for the Accept-Encoding lines of a
// request (RFC 9110, 12.5.3): the highest weight wins, our preference decides
// among equals, and identity that was not named comes last. Members that
// cannot be parsed are ignored. Without the header the answer is identity.
//
// ok is false when the client refuses everything there is, identity included;
// the coding is identity then, which RFC 9110, 15.5.7 lets a server send
// rather than a 406.
func Encoding(lines []string, available Set) (c Coding, ok bool) {
	if len(lines) == 0 {
		return Identity, true
	}
	weights := [Codings]int{unset, unset, unset, unset}
	star := unset
	for _, line := range lines {
		for line != "" {
			var member string
			member, line, _ = strings.Cut(line, ",")
			name, weight, valid := parseMember(member)
			if !valid {
				continue
			}
			if name == "*" {
				star = max(star, weight)
			} else if c, known := codingNamed(name); known {
				weights[c] = max(weights[c], weight)
			}
		}
	}
	best, bestWeight := Identity, 0
	for c := Codings - 1; c > Identity; c-- {
		w := weights[c]
		if w == unset {
			w = star
		}
		if available.Has(c) && w > bestWeight {
			best, bestWeight = c, w
		}
	}
	identity := weights[Identity]
	if identity == unset {
		identity = star
	}
	if weights[Identity] > bestWeight { // asked for by name, and rather than the rest
		return Identity, true
	}
	return best, best != Identity || identity != 0
}

func codingNamed(name string) (Coding, bool) {
	switch {
	case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"): // RFC 9110, 8.4.1.3
		return Gzip, true
	case strings.EqualFold(name, "br"):
		return Brotli, true
	case strings.EqualFold(name, "zstd"):
		return Zstd, true
	case strings.EqualFold(name, "identity"):
		return Identity, true
	}
	return Identity, false
}

// parseMember reads `coding` or `coding;q=0.5`, the weight in thousandths.
func parseMember(s string) (name string, weight int, ok bool) {
	name, params, weighted := strings.Cut(s, ";")
	name = strings.Trim(name, " \t")
	if name == "" {
		return "", 0, false
	}
	if !weighted {
		return name, 1000, true
	}
	params = strings.Trim(params, " \t")
	if len(params) < 2 || params[0]|0x20 != 'q' || params[1] != '=' {
		return "", 0, false
	}
	weight, ok = field.Weight(params[2:])
	return name, weight, ok
}
