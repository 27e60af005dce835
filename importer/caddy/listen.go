package caddy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"millrace/importer/caddyconf"
	"millrace/importer/draft"
)

// address is one of a site's.
type address struct {
	scheme, host, port string
	secure             bool
	own                bool // the host gets no public certificate
}

// read reads a block's addresses, and what it says of TLS.
func (im *importer) read(b *block) {
	b.plain = true
	for _, s := range b.Args {
		a, err := im.address(s)
		if err != "" {
			im.Leave(b.Directive, err)
			continue
		}
		b.addresses = append(b.addresses, a)
	}
	for _, d := range b.Block {
		switch d.Name {
		case "tls":
			im.certificates(b, d)
		case "bind":
			im.bind(b, d)
		}
	}
	for i := range b.addresses {
		a := &b.addresses[i]
		if (b.cert != "" || slices.ContainsFunc(b.Block, func(d *draft.Directive) bool { return d.Name == "tls" })) && a.scheme != "http" && a.port != im.httpPort {
			a.secure = true // also without a name
			a.port = cmp.Or(a.port, im.httpsPort)
		}
		b.plain = b.plain && !a.secure
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
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") && !strings.HasSuffix(rest, "}") {
		a.host, a.port = strings.Trim(rest[:i], "[]"), rest[i+1:]
	} else {
		a.host = strings.Trim(rest, "[]")
	}
	if strings.Contains(a.port, "-") {
		return a, "a range of ports: list the addresses in listen"
	}
	if !strings.HasPrefix(a.host, "{") {
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
	a.own = err == nil || a.host == "localhost" || strings.HasSuffix(a.host, ".localhost") || strings.HasSuffix(a.host, ".local") || strings.HasSuffix(a.host, ".internal") || strings.HasSuffix(a.host, ".home.arpa")
	return a, ""
}

// hosts are the names that a block answers for; all: also for every other name.
func (b *block) hosts() (list []string, all bool) {
	for _, a := range b.addresses {
		if a.host == "" {
			all = true
			continue
		}
		list = draft.AppendNew(list, a.host)
	}
	return list, all
}

// bind closes what Caddy served on this machine or network alone.
func (im *importer) bind(b *block, d *draft.Directive) {
	im.Used(d)
	local := len(d.Args) > 0
	for _, host := range d.Args {
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		local = local && (strings.HasPrefix(host, "unix/") || host == "localhost" || err == nil && (a.IsLoopback() || a.IsPrivate()))
	}
	if local {
		im.Leave(d, "a site is served on all addresses of listen: change these if all sites are for this machine or network, or give this one access: {allow: [...]} (docs/protection.md). It answers 403 until its first rule is removed")
		b.closed = append(b.closed, d.At()+": "+d.String())
		return
	}
	im.Standard(d, "sites are served on all addresses: listen and tls.listen")
}

// listeners translates addresses.
func (im *importer) listeners(root *draft.Node) {
	var plain, secure []string
	for _, b := range im.blocks {
		for _, a := range b.addresses {
			if a.secure {
				secure = append(secure, ":"+a.port)
			} else {
				plain = append(plain, ":"+a.port)
			}
		}
	}
	if len(secure) > 0 && im.auto != "off" && im.auto != "disable_redirects" {
		plain = append(plain, ":"+im.httpPort)
	}
	im.onePort()
	root.Set("listen", draft.Texts(draft.Unique(plain)...))
	if len(secure) == 0 {
		return
	}
	im.tls.Put("listen", draft.Texts(draft.Unique(secure)...))
	im.sources()
	if im.plainToo() && im.auto != "disable_redirects" && im.auto != "off" {
		im.tls.Set("redirect", draft.Number(false), "some sites are for plain HTTP: rules of the others redirect")
	} else if im.tls.Get("auto") == nil && im.auto != "disable_redirects" && im.auto != "off" {
		im.tls.Set("redirect", draft.Number(true))
	} else if im.auto == "disable_redirects" {
		im.tls.Set("redirect", draft.Number(false))
	}
	if !im.noHTTP3 {
		im.tls.Set("http3", draft.Number(true))
	}
	root.Set("tls", im.tls)
	im.clientCertificates()
}

// sources writes where certificates come from: files, or ACME.
func (im *importer) sources() {
	pairs := draft.List()
	auto, own, public := false, false, false
	for _, b := range im.blocks {
		switch {
		case b.plain:
		case b.cert != "":
			if !slices.ContainsFunc(im.blocks, func(o *block) bool { return o != b && o.cert == b.cert && o.Line < b.Line }) {
				pairs.Add(draft.Map().Set("cert", text(b.cert)).Set("key", text(b.key)).Flow())
			}
		default:
			auto = true
			for _, a := range b.addresses {
				if a.secure && strings.HasPrefix(a.host, "*.") && !im.internal && im.issuers.Get("on_demand") == nil {
					im.Leave(b.Directive, "certificates for "+a.host+" need tls.auto.dns, a program that puts TXT records into the DNS (docs/tls.md)")
				}
				own = own || a.secure && a.own
				public = public || a.secure && !a.own
			}
		}
	}
	if pairs.Len() > 0 {
		im.tls.Set("certificates", pairs)
	}
	if !auto {
		return
	}
	switch {
	case im.internal || own && !public:
		im.issuers.Set("ca", draft.Text("internal"))
	case own:
		im.issuers.Put("ca", draft.Texts("letsencrypt", "internal"))
	}
	if im.issuers.Len() == 1 && im.issuers.Get("ca").Plain() == "internal" {
		im.tls.Set("auto", draft.Text("internal"))
		return
	}
	im.tls.Set("auto", im.issuers)
}

// onePort closes a block without hosts that Caddy served on a port of its own:
// a site is served on all ports.
func (im *importer) onePort() {
	ports := map[string]bool{}
	for _, b := range im.blocks {
		for _, a := range b.addresses {
			ports[a.port] = true
		}
	}
	delete(ports, im.httpPort)
	if len(ports) == 0 {
		return
	}
	for _, b := range im.blocks {
		for _, a := range b.addresses {
			if a.port == im.httpPort || a.port == im.httpsPort || len(im.blocks) == 1 {
				continue
			}
			if len(b.closed) == 0 && slices.ContainsFunc(im.blocks, func(o *block) bool {
				return slices.ContainsFunc(o.addresses, func(other address) bool { return other.port != a.port })
			}) {
				im.Leave(b.Directive, "Caddy served it on port "+a.port+" alone, and a site is served on all ports: give it a process of its own, or let in all by removing its first rule")
				b.closed = append(b.closed, b.At()+": Caddy served this on port "+a.port+" alone")
			}
		}
	}
}

// plainBlocks are those for plain HTTP.
func (im *importer) plainBlocks() []*block {
	return slices.DeleteFunc(slices.Clone(im.blocks), func(b *block) bool { return !b.plain })
}

// plainToo reports whether a host is served over plain HTTP.
func (im *importer) plainToo() bool {
	return slices.ContainsFunc(im.blocks, func(b *block) bool {
		return slices.ContainsFunc(b.addresses, func(a address) bool { return !a.secure })
	})
}

// redirects reports whether rules lead from plain HTTP to HTTPS.
func (im *importer) redirects() bool {
	return im.plainToo() && len(im.plainBlocks()) < len(im.blocks) && im.auto != "disable_redirects" && im.auto != "off"
}

// secureOf is the block for HTTPS that has all hosts of one for plain HTTP.
func (im *importer) secureOf(b *block) *block {
	hosts, all := b.hosts()
	for _, o := range im.blocks {
		others, otherAll := o.hosts()
		if o.plain || all != otherAll || len(hosts) == 0 && !all {
			continue
		}
		if !slices.ContainsFunc(hosts, func(h string) bool { return !slices.Contains(others, h) }) {
			return o
		}
	}
	return nil
}

// plainOf are the blocks for plain HTTP whose hosts one for HTTPS has.
func (im *importer) plainOf(b *block) (list []*block) {
	if b.plain {
		return nil
	}
	for _, o := range im.plainBlocks() {
		if im.secureOf(o) == b {
			list = append(list, o)
		}
	}
	return list
}

// Address is one that a Caddyfile names: a host, "" for all, and a port.
type Address struct {
	Host, Port string
	TLS        bool
}

// Addresses lists those of all sites.
func Addresses(config *caddyconf.Config) (list []Address) {
	im := &importer{Ledger: draft.NewLedger(), httpPort: "80", httpsPort: "443", tls: draft.Map(), issuers: draft.Map()}
	if config.Global != nil {
		for _, d := range config.Global.Block {
			im.global(d, draft.Map(), draft.Map())
		}
	}
	for _, d := range config.Sites {
		b := &block{Directive: d}
		im.read(b)
		for _, a := range b.addresses {
			list = append(list, Address{a.host, a.port, a.secure})
		}
	}
	return list
}
