package purge

import (
	"errors"
	"fmt"
	"strings"

	"millrace/internal/wire/field"
)

// Selector says what to purge. Exactly one of its fields is set. The package
// comment says what each of them matches.
type Selector struct {
	URL    string `json:"url,omitempty"`    // scheme://host/path?query: all variants
	Prefix string `json:"prefix,omitempty"` // of such a URL
	Glob   string `json:"glob,omitempty"`   // * is any run of characters, ? any one
	Tag    string `json:"tag,omitempty"`
	Host   string `json:"host,omitempty"`
	All    bool   `json:"all,omitempty"`
	// Hard removes; otherwise what is purged is stale, and may be served
	// where stale answers may be.
	Hard bool `json:"hard,omitempty"`
}

// mostPattern is the length of a prefix or glob: they are kept whole.
const mostPattern = 2048

// Check says what is wrong with a selector, for the one who typed it.
func (s Selector) Check() error {
	_, err := s.entry()
	return err
}

// The kinds of entries, as they are saved.
const (
	kindAll    = 'a'
	kindTag    = 't'
	kindURL    = 'u'
	kindHost   = 'h'
	kindPrefix = 'p'
	kindGlob   = 'g'
)

// entry is a selector in the form it is remembered and compared in.
type entry struct {
	kind byte
	// text has its host in lower case and no default port.
	text string
	host string // that everything it matches is on, without the port; "": any
	// scheme tells that a prefix or glob is compared with the whole URL, not
	// with what follows "://".
	scheme bool
	glob   glob // of kindGlob
}

func (s Selector) entry() (entry, error) {
	set, kind, text := 0, byte(kindAll), ""
	for _, f := range []struct {
		kind byte
		text string
	}{{kindURL, s.URL}, {kindPrefix, s.Prefix}, {kindGlob, s.Glob}, {kindTag, s.Tag}, {kindHost, s.Host}} {
		if f.text != "" {
			set, kind, text = set+1, f.kind, f.text
		}
	}
	if s.All {
		set++
	}
	switch {
	case set == 0:
		return entry{}, errors.New("nothing to purge: name a url, prefix, glob, tag, host or all")
	case set > 1:
		return entry{}, errors.New("more than one of url, prefix, glob, tag, host and all: purge them one after the other")
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return entry{}, fmt.Errorf("%q holds a control character", text)
	}
	return parseEntry(kind, text)
}

// parseEntry reads what a person has typed, or what was saved.
func parseEntry(kind byte, text string) (entry, error) {
	switch kind {
	case kindAll:
		return entry{kind: kind}, nil
	case kindTag:
		return tagEntry(text)
	case kindHost:
		return hostEntry(text)
	case kindURL:
		return urlEntry(text)
	case kindPrefix:
		return prefixEntry(text)
	case kindGlob:
		return globEntry(text)
	}
	return entry{}, fmt.Errorf("unknown kind %q", kind)
}

func tagEntry(text string) (entry, error) {
	if text = strings.Trim(text, " "); text == "" {
		return entry{}, errors.New("an empty tag")
	}
	return entry{kind: kindTag, text: text}, nil
}

func hostEntry(text string) (entry, error) {
	if strings.ContainsAny(text, "*?") {
		return entry{}, fmt.Errorf("host %q holds a wildcard: purge the glob %q", text, text+"/*")
	}
	host := strings.TrimSuffix(field.Lower(text), ":")
	if err := checkHost(host); err != nil {
		return entry{}, err
	}
	name, _ := cutPort(host)
	return entry{kind: kindHost, text: host, host: name}, nil
}

func urlEntry(text string) (entry, error) {
	if strings.ContainsRune(text, ' ') {
		return entry{}, fmt.Errorf("URL %q holds a space: write %%20", text)
	}
	p := cut(text)
	if err := p.check(text); err != nil {
		return entry{}, err
	}
	name, _ := cutPort(p.host)
	return entry{kind: kindURL, text: p.join(), host: name}, nil
}

func prefixEntry(text string) (entry, error) {
	if err := checkPattern("prefix", text); err != nil {
		return entry{}, err
	}
	p := cut(text)
	e := entry{kind: kindPrefix, text: p.join(), scheme: p.scheme != ""}
	if _, rest := cutScheme(text); !strings.ContainsAny(rest, "/?") {
		e.text = strings.TrimSuffix(e.text, "/") // the host may go on
		if p.host == "" && p.scheme != "" {
			p.host = "any" // https:// alone
		}
	} else {
		e.host, _ = cutPort(p.host)
	}
	if err := p.check(text); err != nil {
		return entry{}, err
	}
	return e, checkLength("prefix", e.text)
}

func globEntry(text string) (entry, error) {
	if err := checkPattern("glob", text); err != nil {
		return entry{}, err
	}
	scheme, rest := cutScheme(text)
	host, _, whole := strings.Cut(rest, "/")
	e := entry{kind: kindGlob, scheme: scheme != ""}
	switch star := strings.IndexByte(host, '*'); {
	case star >= 0: // what follows may be a path
		e.text = field.Lower(host[:star]) + rest[star:]
	case !whole:
		return entry{}, fmt.Errorf("glob %q matches nothing, since every URL has a path: write %s/*", text, text)
	case strings.Contains(host, "?"):
		e.text = field.Lower(host) + rest[len(host):]
	default:
		p := cut(text)
		if !strings.ContainsAny(scheme, "*?") {
			if err := p.check(text); err != nil {
				return entry{}, err
			}
		}
		scheme, e.scheme = p.scheme, p.scheme != ""
		e.text = p.host + p.path
		e.host, _ = cutPort(p.host)
	}
	if e.scheme {
		e.text = scheme + "://" + e.text
	}
	if err := checkLength("glob", e.text); err != nil {
		return entry{}, err
	}
	var err error
	e.glob, err = compile(e.text)
	return e, err
}

// checkPattern says what is wrong with a prefix or glob, and what could never match.
func checkPattern(what, text string) error {
	switch {
	case text == "" || text == "//":
		return fmt.Errorf("an empty %s", what)
	case strings.ContainsAny(text, "# "):
		return fmt.Errorf("%s %q holds a # or a space, which no request has", what, text)
	case text[0] == '/' && !strings.HasPrefix(text, "//"):
		return fmt.Errorf("%s %q has no host: write example.com%s, or for all hosts the glob *%s", what, text, text, strings.TrimSuffix(text, "*")+"*")
	}
	return nil
}

func checkLength(what, text string) error {
	if len(text) > mostPattern {
		return fmt.Errorf("a %s of %d bytes: at most %d are possible", what, len(text), mostPattern)
	}
	return nil
}

func (e *entry) matches(p *place) bool {
	text := p.bare
	if e.scheme {
		text = p.url
	}
	if e.kind == kindGlob {
		return e.glob.match(text)
	}
	return strings.HasPrefix(text, e.text)
}
