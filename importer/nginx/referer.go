package nginx

import (
	"errors"
	"regexp"
	"strings"

	"millrace/importer/plan"
)

// invalidReferer is the condition that a request comes from a page of none of the
// sites that valid_referers names.
func (t *site) invalidReferer() ([]way, error) {
	lists := t.im.all(t.server.scope, "valid_referers")
	if len(lists) == 0 {
		return nil, errors.New("no valid_referers says which pages are good")
	}
	var words []string
	for _, d := range lists {
		if d.String() != lists[0].String() {
			return nil, errors.New("there are several valid_referers: write one rule on the header Referer for each")
		}
		words = d.Words()
	}
	ways, err := t.referers(words)
	if err != nil {
		return nil, err
	}
	expr := "!~(?i)^(?:" + strings.Join(ways, "|") + ")"
	if _, err := regexp.Compile(expr[2:]); err != nil || len(expr) > 1000 {
		return nil, errors.New("its expressions cannot be one of up to 1000 bytes")
	}
	t.im.Used(lists...)
	return one(plan.Header("Referer", expr), nil)
}

// referers are expressions for the values of Referer that words stand for.
func (t *site) referers(words []string) (ways []string, err error) {
	const scheme, end = "https?://", `(?::\d+)?(?:[/?#]|$)`
	host := func(name string) {
		name, path, below := strings.Cut(name, "/")
		expr := regexp.QuoteMeta(name)
		expr = regexp.MustCompile(`^\\\*\\\.`).ReplaceAllLiteralString(expr, `[^/?#]+\.`)
		expr = regexp.MustCompile(`^\\\.`).ReplaceAllLiteralString(expr, `(?:[^/?#]+\.)?`)
		expr = regexp.MustCompile(`\\\.\\\*$`).ReplaceAllLiteralString(expr, `\.[^/?#:]+`)
		if below {
			ways = append(ways, scheme+expr+`(?::\d+)?/`+regexp.QuoteMeta(path))
			return
		}
		ways = append(ways, scheme+expr+end)
	}
	for _, w := range words {
		switch expr, is := strings.CutPrefix(w, "~"); {
		case w == "none":
			ways = append(ways, "$")
		case w == "blocked": // what some firewall has made of it, which is no address
			others := plan.OtherThan([]string{"http://", "https://"})
			ways = append(ways, strings.Replace(others, "$|", "", 1)) // not without one
		case w == "server_names":
			for _, name := range t.Server.Names {
				host(name)
			}
		case is:
			expr, err := plan.Expression(strings.TrimPrefix(expr, "*"), false)
			if err != nil {
				return nil, err
			}
			if rest, anchored := strings.CutPrefix(expr, "^"); anchored {
				expr = rest
			} else {
				expr = ".*?" + expr
			}
			ways = append(ways, scheme+"(?:"+expr+")")
		default:
			host(w)
		}
	}
	return ways, nil
}
