package caddy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// site is a block of a Caddyfile that is being translated: first into a list of answers in
// the order in which Caddy would try them, then into rules and routes that do the same.
type site struct {
	*plan.Site
	im      *importer
	answers []*answer
	nested  int
	errors  plan.Pages // for each route
	missing []string   // of a rewrite of what is no file, at the top
}

// answer is a directive that answers some requests (respond, file_server,
// reverse_proxy), or gives them another path (rewrite).
type answer struct {
	conds
	line        *draft.Directive
	name        string // for its route, if it needs one without a path
	action      plan.Action
	build       func(key string) (*plan.Route, error) // a route for a key; nil: action is all
	middlewares []*middleware
	guard       bool // it keeps clients out, so all spellings of its path are meant
	strips      bool // only its own path leads to it
	goesOn      bool // a rewrite

	proxies bool
	static  bool
	try     []string // of the answer that follows where there is no file
}

// middleware is a directive that changes what others answer, such as header or
// basic_auth: apply writes its keys into a route.
type middleware struct {
	line  *draft.Directive
	alts  []conds
	guard bool
	apply func(r *plan.Route, a *answer)
}

// scope is a block of directives, and what the blocks that it is in have set for it.
type scope struct {
	outer       *scope
	alts        []conds
	matchers    map[string]*matcher
	root        string
	strip       string
	to          string // a rewrite within the block
	try         []string
	broken      *draft.Directive // a line that changes paths in a way that is not known
	middlewares []*middleware
	top         bool
	fileServer  bool // something in it, or around it, serves files
	behind      bool // something answers behind its handle blocks
}

// find looks a matcher up by its name, in the block and those around it.
func (sc *scope) find(name string) *matcher {
	for s := sc; s != nil; s = s.outer {
		if m := s.matchers[name]; m != nil {
			return m
		}
	}
	return nil
}

// split separates a line's matcher from its other arguments.
func (t *site) split(d *draft.Directive, sc *scope) (*matcher, []string) {
	first := d.Arg(0)
	switch {
	case len(d.Args) == 0, !withMatcher(d.Name):
	case first == "*" && (len(d.Args) > 1 || d.Opens || d.Name == "file_server" || d.Name == "abort"):
		return &matcher{alts: []conds{{}}}, d.Args[1:]
	case strings.HasPrefix(first, "@"):
		m := sc.find(first)
		if m == nil {
			m = &matcher{err: fmt.Errorf("%s is defined nowhere", first)}
		}
		return m, d.Args[1:]
	case strings.HasPrefix(first, "/") && matched(d):
		alts, err := paths(d.Args[:1])
		return &matcher{alts: alts, err: err}, d.Args[1:]
	}
	return &matcher{alts: []conds{{}}}, d.Args
}

// translate translates the lines of a block: in the order of the file within route,
// else in Caddy's order of directives.
func (t *site) translate(list []*draft.Directive, sc *scope, inOrder bool) {
	sc.matchers = map[string]*matcher{}
	for _, d := range list {
		if strings.HasPrefix(d.Name, "@") {
			m := t.matcher(d)
			sc.matchers[d.Name] = m
			t.im.Used(m.lines...)
		}
	}
	sc.behind = slices.ContainsFunc(list, func(d *draft.Directive) bool {
		return slices.Contains([]string{"route", "respond", "error", "abort", "reverse_proxy", "php_fastcgi", "file_server"}, d.Name)
	})
	if !inOrder {
		list = sorted(list)
	}
	for _, d := range list {
		if !strings.HasPrefix(d.Name, "@") {
			t.line(d, sc)
		}
	}
}

// line translates a directive, with its matcher and with those of the blocks it is in.
func (t *site) line(d *draft.Directive, sc *scope) {
	m, args := t.split(d, sc)
	alts, err := m.alts, m.err
	if err == nil {
		alts, err = below(sc.strip, alts)
	}
	if err == nil {
		alts, err = andAll(sc.alts, alts)
	}
	switch {
	case err != nil:
		t.unmatchable(d, m, err)
		return
	case len(alts) == 0:
		t.im.Whole(d, draft.Defaulted, "its conditions and those of what it is in never hold together")
		return
	}
	switch d.Name {
	case "handle", "handle_path", "route":
		t.group(d, sc, alts, m.name)
	case "handle_errors":
		// read before, for all answers
	case "root":
		if m.name != "" || len(alts) != 1 || !sc.alts[0].covers(alts[0]) || !alts[0].covers(sc.alts[0]) {
			t.im.Leave(d, "a folder for some requests of a block: put it into a handle block before the import, or give a route its own static.root")
			return
		}
		sc.root = t.im.path(last(args))
		t.im.Used(d)
	case "redir", "respond", "error", "abort", "reverse_proxy", "php_fastcgi", "file_server", "acme_server", "metrics":
		t.terminal(d, sc, alts, args, m)
	case "rewrite", "uri", "try_files", "method":
		t.changes(d, sc, alts, args, m)
	default:
		t.addMiddleware(d, sc, alts, args)
	}
}

func last(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[len(args)-1]
}

// unmatchable reports a line whose matcher cannot be written as a rule. If it answers
// requests, the site is closed: else they would reach the lines after it.
func (t *site) unmatchable(d *draft.Directive, m *matcher, err error) {
	do := fmt.Sprintf("write its condition by hand, as a rule: %v", err)
	for _, l := range m.lines {
		if m.err != nil {
			t.im.Leave(l, fmt.Sprintf("rules cannot say it: %v", m.err))
		}
	}
	switch d.Name {
	case "header", "encode", "log_skip", "skip_log", "log_append", "log_name", "root", "vars", "templates", "push", "request_header", "rewrite", "uri", "try_files", "method", "tracing", "map":
		t.im.Leave(d, do)
	default:
		t.Close(d, do)
	}
}

// maxNested bounds blocks in one another.
const maxNested = 16

// group translates handle, handle_path and route with the lines in them.
func (t *site) group(d *draft.Directive, sc *scope, alts []conds, name string) {
	t.im.Used(d)
	if t.nested++; t.nested > maxNested {
		t.Close(d, "too many blocks in one another")
		return
	}
	defer func() { t.nested-- }()
	inner := &scope{outer: sc, alts: alts, root: sc.root, strip: sc.strip, to: sc.to, try: sc.try, broken: sc.broken, middlewares: slices.Clone(sc.middlewares), fileServer: sc.fileServer}
	before := len(t.answers)
	if folder, ok := loosePrefix(d, alts); ok {
		others := &answer{conds: alts[0], line: d, name: name, action: plan.Deny(404), guard: true}
		others.in = onRegex("(?i)^" + regexp.QuoteMeta(strings.TrimSuffix(d.Arg(0), "*")) + "[^/]").in
		t.im.Partly(d, "other names that begin like it are not passed on: they answer 404")
		defer func() { t.add(others) }()
		alts, inner.alts = folder, folder
	}
	if d.Name == "handle_path" {
		prefix := strings.TrimRight(d.Arg(0), "/*") + "/"
		switch {
		case len(alts) != 1 || !strings.HasSuffix(alts[0].path(), "/*") || strings.Count(alts[0].path(), "*") > 1 || strings.TrimSuffix(alts[0].path(), "/*") != strings.TrimSuffix(sc.strip, "/")+strings.TrimRight(d.Arg(0), "/*"):
			t.Close(d, "handle_path takes a path that ends in /*: write the route by hand")
			return
		case sc.strip != "":
			inner.strip = strings.TrimSuffix(sc.strip, "/") + prefix
		default:
			inner.strip = prefix
		}
	}
	t.translate(d.Block, inner, d.Name == "route")
	if d.Name == "route" {
		if len(t.answers) == before {
			// What changes requests or answers holds for what follows.
			sc.middlewares = append(sc.middlewares, inner.middlewares[len(sc.middlewares):]...)
			if all := len(alts) == 1 && alts[0].any(); all {
				sc.root, sc.try, sc.to, sc.strip = inner.root, inner.try, inner.to, inner.strip
			}
		}
		return
	}
	for _, c := range alts { // what nothing in the block answers ends there
		if len(t.answers) > before {
			l := t.answers[len(t.answers)-1]
			if !l.goesOn && l.conds.covers(c) {
				continue
			}
		}
		do := plan.Action{Respond: plan.Response{Status: 200}}
		if sc.behind { // of the other blocks none has it
			t.im.Leave(d, "what nothing in it answers goes on behind all handle blocks: it answers 501 until you have written it")
			do = plan.NotImplemented()
		}
		t.add(&answer{conds: c, line: d, name: name, action: do, middlewares: inner.middlewares})
	}
}

// loosePrefix are the conditions of a block that takes a prefix without a slash at its end
// away (handle_path /app*, or route /app* with uri strip_prefix /app), for the folder alone:
// of /application nothing is left that is a path.
func loosePrefix(d *draft.Directive, alts []conds) ([]conds, bool) {
	prefix, is := strings.CutSuffix(d.Arg(0), "*")
	if !is || strings.HasSuffix(prefix, "/") || len(alts) != 1 || alts[0].path() != d.Arg(0) {
		return nil, false
	}
	strips := func(l *draft.Directive) bool {
		return l.Name == "uri" && len(l.Args) == 2 && l.Arg(0) == "strip_prefix" && l.Arg(1) == prefix
	}
	if d.Name != "handle_path" && !slices.ContainsFunc(d.Block, strips) {
		return nil, false
	}
	c := alts[0]
	c.in = onPath(prefix + "/*").in
	return []conds{c}, true
}

// add appends an answer.
func (t *site) add(a *answer) {
	const most = 500
	if len(t.answers) >= most {
		t.Close(a.line, fmt.Sprintf("a site has at most %d answers", most))
		return
	}
	t.answers = append(t.answers, a)
}

// terminal translates a directive that answers requests.
func (t *site) terminal(d *draft.Directive, sc *scope, alts []conds, args []string, m *matcher) {
	for _, c := range alts {
		if e := t.answeredBy(c); e != nil {
			t.unreachable(d, sc, e)
			continue
		}
		a := &answer{conds: c, line: d, name: m.name, middlewares: slices.Clone(sc.middlewares)}
		if a.name == "" && sc.outer != nil {
			a.name = t.nameOf(sc)
		}
		var err error
		switch d.Name {
		case "redir":
			a.action, err = t.redirect(args, sc, c)
		case "respond":
			a.action, err = t.respond(d, args)
			a.guard = refuses(a.action)
		case "error":
			a.action, err = errorAnswer(args)
			a.guard = true
		case "abort":
			a.action, a.guard = plan.Deny(403), true
			t.im.Standard(d, "a connection is not closed without an answer: 403")
		case "reverse_proxy":
			err = t.proxy(d, sc, args, a)
		case "php_fastcgi":
			err = t.php(d, sc, args, a)
		case "file_server":
			err = t.files(d, sc, a)
		default:
			err = fmt.Errorf("there is no %s here", d.Name)
		}
		if err != nil {
			t.im.Leave(d, err.Error())
			a.build, a.action, a.guard = nil, plan.NotImplemented(), true
		} else {
			t.im.Used(d)
		}
		t.add(a)
	}
}

// answeredBy is the earlier answer that takes all requests of these conditions; nil if
// there is none.
func (t *site) answeredBy(c conds) *answer {
	for _, e := range t.answers {
		if !e.goesOn && e.file == nil && e.covers(c) {
			return e
		}
	}
	return nil
}

// unreachable reports a line that Caddy never reaches, since e answers before it. The
// exception is file_server after php_fastcgi: here both are one route, with the options
// of both.
func (t *site) unreachable(d *draft.Directive, sc *scope, e *answer) {
	if d.Name != "file_server" || e.line.Name != "php_fastcgi" || e.build == nil {
		t.im.Whole(d, draft.Defaulted, "Caddy never comes to it: "+e.line.At()+" answers before")
		return
	}
	t.im.Used(d)
	files := &answer{conds: e.conds, line: d}
	if err := t.files(d, sc, files); err != nil {
		t.im.Leave(d, err.Error())
		return
	}
	build := e.build
	e.build = func(key string) (*plan.Route, error) {
		r, err := build(key)
		if err != nil {
			return nil, err
		}
		options, err := files.build("@")
		if err != nil {
			return nil, err
		}
		options.Static.Root = r.Static.Root
		r.Static = options.Static
		return r, nil
	}
}

// nameOf is the name of the matcher of the block that a line is in.
func (t *site) nameOf(sc *scope) string {
	for _, m := range sc.outer.matchers {
		if len(sc.alts) > 0 && len(m.alts) == len(sc.alts) && m.err == nil && m.alts[0].covers(sc.alts[0]) && sc.alts[0].covers(m.alts[0]) {
			return m.name
		}
	}
	return ""
}

// refuses reports whether an action keeps clients out.
func refuses(action plan.Action) bool {
	return action.None() || action.Deny != 0 || action.Respond.Status >= 400
}
