// Package caddy reads a Caddyfile and writes it anew for Millrace. Each line of it is
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

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// Options say how paths are to be read.
type Options struct {
	Dir    string                 // the folder of the config, for relative files
	IsFile func(name string) bool // whether a file exists; nil: on this machine
}

// Translate returns the config and what became of each line.
func Translate(config *Config, o Options) (*draft.Node, *draft.Report) {
	if o.IsFile == nil {
		o.IsFile = func(name string) bool { info, err := os.Stat(name); return err == nil && info.Mode().IsRegular() }
	}
	im := newImporter(config, o)
	root := im.top(config)
	for _, d := range config.Unset {
		im.Leave(d, "the variable is not set here, so nothing is written for it: where Caddy's service has it set, import with the same environment")
	}
	return root, im.Report(config.Lines(), func(*draft.Directive) draft.Note {
		return draft.Note{Outcome: draft.Untranslated, Why: "nothing is known about it: look for a counterpart in docs/coming-from/caddy.md"}
	})
}

// importer is one translation.
type importer struct {
	*plan.Config
	options   Options
	httpPort  string
	httpsPort string
	blocks    []*block
	auto      string      // auto_https
	issuers   *draft.Node // what tls.auto says
	internal  bool        // certificates of a CA of one's own
	noHTTP3   bool
	root      *draft.Node
	limits    *draft.Node
}

// newImporter reads the options and the addresses of a Caddyfile.
func newImporter(config *Config, o Options) *importer {
	im := &importer{options: o, httpPort: "80", httpsPort: "443", issuers: draft.Map(), root: draft.Map(), limits: draft.Map()}
	im.Config = &plan.Config{Ledger: draft.NewLedger(), Name: "Caddy", TLS: draft.Map(), AllOfTry: true, Upgrade: im.overPlain}
	if config.Global != nil {
		im.Used(config.Global)
		for _, d := range config.Global.Block {
			im.global(d)
		}
	}
	for _, d := range config.Sites {
		im.block(d)
	}
	return im
}

// block is a site of the Caddyfile.
type block struct {
	*plan.Server
	lines     []*draft.Directive
	addresses []address
}

// top translates a whole Caddyfile.
func (im *importer) top(config *Config) *draft.Node {
	im.snippets(config)
	im.listeners(im.root)
	log := draft.Map()
	for _, b := range im.blocks {
		for _, d := range b.lines {
			if d.Name == "log" {
				im.log(d, log)
			}
		}
	}
	im.root.Fill("log", log).Fill("limits", im.limits)
	for _, b := range im.blocks {
		im.Used(b.Line)
	}
	return im.root.Set("sites", im.Sites())
}

// snippets marks the definitions of snippets as translated: their lines are reported
// where they are imported.
func (im *importer) snippets(config *Config) {
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
	if filepath.IsAbs(file) || strings.HasPrefix(file, "{") || draft.HasEnvironment(file) || im.options.Dir == "" {
		return file
	}
	return filepath.Join(im.options.Dir, file)
}

// log translates an access log.
func (im *importer) log(d *draft.Directive, log *draft.Node) {
	const one = "there is one access log for all sites; its lines have the host with format: json"
	if log.Len() > 0 {
		im.Whole(d, draft.Defaulted, one)
		return
	}
	im.Used(d)
	file := "/dev/stdout"
	var output *draft.Directive
	for _, b := range d.Block {
		switch {
		case b.Name == "output" && b.Arg(0) == "file":
			output, file = b, im.path(b.Arg(1))
			for _, e := range b.Block {
				im.Standard(e, "logrotate rotates the log: see docs/monitoring.md")
			}
		case b.Name == "output" && b.Arg(0) == "discard":
			im.Used(b)
			log.Set("format", draft.Text("off"))
			return
		case b.Name == "output" && !slices.Contains([]string{"stdout", "stderr"}, b.Arg(0)):
			im.Leave(b, "the access log goes to the standard output or to one file: set log.file")
		case b.Name == "format" && b.Arg(0) != "json" && b.Arg(0) != "console":
			im.Leave(b, "lines are JSON, combined or common: log.format")
		case b.Name == "output", b.Name == "format":
			im.Used(b)
			for _, e := range b.Block {
				im.Leave(e, "lines have the members that docs/config.md lists")
			}
		default:
			im.Whole(b, draft.Defaulted, one)
		}
	}
	im.Log(log, output, "json", file)
}

// site translates a block.
func (im *importer) site(b *block, to *plan.Site) {
	t := &site{Site: to, im: im}
	if !b.OnlyPlain() && len(b.Plain) > 0 && im.redirects() {
		if r := im.overPlain(b.Server); r != nil { // some of its hosts have HTTPS alone
			t.Add(*r)
		}
	}
	t.pages(b.lines, "")
	t.translate(b.lines, &scope{alts: []conds{{}}, top: true, fileServer: servesFiles(b.lines)}, false)
	t.write()
}

// servesFiles reports whether a block has file_server, itself or in a block.
func servesFiles(list []*draft.Directive) bool {
	return slices.ContainsFunc(list, func(d *draft.Directive) bool { return d.Name == "file_server" || servesFiles(d.Block) })
}

// overPlain is the rule for plain HTTP of those hosts of a server that have HTTPS alone;
// nil if there is none.
func (im *importer) overPlain(s *plan.Server) *plan.Rule {
	b := im.blocks[slices.IndexFunc(im.blocks, func(b *block) bool { return b.Line == s.Line })]
	var secure []string
	for _, a := range b.addresses {
		if !slices.ContainsFunc(b.addresses, func(o address) bool { return o.host == a.host && !o.secure }) {
			secure = append(secure, a.host)
		}
	}
	if len(secure) == 0 {
		return nil
	}
	r := &plan.Rule{If: plan.Cond{Protocol: "http"}}
	if len(secure) < len(b.addresses) {
		r.If.Host = draft.Unique(secure)
	}
	if !im.redirects() {
		r.Do, r.Note = plan.Deny(404), "Caddy serves it over HTTPS alone"
		return r
	}
	r.Do, _ = plan.Redirect("https://{host}{uri}", 308)
	r.Note = "as Caddy does by itself"
	return r
}
