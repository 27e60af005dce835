// Package match decides which requests a rule of a site is for: by path, with
// captures, and by what else a request says. Everything is compiled once; a
// request is only compared.
package match

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// maxExpression bounds a regular expression, in bytes. They are RE2's: the time
// that one takes grows with the path's length and with nothing else.
const maxExpression = 1000

// maxGroups bounds the captures of one pattern.
const maxGroups = 32

// Path is a pattern for paths.
type Path struct {
	text   string // as it was written
	kind   pathKind
	prefix string // that every path has which matches; with it most requests are told apart
	re     *regexp.Regexp
}

type pathKind int

const (
	anyPath pathKind = iota
	exactPath
	prefixPath
	expression
)

// IsGlob reports whether a path has stars, and so is a pattern.
func IsGlob(path string) bool { return strings.Contains(path, "*") }

// NewPath compiles a pattern: "/a" is only that path, "/a/" also everything
// below it, in "/a/*.png" a star stands for some characters of one segment, and
// two for characters of any. Each star is a capture. "" is every path.
func NewPath(pattern string) (*Path, error) {
	p := &Path{text: pattern, prefix: pattern}
	switch {
	case pattern == "":
		return p, nil
	case pattern[0] != '/':
		return nil, fmt.Errorf("a path begins with \"/\", %q does not", pattern)
	case strings.ContainsAny(pattern, "?#"):
		return nil, fmt.Errorf("%q is no path: it holds \"?\" or \"#\"", pattern)
	case IsGlob(pattern):
		return newExpression(pattern, globExpression(pattern))
	case strings.HasSuffix(pattern, "/"):
		p.kind = prefixPath
	default:
		p.kind = exactPath
	}
	return p, nil
}

// globExpression is a glob as a regular expression.
func globExpression(glob string) string {
	var b strings.Builder
	b.WriteString("^")
	for rest := glob; rest != ""; {
		i := strings.IndexByte(rest, '*')
		if i < 0 {
			b.WriteString(regexp.QuoteMeta(rest))
			break
		}
		b.WriteString(regexp.QuoteMeta(rest[:i]))
		if strings.HasPrefix(rest[i:], "**") {
			b.WriteString("(?s:(.*))")
			rest = strings.TrimLeft(rest[i:], "*")
			continue
		}
		b.WriteString("([^/]*)")
		rest = rest[i+1:]
	}
	b.WriteString("$")
	return b.String()
}

// NewExpression compiles a regular expression (RE2) for paths. It is looked for
// anywhere in the path, unless it begins with ^ or ends in $.
func NewExpression(expression string) (*Path, error) {
	return newExpression("~"+expression, expression)
}

func newExpression(text, source string) (*Path, error) {
	if len(source) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, plainError(source, err)
	}
	if re.NumSubexp() > maxGroups {
		return nil, fmt.Errorf("the expression has more than %d groups", maxGroups)
	}
	return &Path{text: text, kind: expression, re: re, prefix: LiteralPrefix(source)}, nil
}

// plainError says what is wrong with an expression, and what to write instead.
func plainError(source string, err error) error {
	var bad *syntax.Error
	if errors.As(err, &bad) {
		switch {
		case bad.Code == syntax.ErrInvalidPerlOp:
			return fmt.Errorf("%q cannot be used here: expressions are RE2's, which look neither ahead (?=, ?!) nor behind: write a rule before it for the exception", bad.Expr)
		case strings.Contains(source, `\1`):
			return fmt.Errorf("%q refers back to a group, which RE2 cannot", source)
		}
		return fmt.Errorf("%q is not a regular expression: %s: %q", source, bad.Code, bad.Expr)
	}
	return fmt.Errorf("%q is not a regular expression: %w", source, err)
}

// LiteralPrefix is what every path begins with that an expression matches.
func LiteralPrefix(source string) string {
	re, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return ""
	}
	re = re.Simplify()
	if re.Op != syntax.OpConcat || len(re.Sub) < 2 || re.Sub[0].Op != syntax.OpBeginText {
		return ""
	}
	if lit := re.Sub[1]; lit.Op == syntax.OpLiteral && lit.Flags&syntax.FoldCase == 0 {
		return string(lit.Rune)
	}
	return ""
}

// String is the pattern as it was written; one of an expression begins with ~.
func (p *Path) String() string {
	if p.text == "" {
		return "every path"
	}
	return p.text
}

// Matches reports whether a clean path matches.
func (p *Path) Matches(path string) bool {
	switch p.kind {
	case exactPath:
		return path == p.prefix
	case prefixPath:
		return strings.HasPrefix(path, p.prefix) || path == p.prefix[:len(p.prefix)-1]
	case expression:
		return strings.HasPrefix(path, p.prefix) && p.re.MatchString(path)
	}
	return true
}

// Captures are what the groups of the pattern stand for in a path that matches;
// the whole match is the first, as {0}. A prefix captures what is behind it: of its own
// name without the slash, nothing.
func (p *Path) Captures(path string) []string {
	switch p.kind {
	case expression:
		return p.re.FindStringSubmatch(path)
	case prefixPath:
		rest, below := strings.CutPrefix(path, p.prefix)
		if !below {
			rest = ""
		}
		return []string{path, rest}
	}
	return []string{path}
}

// Match is Matches and Captures in one: an expression runs once.
func (p *Path) Match(path string) (captures []string, ok bool) {
	if p.kind != expression {
		if !p.Matches(path) {
			return nil, false
		}
		return p.Captures(path), true
	}
	if !strings.HasPrefix(path, p.prefix) {
		return nil, false
	}
	captures = p.re.FindStringSubmatch(path)
	return captures, captures != nil
}

// group is the number of a capture by its name or number, -1 if there is none.
func (p *Path) group(name string) int {
	if n, err := strconv.Atoi(name); err == nil {
		switch {
		case n == 0, n == 1 && p != nil && p.kind == prefixPath:
			return n
		case p != nil && p.kind == expression && n > 0 && n <= p.re.NumSubexp():
			return n
		}
		return -1
	}
	if p == nil || p.re == nil {
		return -1
	}
	return p.re.SubexpIndex(name)
}

// groups lists what a template may name.
func (p *Path) groups() string {
	n := 0
	if p != nil && p.kind == prefixPath {
		n = 1
	} else if p != nil && p.re != nil {
		n = p.re.NumSubexp()
	}
	if n == 0 {
		return "the path has no captures: a star, or a group ( ) of an expression, is one"
	}
	return fmt.Sprintf("the path has captures up to {%d}", n)
}
