package rfc9111

import (
	"net/http"
	"slices"
	"strings"

	"millrace/internal/wire/field"
)

// maxVary is how many fields may select a response: each is looked at for every
// stored response of a URL and every request. Real ones name up to five.
const maxVary = 64

// Vary lists the field names of all Vary lines, canonical, sorted, each once.
// star is true when one of them is "*" (4.1), or is not a field name at all, or
// there are more than 64: then no request selects the response.
func Vary(h http.Header) (names []string, star bool) {
	for name := range field.Members(h["Vary"]) {
		if name == "*" || !field.Token(name) {
			star = true
		} else {
			names = append(names, canonical(name))
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > maxVary {
		return nil, true
	}
	return names, star
}

// empty is Normal's answer for a field that is there and says nothing, which
// is not the same as one that is not there (4.1).
const empty = " "

// Normal is the value of a request field for comparing (4.1): "" when it is not
// there; else its lines joined and the whitespace around commas dropped.
//
// Accept-Encoding and Accept-Language become what they mean: names in lower
// case, ordered by weight, and by name where the weight is the same, since the
// order then means nothing (RFC 9110, 12.5.4); codings with q=0 go where they
// would not have been acceptable anyway. Only the order of the weights counts.
// What does not follow the grammar is compared as it is.
//
// With languages, which are those the origin has, Accept-Language becomes the
// one of them that it prefers, of equal ones the first in languages, or " "
// when it wants none of them. The origin has to be asked with the same value
// then, or it may choose another one.
func Normal(name string, request field.Lines, languages []string) string {
	lines := request.Values(name)
	if len(lines) == 0 {
		return ""
	}
	var value string
	switch name {
	case "Accept-Encoding":
		wishes, ok := weighed(lines)
		if !ok {
			value = compact(lines)
			break
		}
		value = ranking(wishes, slices.ContainsFunc(wishes, func(w preference) bool { return w.name == "*" && w.q > 0 }))
	case "Accept-Language":
		wishes, ok := weighed(lines)
		switch {
		case !ok:
			value = compact(lines)
		case len(languages) > 0:
			value = preferred(wishes, languages)
		default:
			value = ranking(wishes, true)
		}
	default:
		value = compact(lines)
	}
	if value == "" {
		return empty
	}
	return value
}

// Speaks reports whether a stored response, by its Content-Language, is in the one
// language that a request prefers to all others, so that its origin, which evidently has that,
// would choose it again: then it need not match by the letter (4.1 lets values
// match that mean the same). It needs a Vary of Accept-Language alone, or the
// other names compared before.
func Speaks(request field.Lines, contentLanguage []string) bool {
	wishes, ok := weighed(request.Values("Accept-Language"))
	if len(contentLanguage) != 1 || !ok || len(wishes) == 0 || wishes[0].q == 0 {
		return false
	}
	if len(wishes) > 1 && wishes[1].q == wishes[0].q {
		return false // not one that is preferred to all others
	}
	return wishes[0].name != "*" && strings.EqualFold(strings.Trim(contentLanguage[0], " \t"), wishes[0].name)
}

// compact joins lines and drops whitespace around commas, outside quotes.
func compact(lines []string) string {
	line := strings.Trim(lines[0], " \t")
	if len(lines) == 1 && !strings.Contains(line, ", ") && !strings.ContainsAny(line, "\t") && !strings.Contains(line, " ,") {
		return line
	}
	var b strings.Builder
	for i, line := range lines {
		for more := true; more; {
			var member string
			member, line, more = field.Cut(line, ',')
			if b.WriteString(strings.Trim(member, " \t")); more || i < len(lines)-1 {
				b.WriteByte(',')
			}
		}
	}
	return b.String()
}

// preference is a member of Accept-Encoding or Accept-Language.
type preference struct {
	name string // in lower case
	q    int    // weight in thousandths (RFC 9110, 12.4.2)
}

// weighed reads a list of names with weights, the heaviest first and by name
// among equals. ok is false when it is written otherwise or names one twice.
func weighed(lines []string) (wishes []preference, ok bool) {
	for member := range field.Members(lines) {
		name, parameter, weighted := strings.Cut(member, ";")
		w := preference{name: field.Lower(strings.TrimRight(name, " \t")), q: 1000}
		if weighted {
			if w.q, ok = weight(strings.TrimLeft(parameter, " \t")); !ok {
				return nil, false
			}
		}
		// RFC 9110, 8.4.1: x-gzip and x-compress are gzip and compress.
		if rest, old := strings.CutPrefix(w.name, "x-"); old && (rest == "gzip" || rest == "compress") {
			w.name = rest
		}
		if !field.Token(w.name) {
			return nil, false
		}
		wishes = append(wishes, w)
	}
	slices.SortStableFunc(wishes, func(a, b preference) int { return strings.Compare(a.name, b.name) }) // as below: one sort less in the program
	for i := 1; i < len(wishes); i++ {
		if wishes[i].name == wishes[i-1].name {
			return nil, false
		}
	}
	slices.SortStableFunc(wishes, func(a, b preference) int { return b.q - a.q })
	return wishes, true
}

// weight reads q=0.5: a number from 0 to 1 with at most three decimals.
func weight(s string) (q int, ok bool) {
	if len(s) < 2 || s[0]|0x20 != 'q' || s[1] != '=' {
		return 0, false
	}
	return field.Weight(s[2:])
}

// ranking writes wishes down in the order of their weights: "br,gzip>deflate",
// and "!x" for what is refused. Without keepRefused, refusals that change
// nothing are left out: only what would otherwise be acceptable unasked, which
// is identity and, through it, *, can be refused (RFC 9110, 12.5.3).
func ranking(wishes []preference, keepRefused bool) string {
	var b strings.Builder
	for i, w := range wishes {
		if w.q == 0 {
			if keepRefused || w.name == "identity" || w.name == "*" {
				b.WriteByte('!')
				b.WriteString(w.name)
			}
			continue
		}
		if i > 0 {
			if w.q == wishes[i-1].q {
				b.WriteByte(',')
			} else {
				b.WriteByte('>')
			}
		}
		b.WriteString(w.name)
	}
	return b.String()
}

// preferred is the language that the wishes give the most weight, "" if none.
func preferred(wishes []preference, languages []string) string {
	best, most := "", 0
	for _, l := range languages {
		l = field.Lower(l)
		if q := languageWeight(wishes, l); q > most {
			best, most = l, q
		}
	}
	return best
}

// languageWeight is the weight of the longest range that covers a language, as
// de covers de-CH (RFC 4647, 3.3.1), else of one that falls back to it, as
// de-AT does to de (3.4), else of *.
func languageWeight(wishes []preference, language string) int {
	longest, q := -1, 0
	for _, w := range wishes {
		if (w.name == language || strings.HasPrefix(language, w.name+"-")) && len(w.name) > longest {
			longest, q = len(w.name), w.q
		}
	}
	if longest >= 0 {
		return q
	}
	for _, w := range wishes { // the heaviest first
		if strings.HasPrefix(w.name, language+"-") && w.q > 0 {
			return w.q
		}
	}
	for _, w := range wishes {
		if w.name == "*" {
			return w.q
		}
	}
	return 0
}
