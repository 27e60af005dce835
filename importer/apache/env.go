package apache

import (
	"strings"

	"millrace/importer/plan"
)

// withoutVariable translates "Require not env": it keeps out requests for which SetEnvIf
// sets a variable by a header field.
func (t *site) withoutVariable(g *guard, name string, layers []layer) {
	found := false
	for _, d := range allIn(layers, "setenvif", "setenvifnocase", "browsermatch", "browsermatchnocase") {
		field, expr, vars := "User-Agent", d.Arg(0), d.Args[min(1, len(d.Args)):]
		if strings.HasPrefix(lower(d), "setenvif") {
			field, expr, vars = d.Arg(0), d.Arg(1), d.Args[min(2, len(d.Args)):]
		}
		sets := false
		for _, v := range vars {
			v, _, _ = strings.Cut(v, "=")
			sets = sets || strings.EqualFold(v, name)
		}
		if !sets {
			continue
		}
		found = true
		re, err := expression(expr, strings.HasSuffix(lower(d), "nocase"))
		c := plan.Cond{}
		switch {
		case err != nil:
			g.closed, g.why, g.line = true, "write it as a rule: "+err.Error(), d
		case strings.EqualFold(field, "remote_addr") || strings.EqualFold(field, "remote_host"):
			g.closed, g.why, g.line = true, "write it as access.deny, with addresses", d
		case strings.EqualFold(field, "request_uri"):
			c.Regex = re
		case strings.EqualFold(field, "request_method") || strings.EqualFold(field, "request_protocol") || strings.EqualFold(field, "server_addr"):
			g.closed, g.why, g.line = true, "write it as a rule with method or protocol", d
		default:
			c.Header = map[string]string{field: plan.Match(re, false)}
		}
		if !c.Everything() {
			t.im.Used(d)
			g.rules = append(g.rules, plan.Rule{If: c, Do: plan.Deny(403), Note: d.At() + ": " + d.String()})
		}
	}
	if !found && g.why == "" {
		line := lastIn(layers, "deny", "require", "requireall")
		g.closed, g.why, g.line = true, "the variable "+name+" is set in a way that is not known: write a rule with the condition", line
	}
}
