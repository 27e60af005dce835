package rules

import (
	"slices"
	"strings"

	"millrace/internal/wire/field"
)

// Scrub removes from a request, in place, what is not in the key, so that it cannot
// influence an answer that others get.
func (s *Settings) Scrub(request *field.Lines) {
	*request = slices.DeleteFunc(*request, func(l field.Line) bool {
		return !s.passes(l.Name) || s.Auth == Dropped && l.Name == "Authorization" || s.Cookies == Dropped && l.Name == "Cookie"
	})
	if s.Cookies == Keyed && len(s.listed) > 0 {
		kept := cookiesNamed(request.Values("Cookie"), s.listed)
		request.Delete("Cookie")
		if len(kept) > 0 {
			request.Add("Cookie", strings.Join(kept, "; "))
		}
	}
}

// passes reports whether a request field reaches the upstream where the answer
// may be for others. Not those by which an upstream answers for another URL,
// host or method than the one in the key; nor a description of content that is
// not there; nor names that some upstream takes for another field (see package
// fieldname), as the key and Vary know that by its own name. What the key has
// passes, in the spelling that the key has.
func (s *Settings) passes(name string) bool {
	if keyed, ok := s.spelled[field.Fold(name)]; ok {
		return name == keyed
	}
	switch name {
	case "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto": // made here, of what is in the key
		return true
	case "Te", // trailers would keep an answer from being stored
		"Early-Data": // nobody's was early here, and a 425 is for nobody else (RFC 8470, 5.1)
		return false
	}
	switch {
	case !field.Plain(name), field.Override(name), strings.HasPrefix(name, "Content-"):
		return false
	}
	return !field.Claim(name) || field.Address(name)
}

// cookiesNamed are the cookies of these names, with their values.
func cookiesNamed(lines, names []string) (kept []string) {
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.TrimSpace(pair)
			name, _, _ := strings.Cut(pair, "=")
			if slices.Contains(names, name) {
				kept = append(kept, pair)
			}
		}
	}
	return kept
}
