package apache

import (
	"slices"
	"strings"

	"millrace/importer/draft"
)

// keptOut closes the site where lines keep clients out that no other translation reads:
// sections with a condition on requests, <Proxy>, and client certificates that a folder
// or path demands.
func (t *site) keptOut() {
	t.keptOutBy(t.lines(), true)
	for _, l := range t.dirs {
		if l.line == nil { // a .htaccess
			t.keptOutBy(l.list, false)
		}
	}
	for _, d := range t.lines() {
		other := func(name string) bool { return name != Htaccess }
		if lower(d) == "accessfilename" && slices.ContainsFunc(d.Args, other) {
			t.Close(d, "only files called "+Htaccess+" are read: give them that name, or write what they say into routes")
		}
	}
}

// keptOutBy is keptOut for lines; top: they are the host's own, whose client certificates
// are translated elsewhere.
func (t *site) keptOutBy(list []*draft.Directive, top bool) {
	for _, d := range list {
		switch name := lower(d); name {
		case "if", "elseif", "else":
			t.section(d, "write the condition as a rule (docs/routes.md)")
		case "proxy", "proxymatch":
			if len(t.proxies()) > 0 {
				t.section(d, "write access or auth of the routes that pass requests on (docs/protection.md)")
			}
		case "sslrequire":
			t.Close(d, "write the condition as a rule (docs/routes.md)")
		case "sslrequiressl":
			if len(t.host.Plain) > 0 || slices.ContainsFunc(t.im.hosts, func(o *host) bool { return o != t.host && len(o.Plain) > 0 }) {
				t.Close(d, "write a rule with protocol: http and deny (docs/routes.md)")
			} else {
				t.im.Standard(d, "it is served over TLS alone")
			}
		case "sslverifyclient":
			if !top && !strings.EqualFold(d.Arg(0), "none") {
				t.Close(d, "certificates are asked for by all sites (tls.client_ca), not by some paths")
			}
		case "directory", "directorymatch", "location", "locationmatch", "files", "filesmatch", "limit", "limitexcept":
			t.keptOutBy(t.im.flat(d.Block), false)
		}
	}
}

// section closes the site if a section restricts who may come in.
func (t *site) section(d *draft.Directive, do string) {
	list := t.im.flat(d.Block)
	t.keptOutBy(list, false)
	if !guards(list) {
		return
	}
	if t.guardOf([]layer{{list: list}}).open() {
		return
	}
	t.im.Whole(d, draft.Untranslated, do)
	t.Close(d, do)
}

// keepsOut reports whether lines, or sections among them, restrict who may come in.
func keepsOut(list []*draft.Directive) bool {
	return guards(list) || slices.ContainsFunc(list, func(d *draft.Directive) bool { return keepsOut(d.Block) })
}
