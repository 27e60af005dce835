package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Way is one of the ways in which a condition of the original holds.
type Way struct {
	Cond
	Groups map[int]string // what the groups of its expression are, where that is known
}

// Comparison is one of a value of the request with a text, or with an expression.
type Comparison struct {
	Not  bool
	Expr string // as RE2; "": it is Text
	Text string
}

// Holds reports whether it does for a value.
func (c Comparison) Holds(value string) bool {
	if c.Expr == "" {
		return (value == c.Text) != c.Not
	}
	return regexp.MustCompile(c.Expr).MatchString(value) != c.Not
}

// Expression is what is compared with, as an expression.
func (c Comparison) Expression() string {
	if c.Expr == "" {
		return "^" + regexp.QuoteMeta(c.Text) + "$"
	}
	return c.Expr
}

// Value is the comparison as a rule writes it: a text, or ~ and an expression.
func (c Comparison) Value() string {
	if c.Expr == "" {
		return Value(c.Text, c.Not)
	}
	if text, ok := Literal(c.Expr); ok && !strings.ContainsAny(text, "*!~") {
		return Value(text, c.Not)
	}
	return Match(c.Expr, c.Not)
}

// Protocol are the ways for a value that is one text over TLS and another over plain HTTP.
func (c Comparison) Protocol(secure, plain string) []Way {
	switch s, p := c.Holds(secure), c.Holds(plain); {
	case s && p:
		return []Way{{}}
	case s:
		return []Way{{Cond: Cond{Protocol: "https"}}}
	case p:
		return []Way{{Cond: Cond{Protocol: "http"}}}
	}
	return nil
}

// Hosts are the ways for the host. Where the names of the site are known, those for which
// it holds are written; there is no way where these are none.
func (t *Site) Hosts(c Comparison) (ways []Way) {
	names := slices.DeleteFunc(slices.Clone(t.Server.Names), func(n string) bool { return strings.HasPrefix(n, "*") })
	expr := strings.TrimPrefix(c.Expression(), "(?i)")
	re := regexp.MustCompile("(?i)" + expr)
	for _, name := range names {
		m := re.FindStringSubmatch(name)
		switch {
		case c.Not || m == nil:
		case len(ways) > 0 && len(m) == 1: // nothing else tells them apart
			ways[0].Host = append(ways[0].Host, name)
		default:
			w := Way{Cond: Cond{Host: []string{name}}, Groups: map[int]string{}}
			for i, text := range m {
				w.Groups[i] = text
			}
			ways = append(ways, w)
		}
	}
	known := len(names) > 0 && len(names) == len(t.Server.Names) && !t.Server.Any
	switch {
	case len(ways) > 0, known && !c.Not:
		return ways
	case c.Expr == "" && !c.Not:
		return []Way{{Cond: Cond{Host: []string{strings.ToLower(c.Text)}}}}
	}
	if body, is := strings.CutSuffix(expr, "$"); is && !strings.HasSuffix(body, `\`) {
		expr = body + `\.?(?::\d+)?$`
	}
	return []Way{{Cond: Header("Host", Match("(?i)"+expr, c.Not))}}
}

// Header is a condition on a field of the request.
func Header(field, value string) Cond { return Cond{Header: map[string]string{field: value}} }

// Paths is the condition on the path.
func (c Comparison) Paths() Cond {
	switch {
	case c.Not:
		return Cond{Except: []string{"~" + c.Expression()}}
	case c.Expr == "":
		return Exactly(c.Text)
	}
	return Cond{Regex: c.Expr}
}

// Methods is the condition on the method: an expression is a list of them, as in
// ^(GET|POST)$.
func (c Comparison) Methods() (Cond, error) {
	list := regexp.MustCompile(`^\^?\(?(?:\?:)?([A-Za-z|]+)\)?\$?$`).FindStringSubmatch(strings.TrimPrefix(c.Expression(), "(?i)"))
	if list == nil || slices.Contains(strings.Split(list[1], "|"), "") {
		return Cond{}, fmt.Errorf("methods are a list, as in [GET, POST]: %s is another expression", c.Expression())
	}
	var methods []string
	for name := range strings.SplitSeq(strings.ToUpper(list[1]), "|") {
		if c.Not {
			name = "!" + name
		}
		methods = append(methods, name)
	}
	return Cond{Method: methods}, nil
}

// Addresses is the condition on the client's address: an expression is a network, as in
// ^10\.1\.
func (c Comparison) Addresses() (Cond, error) {
	text := c.Text
	if c.Expr != "" {
		var whole bool
		if text, whole = Literal(c.Expr); !whole {
			part, _ := strings.CutPrefix(c.Expr, "^")
			if text = strings.ReplaceAll(part, `\.`, "."); part == c.Expr || !strings.HasSuffix(text, ".") {
				text = "" // 10.1 would also be 10.10
			}
		}
	}
	network, err := Network(text)
	if _, bad := netip.ParseAddr(text); err != nil || bad != nil && !strings.HasSuffix(text, ".") && !strings.Contains(text, "/") {
		return Cond{}, errors.New("write address with the networks that are meant")
	}
	if c.Not {
		network = "!" + network
	}
	return Cond{Address: []string{network}}, nil
}

// Literal is the one text that an expression with ^ and $ matches, if it is just a text.
func Literal(expr string) (string, bool) {
	body, begins := strings.CutPrefix(expr, "^")
	body, ends := strings.CutSuffix(body, "$")
	text := regexp.MustCompile(`\\([^A-Za-z0-9])`).ReplaceAllString(body, "$1")
	return text, begins && ends && regexp.QuoteMeta(text) == body
}
