// Package nginx reads the config of nginx and writes it anew for Millrace. Each line of it is
// translated, replaced by a default, or listed as not carried over with what to
// do: none is dropped in silence (see [draft.Report]).
//
// nginx chooses a location by the exact path, then by the longest prefix that
// says ^~, then by the first regular expression, then by the longest prefix.
// Millrace goes through a site's rules in their order and then looks for a
// route, so what comes before regular expressions in nginx is written as rules
// where it has to be.
package nginx

import (
	"cmp"
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
	Prefix string                 // nginx's own folder, for a relative root
	IsDir  func(name string) bool // whether a folder exists; nil: on this machine
}

// Translate returns the config and what became of each line.
func Translate(list []*draft.Directive, o Options) (*draft.Node, *draft.Report) {
	if o.IsDir == nil {
		o.IsDir = func(name string) bool { info, err := os.Stat(name); return err == nil && info.IsDir() }
	}
	im := &importer{options: o, upstreams: map[string]*upstream{}, maps: map[string]*draft.Directive{}, disks: map[string]*plan.Proxy{}}
	im.Config = &plan.Config{Ledger: draft.NewLedger(), Name: "nginx"}
	im.Opaque = func(d *draft.Directive) bool { return wholeBlocks()[d.Name] }
	config := im.top(list)
	return config, im.Report(list, otherwise)
}

// importer is one translation.
type importer struct {
	*plan.Config
	options   Options
	upstreams map[string]*upstream
	maps      map[string]*draft.Directive // by the variable that they set
	servers   []*server
	disks     map[string]*plan.Proxy // caches by their folders
	body      string                 // the largest body of a request on the level of http
}

// wholeBlocks are blocks whose lines are no directives, or share their outcome.
func wholeBlocks() map[string]bool {
	return map[string]bool{"map": true, "geo": true, "types": true, "split_clients": true, "charset_map": true, "geoip2": true, "stream": true, "mail": true}
}

// top translates a whole config.
func (im *importer) top(list []*draft.Directive) *draft.Node {
	root := draft.Map()
	http := &scope{}
	for _, d := range list {
		if d.Name == "http" {
			im.Used(d)
			http.list = append(http.list, d.Block...)
		}
	}
	if http.list == nil { // a file of conf.d alone
		http.list = list
	}
	for _, d := range http.list {
		switch d.Name {
		case "upstream":
			im.upstream(d)
		case "map":
			im.maps[strings.TrimPrefix(d.Arg(1), "$")] = d
		}
	}
	for _, d := range http.list {
		if d.Name == "server" && d.Opens {
			im.Used(d)
			s := im.server(d, http)
			im.servers, im.Servers = append(im.servers, s), append(im.Servers, s.Server)
		}
	}
	im.Listeners(root)
	sites := im.Sites()
	im.log(root, http)
	im.limits(root, http)
	root.Set("sites", sites)
	im.usedMaps()
	return root
}

// usedMaps marks the maps that nothing needs here.
func (im *importer) usedMaps() {
	for _, d := range im.maps {
		if d.Arg(0) == "$http_upgrade" {
			im.Standard(d, "upgraded connections (WebSockets) are passed on without it")
		}
	}
}

// log translates the access log: there is one for all sites.
func (im *importer) log(root *draft.Node, http *scope) {
	log := draft.Map()
	for _, sc := range append([]*scope{http}, im.scopes()...) {
		switch d := sc.own("access_log"); {
		case d == nil:
		case d.Arg(0) == "off" && log.Len() == 0 && sc == http:
			log.Set("format", draft.Text("off"))
			im.Used(d)
		case strings.HasPrefix(d.Arg(0), "syslog:") || strings.Contains(d.Arg(0), "$"):
			im.Leave(d, "the access log goes to the standard output or to one file: set log.file")
		default:
			file := im.path(d.Arg(0))
			if !im.options.IsDir(filepath.Dir(file)) {
				file = ""
			}
			im.Log(log, d, plan.LogFormat(d.Arg(1)), file)
		}
	}
	root.Fill("log", log)
}

// limits translates what holds for all sites.
func (im *importer) limits(root *draft.Node, http *scope) {
	limits := draft.Map()
	if im.body != "" {
		limits.Set("body_bytes", draft.Number(im.body))
	}
	for _, t := range []struct{ name, key string }{
		{"client_header_timeout", "header_timeout"},
		{"client_body_timeout", "body_timeout"},
		{"send_timeout", "write_timeout"},
		{"keepalive_timeout", "idle_timeout"},
	} {
		d := cmp.Or(http.last(t.name), im.alike(t.name))
		if d == nil {
			continue
		}
		if v, ok := duration(d.Arg(0)); ok && v != "0s" {
			limits.Set(t.key, draft.Text(v))
			im.Used(d)
		} else {
			im.Leave(d, "set limits."+t.key+" to a time above 0")
		}
	}
	im.realIP(limits, http)
	root.Fill("limits", limits)
}

// alike is a line of a server block, if no other block has another; nil if there is none.
func (im *importer) alike(name string) (d *draft.Directive) {
	var all []*draft.Directive
	for _, s := range im.servers {
		if own := s.own(name); own != nil {
			all = append(all, own)
		}
	}
	if len(all) == 0 || slices.ContainsFunc(all, func(o *draft.Directive) bool { return o.Arg(0) != all[0].Arg(0) }) {
		return nil
	}
	im.Used(all...)
	for _, d := range all {
		im.Partly(d, "it is for all sites (limits)")
	}
	return all[0]
}

// realIP translates the proxies in front.
func (im *importer) realIP(limits *draft.Node, http *scope) {
	var trusted []string
	header := ""
	for _, s := range append([]*scope{http}, im.scopes()...) {
		for _, d := range s.list {
			switch d.Name {
			case "set_real_ip_from":
				if d.Arg(0) == "unix:" {
					im.Leave(d, "list \"unix\" in trust_forwarded of the routes that pass requests on")
					continue
				}
				trusted = append(trusted, d.Arg(0))
				im.Used(d)
			case "real_ip_header":
				if d.Arg(0) == "proxy_protocol" {
					im.Leave(d, "the PROXY protocol: let the balancer send X-Forwarded-For, or see docs/config.md")
					continue
				}
				header = d.Arg(0)
				im.Used(d)
			}
		}
	}
	draft.SetTrusted(limits, trusted, header)
}

func (im *importer) scopes() (all []*scope) {
	for _, s := range im.servers {
		all = append(all, s.scope)
	}
	return all
}

// path makes a file's path absolute as nginx does for its configs.
func (im *importer) path(file string) string {
	if filepath.IsAbs(file) || im.options.Dir == "" {
		return file
	}
	return filepath.Join(im.options.Dir, file)
}
