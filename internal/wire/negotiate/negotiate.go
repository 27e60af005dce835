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
// request: see [Of] and [Preference.Pick].
func Encoding(lines []string, available Set) (c Coding, ok bool) { return Of(lines).Pick(available) }

// Preference is what Accept-Encoding lines come to: the codings that a client
// takes rather than identity, the one it likes most first, and whether it
// refuses identity. "br, gzip" and "gzip;q=0.5, br;q=0.9, *;q=0" are the same.
// There are 128 of them; the zero Preference is that of a client without the
// field.
type Preference uint16

// A Preference has three codings in two bits each, Identity behind the last
// one, and these.
const (
	refusesIdentity Preference = 1 << (6 + iota)
	takesDCB
	takesDCZ
)

// Besides a Coding, a member may name one with a dictionary (RFC 9842).
const (
	dcb = Codings + iota
	dcz
	named // how many names there are
)

// Of reads the Accept-Encoding lines of a request (RFC 9110, 12.5.3): the highest
// weight wins, our preference decides among equals, and identity that was not
// named comes last. Members that cannot be parsed are ignored.
func Of(lines []string) (p Preference) {
	if len(lines) == 0 {
		return 0
	}
	weights := [named]int{unset, unset, unset, unset, unset, unset}
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
	identity := weights[Identity]
	for place := 0; place < 6; place += 2 { // the heaviest one that is left
		best, most := Identity, max(1, identity)
		for c := Codings - 1; c > Identity; c-- {
			w := weights[c]
			if w == unset {
				w = star
			}
			if w > most || w == most && best == Identity {
				best, most = c, w
			}
		}
		if best == Identity {
			break
		}
		p |= Preference(best) << place
		weights[best] = 0
	}
	if identity == unset {
		identity = star
	}
	if identity == 0 {
		p |= refusesIdentity
	}
	if weights[dcb] > 0 {
		p |= takesDCB
	}
	if weights[dcz] > 0 {
		p |= takesDCZ
	}
	return p
}

// Pick returns the coding that a client with this preference likes most of those
// that are available.
//
// ok is false when the client refuses everything there is, identity included;
// the coding is identity then, which RFC 9110, 15.5.7 lets a server send
// rather than a 406.
func (p Preference) Pick(available Set) (c Coding, ok bool) {
	for place := 0; place < 6; place += 2 {
		if c = Coding(p >> place & 3); c == Identity || available.Has(c) {
			break
		}
		c = Identity
	}
	return c, c != Identity || p&refusesIdentity == 0
}

// Dictionaries reports whether a client takes Brotli and Zstandard with a dictionary (dcb and
// dcz). Their weights do not count.
func (p Preference) Dictionaries() (brotli, zstd bool) { return p&takesDCB != 0, p&takesDCZ != 0 }

// String is a value of Accept-Encoding with this preference.
func (p Preference) String() string {
	var b strings.Builder
	add := func(member string) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(member)
	}
	last := Codings
	weight := ""
	for place := 0; place < 6; place += 2 {
		c := Coding(p >> place & 3)
		if c == Identity {
			break
		}
		if c > last { // our preference would turn them around
			weight = [...]string{2: ";q=0.9", 4: ";q=0.8"}[place]
		}
		add(c.String() + weight)
		last = c
	}
	if p&takesDCB != 0 {
		add("dcb")
	}
	if p&takesDCZ != 0 {
		add("dcz")
	}
	if p&refusesIdentity != 0 {
		add("identity;q=0")
	}
	return b.String()
}

func codingNamed(name string) (Coding, bool) {
	switch {
	case name == "deflate": // which many name
		return Identity, false
	case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"): // RFC 9110, 8.4.1.3
		return Gzip, true
	case strings.EqualFold(name, "br"):
		return Brotli, true
	case strings.EqualFold(name, "zstd"):
		return Zstd, true
	case strings.EqualFold(name, "identity"):
		return Identity, true
	case strings.EqualFold(name, "dcb"):
		return dcb, true
	case strings.EqualFold(name, "dcz"):
		return dcz, true
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
