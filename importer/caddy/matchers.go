package caddy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// matcher is what a name that begins with @ stands for: alternatives of which one must
// hold, or the error why rules cannot express it.
type matcher struct {
	name   string
	lines  []*draft.Directive
	alts   []conds
	err    error
	status []string // of an error, in handle_errors
}

// matcher reads a definition: a line, or lines in braces.
func (t *site) matcher(d *draft.Directive) *matcher {
	m := &matcher{name: d.Name, lines: []*draft.Directive{d}, alts: []conds{{}}}
	if len(d.Args) > 0 {
		inner := *d
		inner.Name, inner.Args = d.Args[0], d.Args[1:]
		if len(d.Args) == 1 && strings.ContainsAny(d.Args[0], "{(") {
			inner.Name, inner.Args = "expression", d.Args
		}
		m.add(&inner)
	}
	if len(d.Args) == 0 { // else the block belongs to the word
		m.lines = append(m.lines, flat(d.Block)...)
		for _, b := range joined(d.Block) {
			m.add(b)
		}
	}
	m.merge()
	return m
}

// flat are lines and, for not, those in its braces.
func flat(list []*draft.Directive) (all []*draft.Directive) {
	for _, d := range list {
		all = append(append(all, d), flat(d.Block)...)
	}
	return all
}

// joined joins lines that Caddy takes for one: of several lines of path, one must match.
func joined(list []*draft.Directive) (out []*draft.Directive) {
	first := map[string]*draft.Directive{}
	for _, d := range list {
		switch name := d.Name; name {
		case "header":
			name += " " + strings.ToLower(d.Arg(0))
			fallthrough
		case "path", "host", "method", "remote_ip", "client_ip":
			if one := first[name]; one != nil {
				one.Args = append(one.Args, d.Args[min(len(d.Args), strings.Count(name, " ")):]...)
				continue
			}
			copied := *d
			copied.Args = slices.Clone(d.Args)
			first[name] = &copied
			d = &copied
		}
		out = append(out, d)
	}
	return out
}

// add puts a condition to the others.
func (m *matcher) add(d *draft.Directive) {
	if m.err != nil {
		return
	}
	alts, err := condition(d)
	if err == nil {
		alts, err = andAll(m.alts, alts)
	}
	if err != nil {
		m.err = fmt.Errorf("%s: %w", d.String(), err)
		if d.Name == "expression" {
			m.status = statusOf(strings.Join(d.Args, " "))
		}
		return
	}
	m.alts = alts
}

// merge joins alternatives that differ in their path alone into one.
func (m *matcher) merge() {
	if len(m.alts) < 2 {
		return
	}
	var list []string
	for _, a := range m.alts {
		if !a.onlyPath() {
			return
		}
		list = append(list, a.path())
	}
	m.alts = []conds{onPath(list...)}
}

// condition translates one matcher into alternatives.
func condition(d *draft.Directive) ([]conds, error) {
	if len(d.Args) == 0 && d.Name != "file" && (d.Name != "not" || len(d.Block) == 0) {
		return nil, errors.New("it says nothing to compare with")
	}
	switch d.Name {
	case "path":
		return paths(d.Args)
	case "path_regexp":
		return pathRegexp(d)
	case "host":
		return one(plan.Cond{Host: lower(d.Args)}), nil
	case "method":
		return one(plan.Cond{Method: d.Args}), nil
	case "protocol":
		if p := d.Arg(0); p == "http" || p == "https" {
			return one(plan.Cond{Protocol: p}), nil
		}
		return nil, errors.New("a rule knows http and https")
	case "remote_ip", "client_ip":
		list, err := networks(d.Args)
		return one(plan.Cond{Address: list}), err
	case "header", "header_regexp":
		return headerCondition(d)
	case "query":
		return queryCondition(d)
	case "file":
		return []conds{{file: fileCondition(d)}}, nil
	case "not":
		return negated(d)
	case "expression":
		return expression(strings.Join(d.Args, " "))
	}
	return nil, fmt.Errorf("rules have no condition %s", d.Name)
}

// one is a condition that has no alternative.
func one(c plan.Cond) []conds { return []conds{{Cond: c}} }

func lower(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return out
}

func paths(list []string) ([]conds, error) {
	var out []conds
	for _, p := range list {
		if draft.HasEnvironment(p) {
			return nil, fmt.Errorf("%s: paths have no variables: set it, and import again", draft.Shown(p))
		}
		if strings.ContainsAny(p, "?[]{}%\\") {
			return nil, fmt.Errorf("%s is no path of a rule: write it as a regex", p)
		}
		out = append(out, onPath(p))
	}
	if len(out) > maxAlternatives {
		return nil, fmt.Errorf("more than %d paths: write a regex", maxAlternatives)
	}
	return out, nil
}

func pathRegexp(d *draft.Directive) ([]conds, error) {
	expr := d.Arg(len(d.Args) - 1)
	if _, err := regexp.Compile(expr); err != nil {
		return nil, err //nolint:wrapcheck // the caller names the line
	}
	return []conds{onRegex(expr)}, nil
}

// networks are addresses as rules have them: a network without host bits.
func networks(list []string) (out []string, err error) {
	for _, a := range list {
		if a == "private_ranges" {
			out = append(out, "192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1")
			continue
		}
		n, err := plan.Network(a)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says which
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, errors.New("no address is named")
	}
	return out, nil
}

// plainValue reports whether a condition's value means itself.
func plainValue(v string) bool {
	return !strings.HasPrefix(v, "~") && !strings.HasPrefix(v, "!") && !strings.ContainsAny(v, "{}") && !draft.HasEnvironment(v)
}

func headerCondition(d *draft.Directive) ([]conds, error) {
	args := d.Args
	if d.Name == "header_regexp" {
		if len(args) < 2 {
			return nil, errors.New("a field and an expression are missing")
		}
		field, expr := args[len(args)-2], args[len(args)-1]
		if _, err := regexp.Compile(expr); err != nil {
			return nil, err //nolint:wrapcheck // the caller names the line
		}
		return header(field, plan.Match(expr, false)), nil
	}
	field := d.Arg(0)
	if absent, is := strings.CutPrefix(field, "!"); is {
		return header(absent, ""), nil
	}
	if len(args) == 1 {
		return header(field, "*"), nil
	}
	var out []conds
	for _, v := range args[1:] {
		if !plainValue(v) {
			return nil, fmt.Errorf("the value %s", v)
		}
		out = append(out, header(field, v)...)
	}
	return out, nil
}

// header is a condition on a field of the request.
func header(field, value string) []conds {
	return one(plan.Cond{Header: map[string]string{field: value}})
}

func queryCondition(d *draft.Directive) ([]conds, error) {
	c := plan.Cond{Query: map[string]string{}}
	for _, a := range d.Args {
		name, value, has := strings.Cut(a, "=")
		if !has || name == "" || name == "*" || !plainValue(value) || value != "*" && strings.Contains(value, "*") {
			return nil, fmt.Errorf("the parameter %s", a)
		}
		if old, is := c.Query[name]; is && old != value {
			return nil, fmt.Errorf("several values of %s", name)
		}
		c.Query[name] = value
	}
	return one(c), nil
}

func fileCondition(d *draft.Directive) *fileCond {
	f := &fileCond{try: d.Args}
	for _, b := range d.Block {
		if b.Name == "try_files" {
			f.try = b.Args
		}
	}
	if len(f.try) == 0 {
		f.try = []string{"{path}"}
	}
	return f
}

// negated is the opposite: "not" holds unless all that is in it does.
func negated(d *draft.Directive) ([]conds, error) {
	inner := joined(d.Block)
	if len(d.Args) > 0 {
		one := *d
		one.Name, one.Args = d.Args[0], d.Args[1:]
		inner = []*draft.Directive{&one}
	}
	var out []conds
	for _, d := range inner { // one of them must not hold
		c, err := opposite(d)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func opposite(d *draft.Directive) (conds, error) {
	if len(d.Args) == 0 && d.Name != "file" && (d.Name != "not" || len(d.Block) == 0) {
		return conds{}, errors.New("it says nothing to compare with")
	}
	switch d.Name {
	case "path":
		if _, err := paths(d.Args); err != nil {
			return conds{}, err
		}
		if onPath(d.Args...).in == nil {
			return conds{}, errors.New("it is for no path")
		}
		return conds{not: d.Args}, nil
	case "remote_ip", "client_ip":
		list, err := networks(d.Args)
		return conds{Cond: plan.Cond{Address: refused(list)}}, err
	case "method":
		return conds{Cond: plan.Cond{Method: refused(d.Args)}}, nil
	case "host":
		return conds{}, errors.New("hosts of a rule cannot be excluded: list those that it is for")
	case "protocol":
		return conds{Cond: plan.Cond{Protocol: map[string]string{"http": "https", "https": "http"}[d.Arg(0)]}}, nil
	case "file":
		f := fileCondition(d)
		f.absent = true
		return conds{file: f}, nil
	case "header", "header_regexp", "query":
		alts, err := condition(d)
		if err != nil || len(alts) != 1 {
			return conds{}, errors.Join(errors.New("it is not one value"), err)
		}
		c := alts[0]
		for _, m := range []map[string]string{c.Header, c.Query} {
			for k, v := range m {
				switch v {
				case "*":
					m[k] = ""
				case "":
					m[k] = "*"
				default:
					m[k] = "!" + v
				}
			}
		}
		return c, nil
	}
	return conds{}, fmt.Errorf("rules have no opposite of %s", d.Name)
}

func refused(list []string) (out []string) {
	for _, v := range list {
		out = append(out, "!"+v)
	}
	return out
}

// expression takes apart the simplest of CEL: path('/a*') and the like, and
// {method} == 'POST'.
func expression(text string) ([]conds, error) {
	text = strings.Trim(strings.TrimSpace(text), "`")
	call := regexp.MustCompile(`^(!?)(\w+)\(((?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*)\)$`)
	word := regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	if m := call.FindStringSubmatch(text); m != nil {
		d := &draft.Directive{Name: m[2]}
		for _, w := range word.FindAllStringSubmatch(m[3], -1) {
			d.Args = append(d.Args, w[1]+w[2])
		}
		if m[1] == "!" {
			c, err := opposite(d)
			return []conds{c}, err
		}
		return condition(d)
	}
	if m := regexp.MustCompile(`^\{(method|path|host)\}\s*(==|!=)\s*['"]([^'"]*)['"]$`).FindStringSubmatch(text); m != nil {
		d := &draft.Directive{Name: m[1], Args: []string{m[3]}}
		if m[2] == "!=" {
			c, err := opposite(d)
			return []conds{c}, err
		}
		return condition(d)
	}
	return nil, errors.New("expressions are not translated: write its conditions as a rule's")
}

// statusOf are the statuses of an expression in handle_errors.
func statusOf(text string) []string {
	text = strings.Trim(strings.TrimSpace(text), "`")
	if m := regexp.MustCompile(`^\{(?:http\.error|err)\.status_code\}\s*(?:==\s*(\d+)|in\s*\[([\d,\s]+)\])$`).FindStringSubmatch(text); m != nil {
		return regexp.MustCompile(`\d+`).FindAllString(m[1]+m[2], -1)
	}
	return nil
}
