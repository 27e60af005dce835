package caddy

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// address is one of a site's.
type address struct {
	scheme, host, port string
	secure             bool
	own                bool // the host gets no public certificate
}

// block reads a block's addresses, and what it says of TLS.
func (im *importer) block(d *draft.Directive) {
	b := &block{Server: &plan.Server{Line: d, HTTP3: !im.noHTTP3}, lines: d.Block}
	b.Read = func(to *plan.Site) { im.site(b, to) }
	im.blocks, im.Servers = append(im.blocks, b), append(im.Servers, b.Server)
	for _, s := range d.Args {
		a, problem := im.address(s)
		if problem != "" {
			im.Leave(d, problem)
			continue
		}
		b.addresses = append(b.addresses, a)
	}
	hosts, tls := []string{""}, false // to listen at
	for _, d := range d.Block {
		switch d.Name {
		case "tls":
			im.certificates(b, d)
			tls = true
		case "bind":
			im.Used(d)
			b.Listen, hosts = d, d.Args
		}
	}
	for i := range b.addresses {
		a := &b.addresses[i]
		if tls && a.scheme != "http" && a.port != im.httpPort {
			a.secure = true // also without a name
			a.port = cmp.Or(a.port, im.httpsPort)
		}
		to := &b.Plain
		if a.secure {
			to = &b.Secure
		}
		for _, h := range hosts {
			at := net.JoinHostPort(strings.Trim(h, "[]"), a.port)
			if socket, is := strings.CutPrefix(h, "unix/"); is {
				at = "unix:" + socket
			}
			*to = draft.AppendNew(*to, at)
		}
		if a.host == "" {
			b.Any = true
			continue
		}
		b.Names = draft.AppendNew(b.Names, a.host)
	}
}

// address parses one; problem says why the site cannot have it.
func (im *importer) address(s string) (a address, problem string) {
	rest := s
	if scheme, r, has := strings.Cut(s, "://"); has {
		a.scheme, rest = strings.ToLower(scheme), r
	}
	rest, path, _ := strings.Cut(rest, "/")
	if path != "" && path != "*" {
		return a, "a site is for all paths of its hosts: write " + s + " as handle"
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") {
		a.host, a.port = strings.Trim(rest[:i], "[]"), rest[i+1:]
	} else {
		a.host = strings.Trim(rest, "[]")
	}
	if strings.Contains(a.port, "-") {
		return a, "a range of ports: list the addresses in listen"
	}
	if !draft.HasEnvironment(a.host) {
		a.host = strings.ToLower(a.host)
	}
	if a.host == "*" {
		a.host = ""
	}
	// A host gets HTTPS unless something says plain HTTP.
	a.secure = a.scheme == "https" || a.scheme == "" && a.port != im.httpPort && (a.host != "" || a.port == im.httpsPort) && im.auto != "off"
	if a.port == "" {
		a.port = im.httpPort
		if a.secure {
			a.port = im.httpsPort
		}
	}
	_, err := netip.ParseAddr(a.host)
	a.own = err == nil || a.host == "localhost" || slices.ContainsFunc([]string{".localhost", ".local", ".internal", ".home.arpa"}, func(end string) bool { return strings.HasSuffix(a.host, end) })
	return a, ""
}

// listeners writes addresses, and where certificates come from.
func (im *importer) listeners(root *draft.Node) {
	automatic := im.auto != "off" && im.auto != "disable_redirects"
	secure := slices.ContainsFunc(im.Servers, func(s *plan.Server) bool { return !s.OnlyPlain() })
	for _, s := range im.Servers {
		for _, at := range s.Secure {
			if host, _, err := net.SplitHostPort(at); err == nil && automatic {
				im.Redirecting = draft.AppendNew(im.Redirecting, net.JoinHostPort(host, im.httpPort))
			}
		}
	}
	im.onePort()
	im.sources()
	switch {
	case !secure:
	case im.plainToo() && automatic:
		im.TLS.Set("redirect", draft.Number(false), "some sites are for plain HTTP: rules of the others redirect")
	case im.Auto == nil && automatic, im.auto == "disable_redirects":
		im.TLS.Set("redirect", draft.Number(automatic))
	}
	im.Listeners(root)
}

// sources finds where certificates come from that no files are named for.
func (im *importer) sources() {
	own, public := false, false
	for _, b := range im.blocks {
		if b.OnlyPlain() || len(b.Certificates) > 0 {
			continue
		}
		im.Auto = im.issuers
		for _, a := range b.addresses {
			if a.secure && strings.HasPrefix(a.host, "*.") && !im.internal && im.issuers.Get("on_demand") == nil {
				im.Leave(b.Line, "certificates for "+a.host+" need tls.auto.dns, a program that puts TXT records into the DNS (docs/tls.md)")
			}
			own, public = own || a.secure && a.own, public || a.secure && !a.own
		}
	}
	switch {
	case im.Auto == nil:
		return
	case im.internal || own && !public:
		im.issuers.Set("ca", draft.Text("internal"))
	case own:
		im.issuers.Put("ca", draft.Texts("letsencrypt", "internal"))
	}
	if im.issuers.Len() == 1 && im.issuers.Get("ca").Plain() == "internal" {
		im.Auto = draft.Text("internal")
	}
}

// onePort closes a block that Caddy served on a port of its own: a site is served on all
// ports.
func (im *importer) onePort() {
	for _, b := range im.blocks {
		for _, a := range b.addresses {
			other := func(o *block) bool {
				return slices.ContainsFunc(o.addresses, func(other address) bool { return other.port != a.port })
			}
			if a.port == im.httpPort || a.port == im.httpsPort || len(im.blocks) == 1 || len(b.Closed) > 0 || !slices.ContainsFunc(im.blocks, other) {
				continue
			}
			im.Leave(b.Line, "Caddy served it on port "+a.port+" alone, and a site is served on all ports: give it a process of its own, or let in all by removing its first rule")
			b.Closed = append(b.Closed, b.Line.At()+": Caddy served this on port "+a.port+" alone")
		}
	}
}

// plainToo reports whether a host is served over plain HTTP.
func (im *importer) plainToo() bool {
	return slices.ContainsFunc(im.Servers, func(s *plan.Server) bool { return len(s.Plain) > 0 })
}

// redirects reports whether rules lead from plain HTTP to HTTPS.
func (im *importer) redirects() bool {
	return im.plainToo() && im.auto != "disable_redirects" && im.auto != "off"
}

// Address is one that a Caddyfile names: a host, "" for all, and a port.
type Address struct {
	Host, Port string
	TLS        bool
}

// Addresses lists those of all sites.
func Addresses(config *Config) (list []Address) {
	for _, b := range newImporter(config, Options{}).blocks {
		for _, a := range b.addresses {
			list = append(list, Address{draft.Held(a.host), draft.Held(a.port), a.secure})
		}
	}
	return list
}
