package apache

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// headers translates the fields that answers get and lose. Without "always" Apache
// leaves the errors and redirects of its own without them.
func (t *site) headers(layers []layer, r *plan.Route) {
	fields := t.Fields()
	for _, d := range allIn(layers, "header") {
		of := plan.Answers{Status: []string{"2xx"}}
		if r.PHP.To != nil || r.Passes() || strings.EqualFold(d.Arg(0), "always") {
			of = plan.Answers{} // what an application sends has them whatever its status
		}
		t.field(d, &fields, of)
	}
	if r.Static.Root != "" {
		t.filesHeaders(layers, &fields)
	}
	if !fields.Empty() {
		r.Headers = fields
	}
}

// fieldArgs are the words of a Header line without those for its table.
func fieldArgs(d *draft.Directive) []string {
	if first := strings.ToLower(d.Arg(0)); first == "always" || first == "onsuccess" {
		return d.Args[1:]
	}
	return d.Args
}

// field translates one Header line into a rule for some answers.
func (t *site) field(d *draft.Directive, rules *plan.Fields, of plan.Answers) {
	if err := t.tryField(d, rules, of); err != nil {
		t.im.Leave(d, err.Error())
	}
}

func (t *site) tryField(d *draft.Directive, rules *plan.Fields, of plan.Answers) error {
	args := fieldArgs(d)
	if len(args) < 2 {
		return fmt.Errorf("write it into headers (docs/routes.md)")
	}
	action, name, value := strings.ToLower(args[0]), strings.TrimSuffix(args[1], ":"), ""
	kind := map[string]headers.Op{"set": headers.Set, "add": headers.Add, "append": headers.Add, "merge": headers.Add, "setifempty": headers.Default, "unset": headers.Remove}[action]
	switch {
	case strings.EqualFold(name, "etag"):
		t.im.Standard(d, "ETag is the server's own")
		return nil
	case kind == headers.Remove:
	case kind == "" || len(args) < 3:
		return fmt.Errorf("headers are set, added, removed or given where there are none: write it into headers (docs/routes.md)")
	default:
		value = args[2]
		for _, more := range args[3:] {
			if !strings.EqualFold(more, "early") {
				return fmt.Errorf("write it into headers, with when or on a route of its own: there is no condition %q", more)
			}
		}
		if strings.HasPrefix(value, "expr=") || strings.Contains(strings.ReplaceAll(value, "%%", ""), "%") {
			return fmt.Errorf("write it into headers (docs/routes.md): %q has variables that are not known here", value)
		}
		value = strings.NewReplacer("%%", "%", "{", "{{").Replace(value)
	}
	if why := rules.Put(of, kind, name, value); why != "" {
		t.im.Standard(d, why)
		return nil
	}
	t.im.Used(d)
	return nil
}

// besides looks at what a section for files says that is not about clients.
func (t *site) besides(s section) {
	for _, d := range s.list {
		name := lower(d)
		switch {
		case guards([]*draft.Directive{d}), name == "sethandler", name == "addhandler", name == "addtype", name == "forcetype", name == "fileetag", name == "authname":
		case name == "header", strings.HasPrefix(name, "expires"):
			if len(extensionsOf(s.expr)) == 0 && (len(patternsOf(s)) == 0 || name == "header" && cacheControlOf(d) == "") {
				t.im.Leave(d, "write it for content types (headers.when.type) or names (static.cache_control)")
			}
		}
	}
}

// extensionsOf are the extensions that an expression for names is about: those
// of \.(css|js)$, and nothing for what is not just that.
func extensionsOf(expr string) (list []string) {
	m := regexp.MustCompile(`^(?:\(\?i\))?\\\.\(?(?:\?:|\?i:)?([a-z0-9|?\[\]]+)\)?(?:\$|\(\?:/\|\$\)|\[\^/\]\*\$)$`).FindStringSubmatch(expr)
	if m == nil {
		return nil
	}
	for e := range strings.SplitSeq(m[1], "|") {
		if rest, is := strings.CutSuffix(e, "?"); is { // jpe?g
			list = append(list, "."+rest)
			e = rest
			if len(e) > 0 {
				list[len(list)-1] = "." + e[:len(e)-1]
			}
		}
		if i := strings.Index(e, "?"); i > 0 {
			list = append(list, "."+e[:i-1]+e[i+1:])
			e = e[:i] + e[i+1:]
		}
		if strings.ContainsAny(e, "?[]") {
			return nil
		}
		list = append(list, "."+e)
	}
	return draft.Unique(list)
}

// patternsOf are the names that a section is for, as patterns of static.cache_control.
func patternsOf(s section) (list []string) {
	for _, e := range extensionsOf(s.expr) {
		list = append(list, "*"+e)
	}
	if name := s.line.Arg(0); len(list) == 0 && lower(s.line) == "files" && name != "~" && !strings.ContainsAny(name, "/[\\") {
		return []string{name}
	}
	return list
}

// filesHeaders are the fields that sections for files give them, by their types.
// Cache-Control is static's.
func (t *site) filesHeaders(layers []layer, fields *plan.Fields) {
	for _, l := range layers {
		for _, s := range t.filesIn(l, "/") {
			exts := extensionsOf(s.expr)
			if len(exts) == 0 {
				continue
			}
			var types []string
			for _, e := range exts {
				types = append(types, draft.TypeOf(e))
			}
			types = draft.Unique(types)
			for _, d := range s.list {
				if lower(d) != "header" || cacheControlOf(d) != "" {
					continue
				}
				if len(types) > 0 {
					t.field(d, fields, plan.Answers{Type: types})
				}
			}
		}
	}
}

// cacheControlOf is the value that a line gives Cache-Control, "" if it does not.
func cacheControlOf(d *draft.Directive) string {
	args := fieldArgs(d)
	if lower(d) == "header" && len(args) >= 3 && (strings.EqualFold(args[0], "set") || strings.EqualFold(args[0], "append") || strings.EqualFold(args[0], "merge")) && strings.EqualFold(args[1], "cache-control") {
		return args[2]
	}
	return ""
}

// expires translates how long files may be kept: by their names, so that what PHP
// answers says so itself.
func (t *site) expires(layers []layer) (rules []plan.Lifetime) {
	add := func(match, value string) {
		if value != "" && !slices.ContainsFunc(rules, func(l plan.Lifetime) bool { return l.Match == match }) {
			rules = append(rules, plan.Lifetime{Match: match, Value: value})
		}
	}
	for _, l := range slices.Backward(layers) {
		for _, s := range slices.Backward(t.filesIn(l, "/")) {
			for _, d := range s.list {
				value := cacheControlOf(d)
				if lower(d) == "expiresdefault" {
					value, _ = age(d.Args)
				}
				for _, match := range patternsOf(s) {
					if value != "" {
						t.im.Used(d)
						add(match, value)
					}
				}
			}
		}
	}
	active := lastIn(layers, "expiresactive")
	if active == nil || !strings.EqualFold(active.Arg(0), "on") {
		return rules
	}
	t.im.Used(active)
	for _, d := range slices.Backward(allIn(layers, "expiresbytype")) {
		value, ok := age(d.Args[min(1, len(d.Args)):])
		exts := draft.Extensions(strings.ToLower(d.Arg(0)))
		switch {
		case !ok:
			t.im.Leave(d, "write a value for Cache-Control into static.cache_control")
		case len(exts) == 0:
			t.im.Standard(d, "no files of this type are known to the importer: static.cache_control goes by their names")
		default:
			t.im.Used(d)
			for _, e := range exts {
				add("*"+e, value)
			}
		}
	}
	if d := lastIn(layers, "expiresdefault"); d != nil {
		if value, ok := age(d.Args); ok {
			t.im.Used(d)
			add("*", value)
		} else {
			t.im.Leave(d, "write a value for Cache-Control into static.cache_control")
		}
	}
	return rules
}

// age is the Cache-Control of an age: "access plus 1 month 2 days", A3600, M60.
func age(args []string) (string, bool) {
	text := strings.ToLower(strings.Join(args, " "))
	if m := regexp.MustCompile(`^[am](\d{1,10})$`).FindStringSubmatch(text); m != nil {
		return "max-age=" + m[1], true
	}
	units := map[string]int{"year": 365 * 86400, "month": 30 * 86400, "week": 7 * 86400, "day": 86400, "hour": 3600, "minute": 60, "min": 60, "second": 1, "sec": 1}
	words := strings.Fields(strings.ReplaceAll(text, `"`, ""))
	if len(words) == 0 || !slices.Contains([]string{"access", "now", "modification"}, words[0]) {
		return "", false
	}
	words = slices.DeleteFunc(words[1:], func(w string) bool { return w == "plus" })
	total := 0
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.Atoi(words[i])
		if err != nil || n < 0 || n > 1_000_000 || i+1 >= len(words) || units[strings.TrimSuffix(words[i+1], "s")] == 0 {
			return "", false
		}
		total += n * units[strings.TrimSuffix(words[i+1], "s")]
	}
	return fmt.Sprintf("max-age=%d", total), true
}
