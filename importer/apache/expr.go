package apache

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// expression translates a regular expression of Apache (PCRE) for RE2, ignoring case if
// asked. Of what begins with a dot, only /.well-known is served at all.
func expression(text string, ignoreCase bool) (string, error) {
	text = regexp.MustCompile(`\\\.\(\?!well-known\\?/?(?:\|[a-z-]+)*\)`).ReplaceAllString(text, `\.(?:[^w]|w[^e])`)
	return plan.Expression(text, ignoreCase)
}

// pattern is what a RewriteRule compares the path with.
type pattern struct {
	expr      string // for the whole path; "" is every path of the context
	path      string // instead of an expression: a path, or a folder
	all       bool   // it matches every path, or every one but the folder's own
	not       bool   // all but what it matches
	except    string // an expression for paths that it is not for
	groups    int
	wholePath bool // {1} is the whole path without the slash in front
}

// inContext turns the expression of a folder's RewriteRule, which sees the path below url
// alone, into one for the whole path. Those of the host see the whole path already.
func inContext(text, url string, perDir, ignoreCase bool) (p pattern, err error) {
	text, p.not = strings.CutPrefix(text, "!")
	if positive, except, is := plan.Excepting(text); is && !p.not {
		p.except, err = expression(except, ignoreCase)
		switch text = positive; {
		case perDir && positive == `/\.`: // hidden names in the whole path
			text = `^(?:.*/)?\.`
		case perDir:
			p.except = below(p.except, url)
		}
		if err != nil {
			return p, err
		}
	}
	expr, err := expression(text, false)
	if err != nil {
		return p, err
	}
	re := regexp.MustCompile(expr)
	p.groups = re.NumSubexp()
	everything := map[string]bool{"": true, "^": true, ".*": true, "^.*": true, "^.*$": true, ".*$": true, ".?": true, "^.?$": true, ".": true, "^.": true, ".+": true, "^.+$": true, "^.+": true, "/": !perDir, "^/": !perDir, "^/.*$": !perDir, "^/.*": !perDir}
	wholePath := map[string]bool{"(.*)": true, "^(.*)$": true, "^(.*)": true, "(.*)$": true, "^(.+)$": true, "(.+)": true, "^(.+)": true, "^/?(.*)$": true, "^/?(.*)": true, "^/(.*)$": !perDir, "^/(.*)": !perDir, "^/?(.+)$": true}
	switch {
	case everything[expr]:
		p.all = true
		if url != "/" && url != "" {
			p.path = url
		}
		return p, nil
	case wholePath[expr]:
		p.all, p.wholePath = true, true
		if perDir || strings.HasPrefix(expr, "^/") {
			expr = "^/(.*)$"
			if url != "/" && url != "" {
				expr = "^" + regexp.QuoteMeta(url) + "(.*)$"
			}
		} else {
			expr = "^(.*)$" // of the host: the slash belongs to it
			p.wholePath = false
		}
	case perDir:
		expr = below(expr, url)
	default:
		expr = strings.Replace(expr, "^/?", "^/", 1)
	}
	if ignoreCase && !p.all {
		expr = "(?i)" + expr
	}
	if _, err := regexp.Compile(expr); err != nil {
		return p, fmt.Errorf("%q: %w", text, err)
	}
	p.expr = expr
	return p, nil
}

// below puts a folder's path in front of an expression, in each of its alternatives.
func below(expr, url string) string {
	fold := strings.HasPrefix(expr, "(?i)")
	alternatives := draft.Alternatives(strings.TrimPrefix(expr, "(?i)"))
	for i, a := range alternatives {
		alternatives[i] = oneBelow(a, url)
	}
	out := strings.Join(alternatives, "|")
	if fold {
		out = "(?i)" + out
	}
	return out
}

func oneBelow(expr, url string) string {
	prefix := regexp.QuoteMeta(url)
	if rest, is := strings.CutPrefix(expr, "^"); is {
		for _, lead := range []string{"/?", "/*", "(?:/)?"} { // there is no slash in front
			rest = strings.TrimPrefix(rest, lead)
		}
		return "^" + prefix + rest
	}
	if url == "/" && !strings.HasPrefix(expr, "/") && !strings.HasPrefix(expr, "(") {
		return expr
	}
	return "^" + prefix + ".*?(?:" + expr + ")"
}

var errConditions = errors.New("rules have no such condition")

// substitution translates the target of a RewriteRule into a text with our variables.
func (c *context) substitution(text string, p pattern, groups map[int]string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		ch := text[i]
		switch {
		case ch == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case ch == '$' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9':
			i++
			b.WriteString(p.group(int(text[i]-'0'), b.String()))
			if before, ok := strings.CutSuffix(b.String(), "/{path}"); ok { // it begins with a slash
				whole := before
				b.Reset()
				b.WriteString(whole + "{path}")
			}
		case ch == '%' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9':
			i++
			n := int(text[i] - '0')
			v, ok := groups[n]
			if !ok {
				return "", fmt.Errorf("%%%d is not known here", n)
			}
			b.WriteString(v)
		case ch == '%' && strings.HasPrefix(text[i:], "%{"):
			name, _, ok := strings.Cut(text[i+2:], "}")
			v, known := variables()[strings.ToUpper(name)]
			if strings.EqualFold(name, "ENV:BASE") { // the folder of the application, as Symfony sets it
				v, known = strings.TrimSuffix(c.url, "/"), true
			}
			if header, is := strings.CutPrefix(name, "HTTP:"); is {
				v, known = "{header."+header+"}", true
			}
			if !ok || !known {
				return "", fmt.Errorf("%%{%s} is not known here", name)
			}
			i += len(name) + 2
			b.WriteString(v)
		case ch == '$' && strings.HasPrefix(text[i:], "${"):
			return "", errors.New("a RewriteMap is a table here: write tables and {table.NAME} (docs/routes.md)")
		case ch == '{' || ch == '}':
			return "", fmt.Errorf("%q has braces, which stand for variables here", text)
		default:
			b.WriteByte(ch)
		}
	}
	return b.String(), nil
}

// group is what $n stands for.
func (p pattern) group(n int, before string) string {
	switch {
	case n == 0 && p.all, n == 1 && p.wholePath && p.expr == "":
		if strings.HasSuffix(before, "/") || before == "" || strings.Contains(before, "?") {
			if strings.Contains(before, "?") {
				return "{rest}"
			}
			return "{path}"
		}
		return "{path}"
	case n > p.groups:
		return ""
	}
	return fmt.Sprintf("{%d}", n)
}

// variables are those of Apache that are known in targets.
func variables() map[string]string {
	return map[string]string{
		"HTTP_HOST": "{host}", "SERVER_NAME": "{host}", "REQUEST_URI": "{path}", "QUERY_STRING": "{query}", "REQUEST_SCHEME": "{scheme}", "REMOTE_ADDR": "{address}",
		"HTTP_REFERER": "{header.Referer}", "HTTP_USER_AGENT": "{header.User-Agent}",
	}
}
