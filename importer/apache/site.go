package apache

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// layer is the lines of a section, of a .htaccess or of the host itself, for the paths
// that they are for. Later layers override earlier ones.
type layer struct {
	line *draft.Directive   // the section; nil: the host, or a .htaccess
	dir  string             // the folder, of <Directory> and of .htaccess
	url  string             // the path, of <Location>
	list []*draft.Directive // its lines, without conditions around them
}

// place is a part of the site for whose paths the same lines hold: a folder or a path.
type place struct {
	path   string // ends in a slash
	dir    string // the folder; "" for what is no file
	proxy  *draft.Directive
	why    *draft.Directive // what made it a place
	layers []layer

	job   *plan.Route
	guard guard
}

// site is a virtual host that is being translated.
type site struct {
	*plan.Site
	im        *importer
	host      *host
	dirs      []layer // in the order in which they hold
	locations []layer
	aliases   []alias
	places    []*place // the longest path first

	first       []plan.Rule            // of the host itself, before anything is looked for
	guards      []plan.Rule            // who keeps clients out by the name of a file
	ordered     []plan.Rule            // folders that Order and Deny close, whatever Require says of their files
	through     []plan.Rule            // paths that are let through before the front controller
	changes     []plan.Rule            // of folders: redirects and rewrites
	last        []plan.Rule            // behind all others
	clean       []string               // folders in which /about is about.html
	controllers map[string]*plan.Route // routes of front controllers that get the path in their query

	fronts map[string]front // by the folder's path: what answers for what is not there
	php    string           // what runs PHP; "": nothing does
	noPHP  []string         // paths of folders in which nothing does
}

// alias is a folder under a path of its own.
type alias struct {
	path, dir string
	line      *draft.Directive
}

// site translates a virtual host.
func (im *importer) site(h *host, to *plan.Site) {
	to.Alone = true
	t := &site{Site: to, im: im, host: h, fronts: map[string]front{}, controllers: map[string]*plan.Route{}}
	t.collect()
	t.keptOut()
	t.elsewhere()
	t.findPHP()
	t.serverRules()
	if t.answersAll() {
		t.unreached()
		return
	}
	t.folderRules()
	t.findPlaces()
	for _, p := range t.places {
		t.place(p)
	}
	t.nameRules()
	t.filesAlone()
	t.write()
}

// answersAll reports whether a rule of the host answers every request.
func (t *site) answersAll() bool {
	return slices.ContainsFunc(t.first, func(r plan.Rule) bool {
		other := func(name string) bool { return !slices.Contains(r.If.Host, name) }
		if !t.Server.Any && !slices.ContainsFunc(t.Server.Names, other) {
			r.If.Host = nil
		}
		return r.If.Everything() && r.Do.Rewrite == ""
	})
}

// unreached marks the lines that Apache never comes to, since the host's own rules answer.
func (t *site) unreached() {
	for _, d := range t.host.list {
		if t.im.Outcome(d) == 0 {
			t.im.Whole(d, draft.Defaulted, "Apache never comes to it: the host's own rules answer before")
		}
	}
	t.Add(t.first...)
}

// lines are those of the host and those outside of hosts.
func (t *site) lines() []*draft.Directive {
	return append(slices.Clone(t.im.common), t.host.list...)
}

// collect finds the sections and the .htaccess files that have settings.
func (t *site) collect() {
	for _, d := range slices.Concat(t.host.list, t.im.common) { // Apache takes the first, those of the host before others
		if lower(d) != "alias" || len(d.Args) != 2 || !strings.HasPrefix(d.Arg(0), "/") {
			continue
		}
		a := alias{path: strings.TrimSuffix(d.Arg(0), "/") + "/", dir: strings.TrimSuffix(t.im.file(d.Arg(1)), "/"), line: d}
		if slices.ContainsFunc(t.aliases, func(before alias) bool { return strings.HasPrefix(a.path, before.path) }) {
			t.im.Standard(d, "Apache never comes to it: an alias before it has the path")
			continue
		}
		t.im.Used(d)
		t.aliases = append(t.aliases, a)
	}
	for _, d := range t.lines() {
		switch lower(d) {
		case "directory":
			t.directory(d)
		case "directorymatch":
			t.byExpression(d, d.Arg(0))
		case "location":
			t.location(d)
		case "locationmatch":
			t.locations = append(t.locations, layer{line: d, url: "~" + d.Arg(0), list: t.im.flat(d.Block)})
		}
	}
	if t.host.root == "" && !t.host.alone {
		t.host.root = "/var/www/html"
	}
	t.htaccess()
	// The shorter folder first; of one folder the section before the file.
	slices.SortStableFunc(t.dirs, func(a, b layer) int { return cmp.Compare(len(a.dir), len(b.dir)) })
}

func (t *site) directory(d *draft.Directive) {
	name := d.Arg(0)
	if name == "~" {
		t.byExpression(d, d.Arg(1))
		return
	}
	if strings.ContainsAny(name, "*?[") {
		t.byExpression(d, folderExpression(name))
		return
	}
	t.im.Used(d)
	t.dirs = append(t.dirs, layer{line: d, dir: t.im.file(name), list: t.im.flat(d.Block)})
}

// folderExpression turns a folder's name with stars into an expression.
func folderExpression(glob string) string {
	expr := regexp.QuoteMeta(strings.TrimSuffix(glob, "/"))
	expr = strings.NewReplacer(`\*`, "[^/]*", `\?`, "[^/]").Replace(expr)
	return "^" + expr + "/"
}

// byExpression translates a section whose folders an expression names: what keeps clients
// out becomes a rule, for all files or for those of a section within it.
func (t *site) byExpression(d *draft.Directive, text string) {
	list := t.im.flat(d.Block)
	if !keepsOut(list) {
		t.im.Whole(d, draft.Untranslated, "folders have no expressions: write a route for each of them")
		return
	}
	expr, err := expression(text, false)
	exprs, anchored := []string{expr}, strings.HasPrefix(strings.TrimPrefix(expr, "(?i)"), "^")
	if err == nil && anchored {
		exprs, err = t.pathsLike(expr, text)
	}
	closed, all := t.closedFiles(list)
	if err != nil || !all {
		t.Close(d, "write it as a rule with a regex, or as a route for each folder")
		return
	}
	t.im.Whole(d, draft.Translated, "")
	for _, expr := range exprs {
		for _, file := range closed {
			c := plan.Cond{Regex: expr}
			if file != "" {
				c = plan.Cond{Regex: file, Within: []string{"~" + expr}}
			}
			t.closeFolder(d, c)
		}
		for _, a := range t.aliases { // whose folder is one of them
			if anchored {
				break // their paths are among the expressions
			}
			re := regexp.MustCompile(expr)
			inside := re.MatchString(a.dir+"/") || re.MatchString(a.dir)
			if !inside && straddles(re, a.dir+"/") {
				inside = true
				t.im.Leave(d, "folders below "+a.dir+" may be among those that it is for: "+a.path+" answers 403 until you have written a route for each of them")
			}
			if inside {
				t.closeFolder(d, plan.Cond{Path: a.path})
			}
		}
	}
}

// closeFolder adds a rule that keeps clients out of the folders of a section. What Require
// closes, the sections for files may open again. What Order closes they do not open: both
// must let a client in.
func (t *site) closeFolder(d *draft.Directive, c plan.Cond) {
	if t.im.anywhere(d.Block, orders()...) {
		t.ordered = append(t.ordered, plan.Rule{If: c, Do: plan.Deny(403), Note: d.At()})
		return
	}
	t.guard(c, plan.Deny(403), d.At())
}

// anywhere reports whether lines, or sections among them, have one of some names.
func (im *importer) anywhere(list []*draft.Directive, names ...string) bool {
	return slices.ContainsFunc(im.flat(list), func(d *draft.Directive) bool {
		return slices.Contains(names, lower(d)) || im.anywhere(d.Block, names...)
	})
}

// closedFiles are expressions for the files that lines keep everybody from, "" for all of
// them; all is false if they let some clients in.
func (t *site) closedFiles(list []*draft.Directive) (exprs []string, all bool) {
	if guards(list) {
		g := t.guardOf([]layer{{list: list}})
		return []string{""}, g.closed && g.why == ""
	}
	files := t.filesIn(layer{list: list}, "/")
	for _, s := range files {
		if !guards(s.list) {
			continue
		}
		if g := t.guardOf([]layer{{list: s.list}}); s.err != nil || !g.closed || g.why != "" {
			return nil, false
		}
		exprs = append(exprs, strings.TrimSuffix(s.expr, "$")+"(?:/|$)") // PHP runs scripts with a path behind
	}
	others := slices.ContainsFunc(list, func(d *draft.Directive) bool {
		return keepsOut([]*draft.Directive{d}) && !slices.ContainsFunc(files, func(s section) bool { return s.line == d })
	})
	return exprs, !others
}

// pathsLike are expressions for the paths of folders that one with ^ names.
func (t *site) pathsLike(expr, text string) (exprs []string, err error) {
	fold := strings.HasPrefix(expr, "(?i)")
	for _, at := range append(slices.Clone(t.aliases), alias{path: "/", dir: strings.TrimSuffix(t.root(), "/")}) {
		rest, is := strings.CutPrefix(strings.TrimPrefix(expr, "(?i)"), "^"+regexp.QuoteMeta(at.dir))
		if !is && regexp.MustCompile(`^[\w./-]+$`).MatchString(at.dir) { // nobody writes /srv/example\.org
			rest, is = strings.CutPrefix(expr, "^"+at.dir)
		}
		switch {
		case is && !fold && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "(/")):
			exprs = append(exprs, "^"+regexp.QuoteMeta(strings.TrimSuffix(at.path, "/"))+rest)
		case within(at.dir, t.root()) && at.path != "/":
			return nil, errors.New("an alias leads to folders that it is for by another path")
		}
	}
	if len(exprs) == 0 {
		return nil, fmt.Errorf("%s is not below %s", text, t.root())
	}
	return exprs, nil
}

// straddles reports whether an expression may match a text that begins with a folder, from
// within its name to behind it.
func straddles(re *regexp.Regexp, dir string) bool {
	begins, _ := re.LiteralPrefix()
	for i := 1; i < len(begins); i++ {
		if begins[:i] != "/" && strings.HasSuffix(dir, begins[:i]) { // a slash is one of the path, too
			return true
		}
	}
	return begins == ""
}

func (t *site) root() string { return t.host.root }

func (t *site) location(d *draft.Directive) {
	url := d.Arg(0)
	switch {
	case url == "~":
		url = "~" + d.Arg(1)
	case strings.ContainsAny(url, "*?["):
		url = "~" + strings.TrimSuffix(folderExpression(url), "/") + "(?:/|$)"
	case t.isFile(url):
		url = "~^" + regexp.QuoteMeta(url) + "(?:/|$)"
	}
	t.locations = append(t.locations, layer{line: d, url: url, list: t.im.flat(d.Block)})
	t.im.Used(d)
}

// isFile reports whether a path looks like that of a file.
func (t *site) isFile(url string) bool {
	return !strings.HasSuffix(url, "/") && (strings.Contains(path.Base(url), ".") && !strings.HasPrefix(path.Base(url), ".") || t.im.options.IsFile(path.Join(t.root(), url)))
}

// htaccess reads the .htaccess files of the folders, where they are allowed.
func (t *site) htaccess() {
	dirs := []string{t.root()}
	for _, a := range t.aliases {
		if !within(a.dir, t.root()) {
			dirs = append(dirs, a.dir)
		}
	}
	for _, dir := range draft.Unique(dirs) {
		names, all := t.im.options.Below(dir)
		if t.host.alone && !slices.Contains(names, path.Join(dir, Htaccess)) {
			names = append([]string{path.Join(dir, Htaccess)}, names...)
		}
		for _, name := range names {
			folder := path.Dir(name)
			if !t.host.alone && !t.allowsOverride(folder) {
				continue
			}
			t.dirs = append(t.dirs, layer{dir: folder, list: t.im.flat(t.im.read(name))})
		}
		if !all {
			d := &draft.Directive{Name: Htaccess, File: dir, Line: 1}
			t.im.lines = append(t.im.lines, d)
			t.Close(d, fmt.Sprintf("there are more than %d such files, or %d files and folders, below it: not all were read", maxHtaccess, maxEntries))
		}
	}
}

// allowsOverride reports whether Apache reads the .htaccess of a folder: it does
// not unless AllowOverride says so.
func (t *site) allowsOverride(folder string) bool {
	best, allows := -1, false
	for _, l := range t.dirs {
		if l.line == nil || !within(folder, l.dir) {
			continue
		}
		for _, d := range l.list {
			if name := lower(d); (name == "allowoverride" || name == "allowoverridelist") && len(l.dir) >= best {
				best, allows = len(l.dir), !strings.EqualFold(d.Arg(0), "none")
				t.im.Used(d)
			}
		}
	}
	return allows
}

// within reports whether a folder or path is another, or below it.
func within(name, of string) bool {
	of = strings.TrimSuffix(of, "/")
	return name == of || strings.HasPrefix(name, of+"/")
}

// pathOf is the path of a folder in the site, with a slash at its end: the first of
// those that lead to it.
func (t *site) pathOf(dir string) (string, bool) {
	if paths := t.pathsOf(dir); len(paths) > 0 {
		return paths[0], true
	}
	return "", false
}

// pathsOf are all paths of the site that lead to a folder: what is said of the folder
// holds for each.
func (t *site) pathsOf(dir string) (paths []string) {
	for _, a := range append(slices.Clone(t.aliases), alias{path: "/", dir: strings.TrimSuffix(t.root(), "/")}) {
		if !within(dir, a.dir) {
			continue
		}
		url := a.path + slashed(strings.TrimPrefix(dir[len(a.dir):], "/"))
		if t.dirOf(url) == path.Clean(dir) { // no other alias stands before it
			paths = append(paths, url)
		}
	}
	return draft.Unique(paths)
}

func slashed(name string) string {
	if name == "" || strings.HasSuffix(name, "/") {
		return name
	}
	return name + "/"
}

// dirOf is the folder of a path.
func (t *site) dirOf(url string) string {
	best := alias{path: "/", dir: t.root()}
	for _, a := range t.aliases {
		if strings.HasPrefix(url, a.path) && len(a.path) > len(best.path) {
			best = a
		}
	}
	return path.Join(best.dir, strings.TrimPrefix(url, best.path))
}

// layersOf are those that hold for a path and its folder. Without a folder only
// those of paths do.
func (t *site) layersOf(url, dir string) []layer {
	layers := []layer{{list: t.lines()}}
	for _, l := range t.dirs {
		if dir != "" && within(dir, l.dir) {
			layers = append(layers, l)
		}
	}
	for _, l := range t.locations {
		if !strings.HasPrefix(l.url, "~") && within(url, l.url) && url+"/" != l.url { // /a/ is not for /a
			layers = append(layers, l)
		}
	}
	return layers
}

// lastIn is the last line of a name in layers.
func lastIn(layers []layer, names ...string) *draft.Directive {
	for _, l := range slices.Backward(layers) {
		for _, d := range slices.Backward(l.list) {
			if slices.Contains(names, lower(d)) {
				return d
			}
		}
	}
	return nil
}

// allIn are the lines of a name in all layers.
func allIn(layers []layer, names ...string) (found []*draft.Directive) {
	for _, l := range layers {
		for _, d := range l.list {
			if slices.Contains(names, lower(d)) {
				found = append(found, d)
			}
		}
	}
	return found
}

// guard adds a rule that keeps clients out of some paths.
func (t *site) guard(c plan.Cond, do plan.Action, note string) {
	t.guards = append(t.guards, plan.Rule{If: c, Do: do, Note: note})
}

// write puts rules and routes in their order.
func (t *site) write() {
	t.Add(t.first...)
	t.Add(t.guards...)
	t.Add(t.changes...)
	if slices.ContainsFunc(t.changes, t.leadsToGuarded) {
		for _, g := range t.guards {
			g.Note = "the same, for the paths that rewrites have made"
			t.Add(g)
		}
	}
	t.Add(t.last...)
	for _, p := range slices.Backward(t.kept()) { // the shortest first
		var notes []string
		switch {
		case p.why == nil:
		case p.why.Name == "": // a .htaccess
			notes = []string{p.why.File}
		default:
			notes = []string{p.why.At() + ": " + p.why.String()}
		}
		t.Route(p.path, p.job, notes...)
	}
	for _, script := range slices.Sorted(maps.Keys(t.controllers)) {
		t.Route(script, t.controllers[script])
	}
	t.guardedFronts()
}

// leadsToGuarded reports whether a rule may give a request a path that a rule
// which keeps clients out is for.
func (t *site) leadsToGuarded(r plan.Rule) bool {
	if r.Do.Rewrite == "" {
		return false
	}
	to, _, _ := strings.Cut(r.Do.Rewrite, "?")
	return len(t.guards) > 0 && strings.Contains(to, "{") || slices.ContainsFunc(t.guards, func(g plan.Rule) bool {
		re, err := regexp.Compile(g.If.Regex)
		return err == nil && g.If.Regex != "" && re.MatchString(to)
	})
}

// kept are the places that differ from the place that they are in.
func (t *site) kept() (kept []*place) {
	for i, p := range t.places {
		outer := p.outer(t.places[i+1:])
		if outer == nil || !t.sameAs(p, outer) {
			kept = append(kept, p)
		}
	}
	return kept
}

// outer is the nearest place that one is in, among those after it.
func (p *place) outer(rest []*place) *place {
	for _, o := range rest {
		if strings.HasPrefix(p.path, o.path) {
			return o
		}
	}
	return nil
}

// sameAs reports whether a place answers just as the place that it is in would.
func (t *site) sameAs(p, outer *place) bool {
	a, b := p.job.Clone(), outer.job.Clone()
	if b.Static.Root != "" {
		if p.dir != path.Join(outer.dir, strings.TrimPrefix(p.path, outer.path)) {
			return false
		}
		if a.Static.Root != "" {
			a.Static.Root = b.Static.Root
		}
	}
	if b.Passes() && p.proxy != outer.proxy {
		return false
	}
	if front, is := t.frontOf(p.path); is { // the one around it has the same
		if f, too := t.frontOf(outer.path); too && f == front && a.PHP.To != nil && b.PHP.To != nil {
			a.Try, b.Try, a.PHP, b.PHP = nil, nil, plan.PHP{}, plan.PHP{}
		}
	}
	return a.Equal(b)
}
