package plan

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/internal/route/match"
)

// Cond is what must hold of a request, all of it: the conditions of a rule
// (docs/routes.md). Lists may name what is excluded, with "!" in front.
type Cond struct {
	Protocol string // http or https
	Host     []string
	Path     string // a pattern; "" is every path
	Regex    string // instead of Path
	Within   []string
	Except   []string
	Method   []string
	Address  []string
	Header   map[string]string
	Query    map[string]string
	Cookie   map[string]string
}

// Node are the conditions as a rule has them.
func (c Cond) Node() *draft.Node {
	n := draft.Map()
	verbatim := func(key string, list []string) {
		l := draft.List().Flow()
		for _, s := range draft.Unique(list) {
			l.Add(draft.Verbatim(s))
		}
		n.Fill(key, l)
	}
	if c.Protocol != "" {
		n.Set("protocol", draft.Text(c.Protocol))
	}
	n.FillTexts("host", c.Host)
	switch {
	case c.Regex != "":
		n.Set("regex", draft.Verbatim(c.Regex))
	case c.Path != "":
		n.Set("path", draft.Text(c.Path))
	}
	verbatim("within", c.Within)
	verbatim("except", c.Except)
	n.FillTexts("method", c.Method)
	n.FillTexts("address", c.Address)
	for _, m := range []struct {
		key    string
		values map[string]string
	}{{"header", c.Header}, {"query", c.Query}, {"cookie", c.Cookie}} {
		values := draft.Map().Flow()
		for _, name := range slices.Sorted(maps.Keys(m.values)) {
			values.Set(name, draft.Verbatim(m.values[name]))
		}
		n.Fill(m.key, values)
	}
	return n
}

// Everything reports whether they hold for every request.
func (c Cond) Everything() bool {
	return c.EveryPath() && len(c.Within)+len(c.Except) == 0 && c.Path == "" && c.Regex == ""
}

// EveryPath reports whether nothing but the path has a say.
func (c Cond) EveryPath() bool {
	return c.Protocol == "" && len(c.Host)+len(c.Method)+len(c.Address)+len(c.Header)+len(c.Query)+len(c.Cookie) == 0
}

// Exactly is the condition that a path is just this one: as a pattern, one that ends in a
// slash would also match what is below it.
func Exactly(path string) Cond {
	if strings.HasSuffix(path, "/") || strings.ContainsAny(path, "*?#") {
		return Cond{Regex: "^" + regexp.QuoteMeta(path) + "$"}
	}
	return Cond{Path: path}
}

// ErrNever is that of conditions that never hold together.
var ErrNever = errors.New("its conditions never hold together")

// And are the conditions of both. Captures are those of c's path, unless it is every one.
func (c Cond) And(o Cond) (Cond, error) {
	if c.Protocol != "" && o.Protocol != "" && c.Protocol != o.Protocol {
		return c, ErrNever
	}
	if c.Protocol == "" {
		c.Protocol = o.Protocol
	}
	switch {
	case c.Path == "" && c.Regex == "":
		c.Path, c.Regex = o.Path, o.Regex
	case o.Regex != "" && o.Regex != c.Regex:
		c = c.In([]string{"~" + o.Regex}, nil)
	case o.Path != "" && o.Path != c.Path:
		c = c.In([]string{o.Path}, nil)
	}
	c = c.In(o.Within, o.Except)
	var errs [6]error
	c.Host, errs[0] = both("hosts", c.Host, o.Host)
	c.Method, errs[1] = both("methods", c.Method, o.Method)
	c.Address, errs[2] = networks(c.Address, o.Address)
	c.Header, errs[3] = values(c.Header, o.Header)
	c.Query, errs[4] = values(c.Query, o.Query)
	c.Cookie, errs[5] = values(c.Cookie, o.Cookie)
	for _, err := range errs {
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// In are the conditions for the part of their paths that match all of some patterns and
// none of others. Patterns that say nothing new are left out.
func (c Cond) In(within, except []string) Cond {
	begins := c.Path
	if c.Regex != "" {
		begins = match.LiteralPrefix(c.Regex)
	}
	c.Within, c.Except = slices.Clone(c.Within), draft.Unique(slices.Concat(c.Except, except))
	for _, w := range within {
		prefix, is := strings.CutSuffix(w, "**")
		if !is && strings.HasSuffix(w, "/") {
			prefix, is = w, true
		}
		if !is || strings.HasPrefix(w, "~") || strings.Contains(prefix, "*") || prefix != "/" && !strings.HasPrefix(begins, prefix) {
			c.Within = draft.AppendNew(c.Within, w)
		}
	}
	return c
}

// Below is a pattern for the paths that begin with a text, and no others.
func Below(path string) string {
	if strings.ContainsAny(path, "*?#") {
		return "~^" + regexp.QuoteMeta(path)
	}
	return path + "**"
}

// Covers reports whether c certainly holds wherever o does, whatever their paths.
func (c Cond) Covers(o Cond) bool {
	same := func(a, b map[string]string) bool {
		for k, v := range a {
			if have, named := b[k]; !named || have != v { // "" is said of what must be missing
				return false
			}
		}
		return true
	}
	return (c.Protocol == "" || c.Protocol == o.Protocol) && contains(c.Host, o.Host) && contains(c.Method, o.Method) && (c.Address == nil || slices.Equal(c.Address, o.Address)) &&
		same(c.Header, o.Header) && same(c.Query, o.Query) && same(c.Cookie, o.Cookie)
}

// contains reports whether each value that list b allows is allowed by a; nil allows
// everything.
func contains(a, b []string) bool {
	all := func(list, in []string) bool {
		return !slices.ContainsFunc(list, func(v string) bool { return !slices.Contains(in, v) })
	}
	switch {
	case len(a) == 0:
		return true
	case len(b) == 0:
		return false
	case negative(a[0]) && negative(b[0]):
		return all(a, b)
	case negative(a[0]):
		return !slices.ContainsFunc(b, func(v string) bool { return slices.Contains(a, "!"+v) })
	}
	return !negative(b[0]) && all(b, a)
}

// Overlaps reports whether both may hold for one request, whatever their paths.
func (c Cond) Overlaps(o Cond) bool {
	apart := func(a, b []string) bool {
		if len(a) == 0 || len(b) == 0 || negative(a[0]) || negative(b[0]) {
			return false
		}
		return !slices.ContainsFunc(a, func(v string) bool {
			return slices.ContainsFunc(b, func(w string) bool { return v == w || strings.Contains(v+w, "*") })
		})
	}
	return !apart(c.Host, o.Host) && !apart(c.Method, o.Method) && (c.Protocol == "" || o.Protocol == "" || c.Protocol == o.Protocol)
}

func negative(s string) bool { return strings.HasPrefix(s, "!") }

// both is a list of what two others allow; nil allows everything.
func both(what string, a, b []string) ([]string, error) {
	switch {
	case len(a) == 0:
		return b, nil
	case len(b) == 0 || slices.Equal(a, b):
		return a, nil
	case negative(a[0]) && negative(b[0]):
		return draft.Unique(slices.Concat(a, b)), nil
	case negative(a[0]):
		a, b = b, a
	}
	excluded := negative(b[0])
	list := slices.DeleteFunc(slices.Clone(a), func(v string) bool {
		if excluded {
			return slices.Contains(b, "!"+v)
		}
		return !slices.Contains(b, v)
	})
	if len(list) > 0 {
		return list, nil
	}
	if slices.ContainsFunc(slices.Concat(a, b), func(v string) bool { return strings.Contains(v, "*") }) {
		return nil, fmt.Errorf("a rule has one list of %s", what)
	}
	return nil, ErrNever
}

// Network is an address or a network, with its host bits cleared: also 10.0.0.0/255.0.0.0,
// and 10.1 as mod_access_compat has it.
func Network(text string) (string, error) {
	if part := strings.TrimSuffix(text, "."); regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){0,2}$`).MatchString(part) {
		n := strings.Count(part, ".") + 1
		text = fmt.Sprint(part, strings.Repeat(".0", 4-n), "/", 8*n)
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String(), nil
	}
	if address, mask, ok := strings.Cut(text, "/"); ok {
		if ip := net.ParseIP(mask).To4(); ip != nil {
			bits, size := net.IPMask(ip).Size()
			if a, err := netip.ParseAddr(address); err == nil && size == 32 && a.Is4() {
				return netip.PrefixFrom(a, bits).Masked().String(), nil
			}
		}
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return "", fmt.Errorf("%q is neither an address nor a network", text)
	}
	return p.Masked().String(), nil
}

// networks are the addresses that two lists allow.
func networks(a, b []string) ([]string, error) {
	positive := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return !negative(s) })
	}
	if positive(a) && positive(b) && !slices.Equal(a, b) {
		return nil, errors.New("a rule has one list of addresses")
	}
	return draft.Unique(slices.Concat(a, b)), nil
}

// values are two sets of values as one.
func values(a, b map[string]string) (map[string]string, error) {
	if len(a) == 0 {
		return b, nil
	}
	out := maps.Clone(a)
	for name, v := range b {
		switch old, has := out[name]; {
		case !has || old == v:
			out[name] = v
		case negative(old) && negative(v): // neither one nor the other
			out[name] = "!~(?:" + asExpression(old[1:]) + ")|(?:" + asExpression(v[1:]) + ")"
		default:
			return nil, fmt.Errorf("a rule compares %s once: put both conditions together", name)
		}
	}
	return out, nil
}

// asExpression is a value of a rule as an expression.
func asExpression(v string) string {
	if expr, is := strings.CutPrefix(v, "~"); is {
		return expr
	}
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, ".*") + "$"
}

// Value is the comparison with a text as a rule writes it; not: that it is another.
func Value(text string, not bool) string {
	if strings.Contains(text, "*") || strings.HasPrefix(text, "!") || strings.HasPrefix(text, "~") {
		text = "~^" + regexp.QuoteMeta(text) + "$"
	}
	if not {
		return "!" + text
	}
	return text
}

// Match is the comparison with an expression; not: that it does not match.
func Match(expr string, not bool) string {
	if not {
		return "!~" + expr
	}
	return "~" + expr
}
