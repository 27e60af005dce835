// Package apache reads the config of Apache and writes it anew for Millrace: virtual hosts,
// and .htaccess files, which are read in each folder that they may stand in.
// Each line is translated, replaced by a default, or listed as not carried over
// with what to do: none is dropped in silence (see [draft.Report]). What kept
// clients out and cannot be translated stays closed until somebody has looked at
// it.
//
// For each request Apache merges the sections that match its path: <Directory> and
// .htaccess from the shortest folder to the longest, then <Files>, then <Location>. Here
// they are merged beforehand, for each folder that has any: it becomes a route with all
// that holds there. <Files> and mod_rewrite become rules.
package apache

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// Options say how paths are to be read. Functions that are nil look at this machine.
type Options struct {
	Root   string                                      // the folder of the site, for a .htaccess alone; "" for configs
	Hosts  []string                                    // the site's names, for a .htaccess alone
	PHP    string                                      // php-fpm's socket, where the config does not name it
	IsFile func(name string) bool                      // whether a file exists
	IsDir  func(name string) bool                      // whether a folder exists
	Below  func(dir string) (found []string, all bool) // the .htaccess files in a folder and below it
	Read   func(string) ([]byte, error)                // reads one of them
}

// DefaultPHP is the socket of Debian's php-fpm, whichever its version.
const DefaultPHP = "/run/php/php-fpm.sock"

func (o Options) withDefaults() Options {
	o.PHP = cmp.Or(o.PHP, DefaultPHP)
	if o.IsFile == nil {
		o.IsFile = func(name string) bool { info, err := os.Stat(name); return err == nil && info.Mode().IsRegular() }
	}
	if o.IsDir == nil {
		o.IsDir = func(name string) bool { info, err := os.Stat(name); return err == nil && info.IsDir() }
	}
	if o.Below == nil {
		o.Below = Below
	}
	if o.Read == nil {
		o.Read = os.ReadFile
	}
	return o
}

// Bounds of the search for .htaccess files.
const (
	maxEntries  = 200_000 // files and folders that are looked at
	maxHtaccess = 500
)

// Htaccess is the name of the files with settings for their folder.
const Htaccess = ".htaccess"

// Below finds the .htaccess files in a folder and below it, on this machine, also
// in folders that links lead to. all is false if there are too many to look at.
func Below(dir string) (found []string, all bool) {
	w := &walk{}
	w.into(dir, nil)
	return w.found, w.seen <= maxEntries && len(w.found) <= maxHtaccess
}

// walk is a search for .htaccess files.
type walk struct {
	found []string
	seen  int
}

// into looks through a folder. around are the folders that it is in: a link to one of
// them would be an endless loop. What cannot be read is not served either.
func (w *walk) into(dir string, around []os.FileInfo) {
	info, err := os.Stat(dir)
	if err != nil || slices.ContainsFunc(around, func(o os.FileInfo) bool { return os.SameFile(o, info) }) {
		return
	}
	around = append(slices.Clone(around), info)
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		if w.seen++; w.seen > maxEntries || len(w.found) > maxHtaccess {
			return
		}
		name := filepath.Join(dir, e.Name())
		if e.Name() == Htaccess {
			w.found = append(w.found, name)
			continue
		}
		isDir := e.IsDir()
		if e.Type()&os.ModeSymlink != 0 {
			to, err := os.Stat(name)
			isDir = err == nil && to.IsDir()
		}
		if isDir && e.Name() != "node_modules" && e.Name() != ".git" {
			w.into(name, around)
		}
	}
}

// Translate returns the config and what became of each line. list is a config,
// or with Options.Root the lines of that folder's .htaccess.
func Translate(list []*draft.Directive, o Options) (*draft.Node, *draft.Report) {
	im := &importer{options: o.withDefaults(), lines: list, htaccess: map[string][]*draft.Directive{}}
	im.Config = &plan.Config{Ledger: draft.NewLedger(), Name: "Apache"}
	root := im.top(list)
	return root, im.Report(im.lines, otherwise)
}

// importer is one translation.
type importer struct {
	*plan.Config
	options  Options
	lines    []*draft.Directive            // all that was read
	htaccess map[string][]*draft.Directive // by their folder, read so far
	common   []*draft.Directive            // outside of virtual hosts
	listens  []string                      // addresses of Listen
	hosts    []*host
	defined  map[string]bool
}

// top translates a whole config.
func (im *importer) top(list []*draft.Directive) *draft.Node {
	root := draft.Map()
	if im.options.Root != "" {
		return im.alone(list, root)
	}
	for _, d := range im.flat(list) {
		switch lower(d) {
		case "virtualhost":
			im.Used(d)
			im.newHost(d, im.flat(d.Block))
		case "listen":
			im.Used(d)
			im.listens = append(im.listens, listenAddress(d.Arg(0)))
			im.common = append(im.common, d)
		default:
			im.common = append(im.common, d)
		}
	}
	if len(im.hosts) == 0 {
		im.newHost(nil, nil)
	}
	for _, h := range im.hosts {
		im.host(h)
	}
	im.Listeners(root)
	im.log(root)
	im.limits(root)
	root.Set("sites", im.Sites())
	return root
}

// alone translates a .htaccess without a virtual host.
func (im *importer) alone(list []*draft.Directive, root *draft.Node) *draft.Node {
	im.htaccess[im.options.Root] = list
	h := im.newHost(nil, nil)
	h.Names, h.Any, h.Plain, h.root, h.alone = im.options.Hosts, len(im.options.Hosts) == 0, []string{":80"}, im.options.Root, true
	root.Set("listen", draft.Texts(":80"), "a .htaccess does not say where the server listens, nor its names and certificates")
	root.Set("sites", im.Sites())
	return root
}

// read are the lines of the .htaccess of a folder, which is there.
func (im *importer) read(name string) []*draft.Directive {
	dir := path.Dir(name)
	if list, ok := im.htaccess[dir]; ok {
		return list
	}
	list, err := Parse(name, "", draft.Files{Read: im.options.Read, Glob: func(string) ([]string, error) { return nil, nil }})
	if err != nil { // Apache answers 500 for the whole folder
		d := &draft.Directive{Name: Htaccess, File: name, Line: 1}
		im.lines = append(im.lines, d)
		im.Leave(d, "it cannot be read, so nobody is let into its folder: "+err.Error())
		list = []*draft.Directive{{Name: "Require", Args: []string{"all", "denied"}, File: name, Line: 1}}
	} else {
		im.lines = append(im.lines, list...)
	}
	im.htaccess[dir] = list
	return list
}

// lower is a directive's name in lower case.
func lower(d *draft.Directive) string { return strings.ToLower(d.Name) }

// flat replaces sections on modules, versions and definitions by their lines where the
// condition holds: all modules are there, and Apache is 2.4.
func (im *importer) flat(list []*draft.Directive) (flat []*draft.Directive) {
	for _, d := range list {
		switch lower(d) {
		case "ifmodule", "ifdefine", "ifversion", "iffile", "ifdirective", "ifsection":
			if !im.holds(d) && lower(d) == "ifdefine" && keepsOut(d.Block) {
				im.Whole(d, draft.Untranslated, "it is for an Apache that is started with or without -D "+strings.TrimPrefix(d.Arg(0), "!")+", and keeps clients out there: write it by hand if that is yours")
				continue
			}
			if !im.holds(d) {
				im.Whole(d, draft.Defaulted, "it is for another Apache than this one")
				continue
			}
			im.Used(d)
			flat = append(flat, im.flat(d.Block)...)
		case "requireall", "requireany", "requirenone", "limit", "limitexcept":
			flat = append(flat, d) // read as a whole
		default:
			flat = append(flat, d)
		}
	}
	return flat
}

// holds reports whether the condition of such a section holds.
func (im *importer) holds(d *draft.Directive) bool {
	what, not := strings.CutPrefix(d.Arg(0), "!")
	switch lower(d) {
	case "ifdefine":
		return not != im.isDefined(what)
	case "ifversion":
		return version(d.Args)
	case "iffile":
		return not != im.options.IsFile(what)
	}
	return !not
}

// isDefined reports whether a Define names something.
func (im *importer) isDefined(name string) bool {
	if im.defined == nil {
		im.defined = map[string]bool{}
		var walk func([]*draft.Directive)
		walk = func(list []*draft.Directive) {
			for _, d := range list {
				if lower(d) == "define" {
					im.defined[d.Arg(0)] = true
				}
				walk(d.Block)
			}
		}
		walk(im.lines)
	}
	return im.defined[name]
}

// version compares with Apache 2.4.
func version(args []string) bool {
	op, than := "=", strings.Join(args, "")
	if len(args) == 2 {
		op, than = args[0], args[1]
	}
	op, not := strings.CutPrefix(op, "!")
	order := strings.Compare("2.4", strings.Join(append(strings.Split(than, "."), "0")[:2], "."))
	holds := map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}
	if _, known := holds[op]; !known {
		return (order == 0) != not
	}
	return holds[op] != not
}

// file makes a name absolute, as ServerRoot does.
func (im *importer) file(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	root := "/etc/apache2"
	for _, d := range im.common {
		if lower(d) == "serverroot" {
			root = d.Arg(0)
		}
	}
	return path.Join(root, name)
}
