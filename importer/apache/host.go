package apache

import (
	"cmp"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// host is a virtual host, or the main server where there is none.
type host struct {
	line      *draft.Directive   // nil: the main server
	list      []*draft.Directive // its lines, without conditions around them
	names     []string
	any       bool // it answers for every host that nobody else has
	plain     []string
	secure    []string
	root      string
	cert, key string
	local     bool // fewer could ask it than other hosts
	closed    []string
	alone     bool // it is a .htaccess
}

// last is the last line of a name in the host, or else outside of hosts.
func (im *importer) last(h *host, name string) *draft.Directive {
	for _, list := range [][]*draft.Directive{h.list, im.common} {
		for _, d := range slices.Backward(list) {
			if lower(d) == name {
				return d
			}
		}
	}
	return nil
}

// on reports whether a switch is on, and marks it.
func (im *importer) on(d *draft.Directive) bool {
	if d == nil {
		return false
	}
	im.Used(d)
	return strings.EqualFold(d.Arg(0), "on")
}

// host reads what a virtual host says of itself.
func (im *importer) host(h *host) {
	secure := im.on(im.last(h, "sslengine"))
	addresses := []string{"*:80"}
	if h.line != nil {
		addresses = h.line.Args
	} else if len(im.listens) > 0 {
		addresses = im.listens
	}
	for _, a := range addresses {
		address := listenAddress(a)
		if strings.HasSuffix(address, ":443") && !secure {
			secure = im.last(h, "sslcertificatefile") != nil
		}
		to := &h.plain
		if secure {
			to = &h.secure
		}
		*to = append(*to, address)
	}
	for _, d := range append(slices.Clone(im.common), h.list...) {
		switch lower(d) {
		case "servername":
			im.Used(d)
			if slices.Contains(h.list, d) || h.line == nil {
				h.names = append(h.names, hostName(d.Arg(0)))
			}
		case "serveralias":
			im.Used(d)
			for _, name := range d.Args {
				if slices.Contains(h.list, d) || h.line == nil {
					im.alias(h, d, name)
				}
			}
		}
	}
	h.names = unique(h.names)
	h.any = len(h.names) == 0
	if d := im.last(h, "documentroot"); d != nil {
		im.Used(d)
		h.root = im.file(d.Arg(0))
	}
	im.certificate(h)
}

// alias is one name of ServerAlias.
func (im *importer) alias(h *host, d *draft.Directive, name string) {
	name = strings.ToLower(name)
	switch rest, wild := strings.CutPrefix(name, "*."); {
	case strings.ContainsAny(rest, "*?") && name == "*":
		h.any = true
	case strings.ContainsAny(rest, "*?"):
		im.Leave(d, "a star is the first label of a host alone: list the names that "+name+" stands for")
	case wild:
		h.names = append(h.names, name)
	default:
		h.names = append(h.names, hostName(name))
	}
}

// hostName is the host of a ServerName, which may have a scheme and a port.
func hostName(name string) string {
	name = strings.ToLower(name)
	if _, rest, ok := strings.Cut(name, "://"); ok {
		name = rest
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	return name
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

// certificate reads a host's certificate, and its demands for client certificates.
func (im *importer) certificate(h *host) {
	cert, key := im.last(h, "sslcertificatefile"), im.last(h, "sslcertificatekeyfile")
	if cert == nil || len(h.secure) == 0 {
		return
	}
	im.Used(cert, key)
	h.cert = im.file(cert.Arg(0))
	h.key = h.cert
	if key != nil {
		h.key = im.file(key.Arg(0))
	}
	if chain := im.last(h, "sslcertificatechainfile"); chain != nil {
		im.Leave(chain, "the chain stands in the file of the certificate: put both into "+h.cert)
	}
}

// locals closes the hosts that fewer clients can connect to than to others, since a site
// is served on all addresses.
func (im *importer) locals() {
	for _, h := range im.hosts {
		own := draft.Widest(slices.Concat(h.plain, h.secure)...)
		h.local = slices.ContainsFunc(im.hosts, func(o *host) bool { return draft.Widest(slices.Concat(o.plain, o.secure)...) > own })
		if h.local {
			im.Leave(h.line, "a site is served on all addresses: give it access: {allow: [127.0.0.0/8, '::1', unix]}, or a process of its own. It answers 403 until its first rule is removed")
			h.closed = append(h.closed, h.line.At()+": Apache served this host on a local address alone")
		}
	}
	slices.SortStableFunc(im.hosts, func(a, b *host) int {
		switch {
		case a.local == b.local:
			return 0
		case a.local:
			return 1
		}
		return -1
	})
}

// listeners translates addresses and certificates.
func (im *importer) listeners(root *draft.Node) {
	var plain, secure []string
	pairs := draft.List()
	seen := map[string]bool{}
	minimum := ""
	for _, h := range im.hosts {
		plain, secure = append(plain, h.plain...), append(secure, h.secure...)
		if h.cert != "" && !seen[h.cert] {
			seen[h.cert] = true
			pairs.Add(draft.Map().Set("cert", draft.Text(h.cert)).Set("key", draft.Text(h.key)).Flow())
		}
		if d := im.last(h, "sslprotocol"); d != nil && len(h.secure) > 0 {
			if onlyTLS13(d.Args) {
				im.Used(d)
				minimum = "1.3"
			} else {
				im.Standard(d, "TLS 1.2 and 1.3, with forward secrecy alone, are spoken")
			}
		}
	}
	root.Set("listen", draft.Texts(draft.Listen(plain)...))
	if len(secure) == 0 {
		return
	}
	tls := draft.Map().Set("listen", draft.Texts(draft.Listen(secure)...))
	if pairs.Len() > 0 {
		tls.Set("certificates", pairs)
	} else {
		tls.Set("auto", draft.Map().Flow(), "no certificate is named: these come by themselves")
	}
	if minimum != "" {
		tls.Set("min_version", draft.Verbatim(minimum))
	}
	root.Set("tls", tls)
	im.clientCertificates(tls)
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

// clientCertificates translates the demand for client certificates. All sites share one
// TLS: where only some hosts demand certificates, those stay closed.
func (im *importer) clientCertificates(tls *draft.Node) {
	var asking []*host
	authority, mode, same := "", "", true
	secure := 0
	for _, h := range im.hosts {
		if len(h.secure) == 0 {
			continue
		}
		secure++
		d, ca := im.last(h, "sslverifyclient"), im.last(h, "sslcacertificatefile")
		if d == nil || strings.EqualFold(d.Arg(0), "none") {
			continue
		}
		asking = append(asking, h)
		want := strings.ToLower(d.Arg(0))
		same = same && ca != nil && (authority == "" || authority == ca.Arg(0)) && (mode == "" || mode == want) && (want == "require" || want == "optional")
		if ca != nil {
			authority, mode = ca.Arg(0), want
		}
	}
	same = same && len(asking) == secure
	for _, h := range asking {
		d, ca := im.last(h, "sslverifyclient"), im.last(h, "sslcacertificatefile")
		if same {
			im.Used(d, ca)
			im.Standard(im.last(h, "sslverifydepth"), "chains of any sensible length are checked")
			continue
		}
		im.Leave(d, "clients of all sites are asked for certificates, or of none (tls.client_ca): serve it by a process of its own. It answers 403 until its first rule is removed")
		h.closed = append(h.closed, d.At()+": Apache asked clients for a certificate (SSLVerifyClient)")
	}
	if len(asking) == 0 || !same {
		return
	}
	tls.Set("client_ca", draft.Text(im.file(authority)))
	if mode == "optional" {
		tls.Set("client_auth", draft.Text("optional"))
	}
}

// sites are the virtual hosts as sites: of one name, the host for plain HTTP and
// the one for HTTPS become one, since a site is served on all addresses.
func (im *importer) sites() *draft.Node {
	list := draft.List()
	taken := map[string]bool{}
	fallback := false
	for _, h := range im.hosts {
		if len(h.secure) == 0 && im.mergedInto(h) != nil {
			continue // its lines come with those of the other
		}
		names := slices.DeleteFunc(slices.Clone(h.names), func(n string) bool { return taken[n] })
		site := draft.Map()
		switch {
		case len(h.names) > 0 && len(names) == 0:
			im.Whole(h.line, draft.Untranslated, "another virtual host has the same names, and sites are not told apart by port: give it names of its own")
			continue
		case len(h.names) == 0 && (fallback || h.local):
			im.Whole(h.line, draft.Untranslated, "a second host without a name: sites are not told apart by address. Give it a ServerName")
			continue
		case len(names) > 0:
			for _, n := range names {
				taken[n] = true
			}
			site.Set("hosts", draft.Texts(names...))
		default:
			fallback = true
		}
		im.site(h, site)
		if h.line != nil {
			list.Add(site, h.line.At())
		} else {
			list.Add(site)
		}
	}
	return list
}

// mergedInto is the host for HTTPS of the same names as one for plain HTTP.
func (im *importer) mergedInto(h *host) *host {
	for _, o := range im.hosts {
		shares := slices.ContainsFunc(h.names, func(n string) bool { return slices.Contains(o.names, n) }) || len(h.names) == 0 && len(o.names) == 0
		if o != h && len(o.secure) > 0 && shares && (h.local || !o.local) {
			return o
		}
	}
	return nil
}

// plainOf are the hosts for plain HTTP of the names of one for HTTPS.
func (im *importer) plainOf(h *host) (hosts []*host) {
	if len(h.secure) == 0 {
		return nil
	}
	for _, o := range im.hosts {
		if len(o.secure) == 0 && im.mergedInto(o) == h {
			hosts = append(hosts, o)
		}
	}
	return hosts
}

// log translates the access log: there is one for all sites.
func (im *importer) log(root *draft.Node) {
	log := draft.Map()
	for _, list := range im.lists() {
		for _, d := range list {
			if name := lower(d); name != "customlog" && name != "transferlog" {
				continue
			}
			file := d.Arg(0)
			switch {
			case log.Len() > 0:
				im.Standard(d, "there is one access log for all sites; its lines have the host with format: json")
			case strings.HasPrefix(file, "|") || strings.HasPrefix(file, "syslog:"):
				im.Leave(d, "the access log goes to the standard output or to one file: set log.file")
			case strings.Contains(file, "${") || !im.options.IsDir(path.Dir(im.file(file))):
				log.Set("format", draft.Text(logFormat(d.Arg(1))))
				im.Standard(d, "the access log goes to the standard output (the journal); log.file names a file")
			default:
				im.Used(d)
				log.Set("format", draft.Text(logFormat(d.Arg(1))))
				dir, base := path.Split(im.file(file))
				log.Set("file", draft.Text(dir+"millrace-"+base), "Apache's own stays its own")
			}
		}
	}
	if log.Len() > 0 {
		root.Set("log", log)
	}
}

func logFormat(name string) string {
	switch {
	case name == "common" || name == "":
		return "common"
	case strings.Contains(name, "json"):
		return "json"
	}
	return "combined"
}

// lists are the lines of all hosts, and those outside of them.
func (im *importer) lists() [][]*draft.Directive {
	lists := [][]*draft.Directive{im.common}
	for _, h := range im.hosts {
		lists = append(lists, h.list)
	}
	return lists
}

// limits translates what holds for all sites.
func (im *importer) limits(root *draft.Node) {
	limits := draft.Map()
	var trusted []string
	header := ""
	for _, list := range im.lists() {
		for _, d := range list {
			switch lower(d) {
			case "keepalivetimeout":
				if ms, is := strings.CutSuffix(d.Arg(0), "ms"); is {
					limits.Set("idle_timeout", draft.Text(ms+"ms"))
				} else if d.Arg(0) != "0" {
					limits.Set("idle_timeout", draft.Text(d.Arg(0)+"s"))
				}
				im.Used(d)
			case "remoteiptrustedproxy", "remoteipinternalproxy":
				trusted = append(trusted, d.Args...)
				im.Used(d)
			case "remoteipheader":
				header = d.Arg(0)
				im.Used(d)
			}
		}
	}
	draft.SetTrusted(limits, trusted, header)
	if limits.Len() > 0 {
		root.Set("limits", limits)
	}
}

func unique(texts []string) []string {
	var out []string
	for _, t := range texts {
		if t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}
