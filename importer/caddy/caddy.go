// Package caddy writes a Caddyfile anew for Millrace. Each line of it is
// translated, replaced by a default, or listed as not carried over with what to
// do: none is dropped in silence (see [draft.Report]). What kept clients out and
// cannot be translated closes its site until somebody has looked at it.
//
// Caddy sorts the directives of a block and goes through them; the first that
// answers ends the way. Millrace goes through a site's rules and then looks up
// the longest route. So the answers of a site are listed in Caddy's order first,
// and those that a longer route would overtake get a rule.
package caddy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/importer/caddyconf"
	"millrace/importer/draft"
)

// Options say how paths are to be read.
type Options struct {
	Dir    string                 // the folder of the config, for relative files
	IsFile func(name string) bool // whether a file exists; nil: on this machine
}

// Translate returns the config and what became of each line.
func Translate(config *caddyconf.Config, o Options) (*draft.Node, *draft.Report) {
	if o.IsFile == nil {
		o.IsFile = func(name string) bool { info, err := os.Stat(name); return err == nil && info.Mode().IsRegular() }
	}
	im := &importer{Ledger: draft.NewLedger(), options: o, httpPort: "80", httpsPort: "443"}
	root := im.top(config)
	return root, im.Report(config.Lines(), otherwise)
}

// otherwise reports a line that no translation has read.
func otherwise(d *draft.Directive) draft.Note {
	return draft.Note{Outcome: draft.Untranslated, Why: "nothing is known about it: look for a counterpart in docs/coming-from/caddy.md"}
}

// importer is one translation.
type importer struct {
	*draft.Ledger
	options   Options
	httpPort  string
	httpsPort string
	blocks    []*block
	auto      string // auto_https
	tls       *draft.Node
	issuers   *draft.Node // what tls.auto says
	internal  bool        // certificates of a CA of one's own
	noHTTP3   bool
	asking    []*clientAuth // sites that ask clients for certificates
}

// block is a site of the Caddyfile.
type block struct {
	*draft.Directive
	addresses []address
	cert, key string // files
	closed    []string
	plain     bool // for plain HTTP alone
}

// top translates a whole Caddyfile.
func (im *importer) top(config *caddyconf.Config) *draft.Node {
	root := draft.Map()
	im.tls, im.issuers = draft.Map(), draft.Map()
	limits, log := draft.Map(), draft.Map()
	if config.Global != nil {
		im.Used(config.Global)
		for _, d := range config.Global.Block {
			im.global(d, root, limits)
		}
	}
	im.snippets(config)
	for _, d := range config.Sites {
		b := &block{Directive: d}
		im.read(b)
		im.blocks = append(im.blocks, b)
	}
	im.listeners(root)
	for _, b := range im.blocks {
		for _, d := range b.Block {
			if d.Name == "log" {
				im.log(d, log)
			}
		}
	}
	if log.Len() > 0 {
		root.Set("log", log)
	}
	if limits.Len() > 0 {
		root.Set("limits", limits)
	}
	root.Set("sites", im.sites())
	return root
}

// snippets marks the definitions of snippets as translated: their lines are reported
// where they are imported.
func (im *importer) snippets(config *caddyconf.Config) {
	for _, s := range config.Snippets {
		if strings.HasPrefix(s.Name, "&") {
			im.Leave(s, "a named route: write it at the places that invoke it, or as a snippet (docs/routes.md)")
			continue
		}
		im.Whole(s, draft.Defaulted, "its lines stand where it was imported; snippets and use are the same here (docs/routes.md)")
	}
}

// path makes a file's path absolute.
func (im *importer) path(file string) string {
	if filepath.IsAbs(file) || strings.HasPrefix(file, "{") || im.options.Dir == "" {
		return file
	}
	return filepath.Join(im.options.Dir, file)
}

// log translates the access log: there is one for all sites.
func (im *importer) log(d *draft.Directive, log *draft.Node) {
	if log.Len() > 0 {
		im.Whole(d, draft.Defaulted, "there is one access log for all sites; its lines have the host with format: json")
		return
	}
	im.Used(d)
	log.Set("format", draft.Text("json"))
	for _, b := range d.Block {
		switch b.Name {
		case "output":
			im.output(b, log)
		case "format":
			im.Used(b)
			if b.Arg(0) != "json" && b.Arg(0) != "console" {
				im.Leave(b, "lines are JSON, combined or common: log.format")
			}
			for _, e := range b.Block {
				im.Leave(e, "lines have the members that docs/config.md lists")
			}
		default:
			im.Whole(b, draft.Defaulted, "there is one access log for all sites; its lines have the host with format: json")
		}
	}
}

func (im *importer) output(b *draft.Directive, log *draft.Node) {
	im.Used(b)
	switch b.Arg(0) {
	case "stdout", "stderr":
	case "discard":
		log.Set("format", draft.Text("off"))
	case "file":
		dir, base := filepath.Split(im.path(b.Arg(1)))
		log.Set("file", text(dir+"millrace-"+base), "Caddy's own stays its own")
		for _, e := range b.Block {
			im.Standard(e, "logrotate rotates the log: see docs/monitoring.md")
		}
	default:
		im.Leave(b, "the access log goes to the standard output or to one file: set log.file")
	}
}

// sites translates the blocks; those of one host become one.
func (im *importer) sites() *draft.Node {
	list := draft.List()
	taken := map[string]bool{}
	for _, b := range im.blocks {
		if b.plain && im.secureOf(b) != nil {
			continue // its lines come with those of the other
		}
		hosts, all := b.hosts()
		hosts = slices.DeleteFunc(hosts, func(h string) bool { return taken[h] })
		switch {
		case all && taken[""], !all && len(hosts) == 0:
			im.Whole(b.Directive, draft.Untranslated, "another block has the same hosts, and sites are not told apart by port: give it hosts of its own, or a process of its own")
			continue
		}
		node := draft.Map()
		if all {
			taken[""] = true
		} else {
			n := draft.List().Flow()
			for _, h := range hosts {
				taken[h] = true
				n.Add(text(h))
			}
			node.Set("hosts", n)
		}
		im.Used(b.Directive)
		im.site(b, node)
		list.Add(node, b.At())
	}
	return list
}

// site translates a block into node.
func (im *importer) site(b *block, node *draft.Node) {
	t := &site{im: im, block: b, node: node, routes: draft.Map(), errors: draft.Map(), names: map[string]bool{}, closed: b.closed}
	for _, other := range im.plainOf(b) {
		im.Used(other.Directive)
		t.closed = append(t.closed, other.closed...)
		t.pages(other.Block, "")
		t.translate(other.Block, &scope{alts: []conds{{protocol: "http"}}, top: true, plain: true, fileServer: servesFiles(other.Block)}, false)
	}
	if !b.plain && !im.redirects() && im.plainToo() {
		// Caddy serves it over HTTPS alone, and listen is for all sites.
		if rule := toHTTPS(b); rule != nil && len(im.plainOf(b)) == 0 {
			rule.Remove("redirect")
			t.first = append(t.first, ruleDraft{rule.Set("deny", draft.Map().Set("status", draft.Number(404)).Flow()), "Caddy serves it over HTTPS alone"})
		}
	}
	if len(im.plainOf(b)) == 0 && !b.plain && im.redirects() {
		if rule := toHTTPS(b); rule != nil {
			t.first = append(t.first, ruleDraft{rule, "as Caddy does by itself"})
		}
	}
	t.pages(b.Block, "")
	sc := &scope{alts: []conds{{}}, top: true, fileServer: servesFiles(b.Block)}
	t.translate(b.Block, sc, false)
	t.write()
}

// servesFiles reports whether a block has file_server, itself or in a block.
func servesFiles(list []*draft.Directive) bool {
	return slices.ContainsFunc(list, func(d *draft.Directive) bool { return d.Name == "file_server" || servesFiles(d.Block) })
}

// toHTTPS is the rule for plain HTTP of those hosts that have HTTPS alone; nil
// if there is none.
func toHTTPS(b *block) *draft.Node {
	var secure []string
	mixed := false
	for _, a := range b.addresses {
		if plain := slices.ContainsFunc(b.addresses, func(o address) bool { return o.host == a.host && !o.secure }); plain {
			mixed = true
		} else {
			secure = append(secure, a.host)
		}
	}
	if len(secure) == 0 {
		return nil
	}
	n := draft.Map()
	if mixed {
		n.Set("host", draft.Texts(draft.Unique(secure)...))
	}
	return n.Set("protocol", draft.Text("http")).Set("redirect", draft.Map().Set("to", draft.Text("https://{host}{uri}")).Set("status", draft.Number(308)).Flow()).Flow()
}
