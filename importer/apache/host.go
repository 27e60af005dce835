package apache

import (
	"cmp"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// host is a virtual host, or the main server where there is none.
type host struct {
	*plan.Server
	list  []*draft.Directive // its lines, without conditions around them
	root  string
	alone bool // it is a .htaccess
}

// newHost reads what a virtual host says of itself; a nil line is the main server.
func (im *importer) newHost(line *draft.Directive, list []*draft.Directive) *host {
	h := &host{Server: &plan.Server{Line: line}, list: list}
	h.Read = func(t *plan.Site) { im.site(h, t) }
	im.Servers = append(im.Servers, h.Server)
	im.hosts = append(im.hosts, h)
	return h
}

// last is the last line of a name in the host, or else outside of hosts.
func (im *importer) last(h *host, name string) *draft.Directive {
	return lastIn([]layer{{list: im.common}, {list: h.list}}, name)
}

// on reports whether a switch is on, and marks it.
func (im *importer) on(d *draft.Directive) bool {
	im.Used(d)
	return d != nil && strings.EqualFold(d.Arg(0), "on")
}

// host reads the lines of a virtual host that are about addresses, names and TLS.
func (im *importer) host(h *host) {
	secure := im.on(im.last(h, "sslengine"))
	addresses := []string{"*:80"}
	if h.Line != nil {
		addresses = h.Line.Args
	} else if len(im.listens) > 0 {
		addresses = im.listens
	}
	for _, a := range addresses {
		address := listenAddress(a)
		if strings.HasSuffix(address, ":443") && !secure {
			secure = im.last(h, "sslcertificatefile") != nil
		}
		to := &h.Plain
		if secure {
			to = &h.Secure
		}
		*to = append(*to, address)
	}
	list := h.list
	if h.Line == nil {
		list = im.common
	}
	for _, d := range append(slices.Clone(im.common), h.list...) {
		switch name := lower(d); {
		case name != "servername" && name != "serveralias":
		case !slices.Contains(list, d):
			im.Used(d)
		default:
			im.Used(d)
			h.Named = d
			for _, n := range d.Args {
				im.alias(h, d, n)
			}
		}
	}
	h.Names = draft.Unique(h.Names)
	h.Any = h.Any || len(h.Names) == 0
	if d := im.Take(im.last(h, "documentroot")); d != nil {
		h.root = im.file(d.Arg(0))
	}
	if !h.OnlyPlain() {
		im.tls(h)
	}
}

// alias is one name of ServerName or ServerAlias, which may have a scheme and a port.
func (im *importer) alias(h *host, d *draft.Directive, name string) {
	name = strings.ToLower(name)
	if _, rest, ok := strings.Cut(name, "://"); ok {
		name = rest
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	switch rest := strings.TrimPrefix(name, "*."); {
	case name == "*":
		h.Any = true
	case strings.ContainsAny(rest, "*?"):
		im.Leave(d, "a star is the first label of a host alone: list the names that "+name+" stands for")
	default:
		h.Names = append(h.Names, name)
	}
}

// listenAddress is an address of Listen or <VirtualHost> as ours.
func listenAddress(text string) string {
	if text == "" || regexp.MustCompile(`^\d+$`).MatchString(text) {
		return ":" + cmp.Or(text, "80")
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), "80"
	}
	switch strings.ToLower(host) {
	case "*", "_default_", "::": // IPv4 as well
		host = ""
	}
	if port == "*" {
		port = "80"
	}
	return net.JoinHostPort(host, port)
}

// tls reads certificates, versions, and what is asked of clients.
func (im *importer) tls(h *host) {
	if cert, key := im.last(h, "sslcertificatefile"), im.last(h, "sslcertificatekeyfile"); cert != nil {
		im.Used(cert, key)
		pair := plan.Pair{Chain: im.file(cert.Arg(0)), Key: im.file(cert.Arg(0))}
		if key != nil {
			pair.Key = im.file(key.Arg(0))
		}
		h.Certificates = []plan.Pair{pair}
		if chain := im.last(h, "sslcertificatechainfile"); chain != nil {
			im.Leave(chain, "the chain stands in the file of the certificate: put both into "+pair.Chain)
		}
	}
	if d := im.last(h, "sslprotocol"); d != nil && onlyTLS13(d.Args) {
		im.Used(d)
		h.MinVersion = "1.3"
	} else {
		im.Standard(d, "TLS 1.2 and 1.3, with forward secrecy alone, are spoken")
	}
	d, ca := im.last(h, "sslverifyclient"), im.last(h, "sslcacertificatefile")
	if d == nil || strings.EqualFold(d.Arg(0), "none") {
		return
	}
	h.Asks = &plan.Asks{Line: d, Mode: map[string]string{"require": "required", "optional": "optional"}[strings.ToLower(d.Arg(0))], Lines: []*draft.Directive{ca}}
	if ca != nil {
		h.Asks.File = im.file(ca.Arg(0))
	}
	im.Standard(im.last(h, "sslverifydepth"), "chains of any sensible length are checked")
}

// onlyTLS13 reports whether a list of versions leaves nothing older.
func onlyTLS13(versions []string) bool {
	all, has := false, map[string]bool{}
	for _, v := range versions {
		v = strings.ToLower(v)
		name := strings.TrimLeft(v, "+-")
		if name == "all" {
			all = !strings.HasPrefix(v, "-")
			continue
		}
		has[name] = !strings.HasPrefix(v, "-")
	}
	on, named := has["tlsv1.2"]
	return !on && (!all || named)
}

// log translates the access log: there is one for all sites.
func (im *importer) log(root *draft.Node) {
	log := draft.Map()
	for _, d := range im.everywhere("customlog", "transferlog") {
		file := d.Arg(0)
		if strings.HasPrefix(file, "|") || strings.HasPrefix(file, "syslog:") {
			im.Leave(d, "the access log goes to the standard output or to one file: set log.file")
			continue
		}
		if strings.Contains(file, "${") || !im.options.IsDir(path.Dir(im.file(file))) {
			file = ""
		} else {
			file = im.file(file)
		}
		im.Log(log, d, plan.LogFormat(cmp.Or(d.Arg(1), "common")), file)
	}
	root.Fill("log", log)
}

// everywhere are the lines of some names outside of hosts, and of all hosts.
func (im *importer) everywhere(names ...string) []*draft.Directive {
	layers := []layer{{list: im.common}}
	for _, h := range im.hosts {
		layers = append(layers, layer{list: h.list})
	}
	return allIn(layers, names...)
}

// limits translates what holds for all sites.
func (im *importer) limits(root *draft.Node) {
	limits := draft.Map()
	for _, d := range im.everywhere("keepalivetimeout") {
		im.Used(d)
		if ms, is := strings.CutSuffix(d.Arg(0), "ms"); is {
			limits.Set("idle_timeout", draft.Text(ms+"ms"))
		} else if d.Arg(0) != "0" {
			limits.Set("idle_timeout", draft.Text(d.Arg(0)+"s"))
		}
	}
	var trusted []string
	for _, d := range im.everywhere("remoteiptrustedproxy", "remoteipinternalproxy") {
		trusted = append(trusted, d.Args...)
		im.Used(d)
	}
	header := ""
	for _, d := range im.everywhere("remoteipheader") {
		header = d.Arg(0)
		im.Used(d)
	}
	draft.SetTrusted(limits, trusted, header)
	root.Fill("limits", limits)
}
