package key

import (
	"slices"
	"strings"
)

// maxParams is how many parameters a query may have to be edited. Pages use a
// few; a query of thousands is made to cost time, and counts as it came.
const maxParams = 256

// tracking are the parameters that DropTracking leaves out: they are added to
// links by advertisers' and mailers' systems, and are read by scripts in the page.
var tracking = []string{
	"utm_*",                                                                        // Google Analytics and whoever imitates it
	"gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", // Google Ads
	"_ga", "_gl", "srsltid",
	"fbclid", "igsh", "igshid", // Meta
	"msclkid",         // Microsoft
	"yclid", "ysclid", // Yandex
	"twclid",    // X
	"ttclid",    // TikTok
	"li_fat_id", // LinkedIn
	"epik",      // Pinterest
	"rdt_cid",   // Reddit
	"ScCid",     // Snapchat
	"irclickid",
	"mc_cid", "mc_eid", // Mailchimp
	"_hsenc", "_hsmi", "__hstc", "__hssc", "__hsfp", "hsCtaTracking", // HubSpot
	"mkt_tok",              // Marketo
	"vero_id", "vero_conv", // Vero
	"_kx",                       // Klaviyo
	"oly_anon_id", "oly_enc_id", // Omeda
	"wickedid",
	"mtm_*", "pk_campaign", "pk_kwd", "pk_source", "pk_medium", // Matomo
}

// names is a list of parameter names, some of which end in *.
type names struct {
	exact    map[string]bool
	prefixes []string
}

func makeNames(lists ...[]string) names {
	n := names{exact: map[string]bool{}}
	for _, list := range lists {
		for _, name := range list {
			if prefix, ok := strings.CutSuffix(name, "*"); ok {
				n.prefixes = append(n.prefixes, prefix)
			} else {
				n.exact[name] = true
			}
		}
	}
	return n
}

func (n names) has(name string) bool {
	return n.exact[name] || slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// editor removes from a query what does not count. The zero value changes nothing.
type editor struct {
	active bool
	none   bool // nothing counts
	sort   bool
	all    bool  // all but drop count; else only keep
	keep   names // by their fold
	drop   names // as written
}

func newEditor(o Options) editor {
	e := editor{none: o.NoQuery, sort: o.SortQuery, all: len(o.Query) == 0}
	e.active = e.none || e.sort || !e.all || o.DropTracking || len(o.WithoutQuery) > 0
	var folded []string
	for _, name := range o.Query {
		prefix, star := strings.CutSuffix(name, "*")
		name = fold(prefix)
		if star {
			name += "*"
		}
		folded = append(folded, name)
	}
	e.keep = makeNames(folded)
	e.drop = makeNames(o.WithoutQuery)
	if o.DropTracking {
		e.drop = makeNames(o.WithoutQuery, tracking)
	}
	return e
}

// param is one parameter of a query, as it came.
type param struct {
	text string
	name string // folded
}

// edit returns what counts of a query, and whether there is anything: when all
// parameters have been left out, the question mark goes too.
func (e *editor) edit(query string) (counts string, found bool) {
	switch {
	case !e.active:
		return query, true
	case e.none:
		return "", false
	case query == "", strings.IndexByte(query, ';') >= 0, strings.Count(query, "&") >= maxParams:
		return query, true
	}
	var space [32]param
	params, rest, more := space[:0], query, true
	for more {
		var text string
		text, rest, more = strings.Cut(rest, "&")
		params = append(params, param{text: text})
	}
	before := len(params)
	params = slices.DeleteFunc(params, func(p param) bool { return !e.counts(p.text) })
	changed := len(params) < before
	if len(params) == 0 {
		return "", false
	}
	if e.sort && sortParams(params) {
		changed = true
	}
	if !changed {
		return query, true
	}
	b := make([]byte, 0, len(query))
	for i, p := range params {
		if i > 0 {
			b = append(b, '&')
		}
		b = append(b, p.text...)
	}
	return string(b), true
}

// counts reports whether a parameter belongs into the key: dropped is only what
// is written as listed, kept whatever may be read as listed.
func (e *editor) counts(text string) bool {
	name, _, _ := strings.Cut(text, "=")
	if e.drop.has(name) {
		return false
	}
	return e.all || e.keep.has(fold(name))
}

// sortParams sorts by name and reports whether that changed anything. Those of
// one name keep their order, which tells upstreams which one to believe; what
// is one name to some upstream is so here.
func sortParams(params []param) bool {
	byName := func(a, b param) int { return strings.Compare(a.name, b.name) }
	for i := range params {
		name, _, _ := strings.Cut(params[i].text, "=")
		params[i].name = fold(name)
	}
	if slices.IsSortedFunc(params, byName) {
		return false
	}
	slices.SortStableFunc(params, byName)
	return true
}

// fold makes names equal that some upstream takes for the same: percent-encoded
// or not, in capitals or not, with an index in brackets, or with a dot or space
// for which PHP writes an underscore.
func fold(name string) string {
	if !strings.ContainsFunc(name, foldable) {
		return name
	}
	b := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' && i+2 < len(name) {
			if high, low := unhex(name[i+1]), unhex(name[i+2]); high < 16 && low < 16 {
				c, i = high<<4|low, i+2
			}
		}
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c == '[' || c == 0:
			return string(b)
		case c == '+' || c == ' ':
			if len(b) == 0 {
				continue
			}
			c = '_'
		case c == '.':
			c = '_'
		}
		b = append(b, c)
	}
	return string(b)
}

func foldable(c rune) bool {
	return c >= 'A' && c <= 'Z' || c == '%' || c == '[' || c == '+' || c == '.' || c <= ' '
}

// unhex is the value of a hex digit, 16 or more of anything else.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}

// Normal is a target or URL in which percent-encodings that mean the same are
// written in one way: with capital digits, and not at all for unreserved
// characters (RFC 3986, 6.2.2). Nothing else is touched: %2F stays, which is
// not a slash, and so do dots. Keys are not made of it; purging compares it.
func Normal(target string) string {
	i := strings.IndexByte(target, '%')
	if i < 0 {
		return target
	}
	b := append(make([]byte, 0, len(target)), target[:i]...)
	for ; i < len(target); i++ {
		if target[i] != '%' || i+2 >= len(target) {
			b = append(b, target[i])
			continue
		}
		high, low := unhex(target[i+1]), unhex(target[i+2])
		if high > 15 || low > 15 {
			b = append(b, target[i])
			continue
		}
		if c := high<<4 | low; unreserved(c) {
			b = append(b, c)
		} else {
			b = appendEncoded(b, c)
		}
		i += 2
	}
	return string(b)
}

// unreserved is RFC 3986, 2.3.
func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
