package rules

import (
	"net/url"
	"strings"

	"millrace/cache/key"
	"millrace/cache/purge"
)

// Alike returns what a purge has to cover: the selector itself, and for a URL also
// what requests for other URLs have stored under the same key.
func (b *Rules) Alike(s purge.Selector) []purge.Selector {
	list := []purge.Selector{s}
	if s.URL == "" {
		return list
	}
	texts := []string{s.URL}
	if before, _, found := strings.Cut(s.URL, "://"); !found || strings.ContainsAny(before, "/?.:") {
		bare := strings.TrimPrefix(s.URL, "//")
		texts = []string{"http://" + bare, "https://" + bare}
	}
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			continue // no request has such a URL
		}
		set := b.ForRequest(u.Path)
		front, _ := set.Key.ForURL(u.Scheme, u.Host, u.RequestURI())
		if set.Edits {
			list = append(list, purge.Selector{Tag: KeyTag(front), Hard: s.Hard})
		}
		if set.ByHost && (set.Edits || key.Normal(front) != text) { // as when it names a port that needs no name
			list = append(list, purge.Selector{URL: key.Normal(front), Hard: s.Hard})
		}
	}
	return list
}

// KeyTag is the tag of what is stored under a key that begins so, for requests
// of another URL. No upstream can send it: its tags hold no space.
func KeyTag(front string) string { return "key " + key.Normal(front) }
