package nginx

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// server is one server block.
type server struct {
	*scope
	block   *draft.Directive
	plain   []string // addresses, as we write them
	secure  []string
	names   []string
	any     bool // it answers for every host that nobody else has
	quic    bool
	local   bool // fewer could ask it than other blocks
	comment []string
	cert    *draft.Directive
	key     *draft.Directive

	values map[string]string // of "set" with plain texts
	closed []string          // why the site lets nobody in until somebody has looked
}

func (im *importer) server(d *draft.Directive, http *scope) *server {
	s := &server{scope: &scope{parent: http, list: d.Block}, block: d, values: map[string]string{}}
	listens := s.each("listen")
	for _, l := range listens {
		im.listen(s, l)
	}
	if len(listens) == 0 {
		s.plain = []string{"0.0.0.0:80"}
	}
	for _, n := range s.each("server_name") {
		im.names(s, n)
	}
	if ssl := s.last("ssl"); ssl != nil && ssl.Arg(0) == "on" {
		s.secure, s.plain = append(s.secure, s.plain...), nil
		im.Used(ssl)
	}
	s.cert, s.key = s.last("ssl_certificate"), s.last("ssl_certificate_key")
	for _, v := range s.each("set") {
		if !strings.Contains(v.Arg(1), "$") {
			s.values[strings.TrimPrefix(v.Arg(0), "$")] = v.Arg(1)
			im.Used(v)
		}
	}
	return s
}

// clientCertificates translates ssl_verify_client. All sites share one TLS: where only some
// servers demand certificates, those stay closed.
func (im *importer) clientCertificates(tls *draft.Node) {
	var asking []*server
	authority, mode, same := "", "", true
	secure := 0
	for _, s := range im.servers {
		if s.onlyPlain() {
			continue
		}
		secure++
		d, ca := s.last("ssl_verify_client"), s.last("ssl_client_certificate")
		if d == nil || d.Arg(0) == "off" {
			continue
		}
		asking = append(asking, s)
		same = same && ca != nil && (authority == "" || authority == ca.Arg(0)) && (mode == "" || mode == d.Arg(0)) && (d.Arg(0) == "on" || d.Arg(0) == "optional")
		if ca != nil {
			authority, mode = ca.Arg(0), d.Arg(0)
		}
	}
	if len(asking) == 0 {
		return
	}
	for _, s := range asking {
		lines := []*draft.Directive{s.last("ssl_verify_client"), s.last("ssl_client_certificate")}
		if same && len(asking) == secure {
			im.Used(lines...)
			im.Standard(s.last("ssl_verify_depth"), "chains of any sensible length are checked")
			continue
		}
		im.Leave(lines[0], "clients of all sites are asked for certificates, or of none (tls.client_ca): this site answers 403 until its first rule is removed")
		im.Leave(lines[0], "serve it by a process of its own")
		s.closed = append(s.closed, "nginx asked clients for a certificate (ssl_verify_client)")
	}
	if !same || len(asking) != secure {
		return
	}
	tls.Set("client_ca", draft.Text(im.path(authority)))
	if mode == "optional" {
		tls.Set("client_auth", draft.Text("optional"))
	}
}

func (im *importer) listen(s *server, d *draft.Directive) {
	address, tls := d.Arg(0), false
	for _, option := range d.Words()[min(1, len(d.Args)):] {
		switch name, _, _ := strings.Cut(option, "="); name {
		case "ssl":
			tls = true
		case "quic":
			tls, s.quic = true, true
		case "default_server", "default":
			s.any = true
		case "proxy_protocol":
			im.Leave(d, "write proxy_protocol: {from: [the balancer's address]} (docs/config.md)")
		}
	}
	im.Used(d)
	switch {
	case strings.HasPrefix(address, "unix:"):
	case regexp.MustCompile(`^\d+$`).MatchString(address):
		address = "0.0.0.0:" + address // IPv4 alone
	default:
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			host, port = strings.Trim(address, "[]"), "80"
		}
		switch host {
		case "*":
			host = "0.0.0.0"
		case "::":
			if slices.Contains(d.Words(), "ipv6only=off") {
				host = "" // IPv4 as well
			}
		}
		address = net.JoinHostPort(host, port)
	}
	to := &s.plain
	if tls {
		to = &s.secure
	}
	if !slices.Contains(*to, address) {
		*to = append(*to, address)
	}
}

func (im *importer) names(s *server, d *draft.Directive) {
	im.Used(d)
	for _, name := range d.Words() {
		lower := strings.ToLower(name)
		expr, isRegex := strings.CutPrefix(name, "~")
		switch {
		case name == "" || name == "_" || !isRegex && !strings.ContainsAny(name, ".*") && strings.HasPrefix(name, "_"):
		case isRegex:
			if wild, ok := wildcard(expr); ok {
				s.names = append(s.names, wild)
				s.comment = append(s.comment, fmt.Sprintf("%s: %q is the same", d.At(), name))
				continue
			}
			im.Leave(d, fmt.Sprintf("hosts have no regular expressions: list the names that %s stands for", name))
		case strings.HasPrefix(lower, "."):
			s.names = append(s.names, lower[1:], "*"+lower)
		case strings.HasSuffix(lower, ".*"), strings.Contains(strings.TrimPrefix(lower, "*."), "*"):
			im.Leave(d, fmt.Sprintf("a star is the first label of a host alone: list the names that %s stands for", name))
		case lower == "$hostname":
			im.Leave(d, "write this machine's name into hosts")
		default:
			s.names = append(s.names, lower)
		}
	}
	s.names = draft.Unique(s.names)
	if len(s.names) == 0 && im.Outcome(d) != draft.Untranslated {
		s.any = true
	}
}

// wildcard is a regular expression for names as a name with a star, if it means
// just that: ^(?<sub>.+)\.example\.com$.
func wildcard(expr string) (string, bool) {
	m := regexp.MustCompile(`^\^\((?:\?P?<\w+>)?(?:\.\+|\[\^\.\]\+|\.\*|\\w\+)\)\\\.((?:[a-z0-9-]+\\\.)*[a-z0-9-]+)\$$`).FindStringSubmatch(expr)
	if m == nil {
		return "", false
	}
	return "*." + strings.ReplaceAll(m[1], `\.`, "."), true
}

// onlyPlain: no listener of the block speaks TLS.
func (s *server) onlyPlain() bool { return len(s.secure) == 0 }

// sites translates the server blocks. Those of one name for plain HTTP and for HTTPS become
// one site, since a site is served on all addresses.
func (im *importer) sites() *draft.Node {
	list := draft.List()
	taken := map[string]*server{}
	fallback := false
	for _, s := range im.servers {
		if s.onlyPlain() && im.mergedInto(s) != nil {
			// Its lines come with those of the other; what that has no names of is a site.
			rest := im.withoutTLS(s)
			if len(rest) == 0 {
				continue
			}
			copied := *s
			copied.names, copied.any, copied.closed = rest, false, slices.Clone(s.closed)
			s = &copied
		}
		site := draft.Map()
		hosts := im.hosts(s, taken)
		if s.local && len(s.names) == 0 {
			im.Leave(s.block, servedLocally+", and a site without hosts answers everybody: give it hosts and "+localAccess(s)+", or a process of its own")
			continue
		}
		if !s.local && (len(s.names) == 0 || s.any) {
			if fallback && len(hosts) == 0 {
				im.Leave(s.block, "a second block for all other hosts: sites are not told apart by address. Give it hosts")
				continue
			}
			if !fallback {
				hosts, fallback = nil, true
			}
		}
		if len(hosts) == 0 && len(s.names) > 0 && (!s.any || s.local) {
			im.Leave(s.block, "another block has the same hosts, and sites are not told apart by port: give it hosts of its own")
			continue
		}
		if len(hosts) > 0 {
			site.Set("hosts", draft.Texts(hosts...))
		}
		im.site(s, site)
		list.Add(site, append([]string{s.block.At()}, s.comment...)...)
	}
	return list
}

// hosts are the names that no block before has.
func (im *importer) hosts(s *server, taken map[string]*server) (hosts []string) {
	for _, name := range s.names {
		if taken[name] == nil {
			taken[name] = s
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// mergedInto is the block for HTTPS that takes over one for plain HTTP: one
// that shares a name with it.
func (im *importer) mergedInto(s *server) *server {
	for _, other := range im.servers {
		if other != s && !other.onlyPlain() && im.shares(other, s) {
			return other
		}
	}
	return nil
}

// withoutTLS are the names of a block that none for HTTPS has.
func (im *importer) withoutTLS(s *server) []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(n string) bool {
		return slices.ContainsFunc(im.servers, func(o *server) bool { return !o.onlyPlain() && (s.local || !o.local) && slices.Contains(o.names, n) })
	})
}

func (im *importer) shares(secure, plain *server) bool {
	if secure.local && !plain.local {
		return false // it would be closed with the other
	}
	if len(plain.names) == 0 {
		return !plain.local && (len(secure.names) == 0 || secure.any)
	}
	return slices.ContainsFunc(plain.names, func(n string) bool { return slices.Contains(secure.names, n) })
}

// plainOf are the blocks for plain HTTP of the names of one for HTTPS.
func (im *importer) plainOf(s *server) (blocks []*server) {
	if s.onlyPlain() || len(s.plain) > 0 {
		return nil
	}
	for _, other := range im.servers {
		if other.onlyPlain() && im.shares(s, other) {
			blocks = append(blocks, other)
		}
	}
	return blocks
}

// listeners translates addresses and certificates.
func (im *importer) listeners(root *draft.Node) {
	var plain, secure []string
	quic := false
	pairs := draft.List()
	seen := map[string]bool{}
	minimum := ""
	for _, s := range im.servers {
		plain, secure = append(plain, s.plain...), append(secure, s.secure...)
		quic = quic || s.quic
		if len(s.secure) == 0 {
			continue
		}
		if m := im.protocols(s); m != "" {
			minimum = m
		}
		im.certificate(s, pairs, seen)
	}
	root.Set("listen", draft.Texts(draft.Listen(plain)...))
	if len(secure) == 0 {
		return
	}
	tls := draft.Map()
	tls.Set("listen", draft.Texts(draft.Listen(secure)...))
	if pairs.Len() > 0 {
		tls.Set("certificates", pairs)
	} else {
		tls.Set("auto", draft.Map().Flow(), "nginx's certificates could not be taken over: these come by themselves")
	}
	if minimum != "" {
		tls.Set("min_version", draft.Verbatim(minimum))
	}
	if quic {
		tls.Set("http3", draft.Number(true))
	}
	root.Set("tls", tls)
	im.clientCertificates(tls)
}

// certificate takes a block's certificates over.
func (im *importer) certificate(s *server, pairs *draft.Node, seen map[string]bool) {
	if s.cert == nil || s.key == nil {
		return
	}
	certs, keys := s.all("ssl_certificate"), s.all("ssl_certificate_key")
	for i, d := range certs {
		key := keys[min(i, len(keys)-1)]
		if strings.ContainsAny(d.Arg(0)+key.Arg(0), "$") || strings.HasPrefix(d.Arg(0), "data:") || strings.HasPrefix(key.Arg(0), "engine:") {
			im.Leave(d, "certificates are files: name them in tls.certificates, or let them come by themselves (tls.auto)")
			im.Leave(key, "belongs to ssl_certificate")
			continue
		}
		im.Used(d, key)
		cert := im.path(d.Arg(0))
		if seen[cert] {
			continue
		}
		seen[cert] = true
		pairs.Add(draft.Map().Set("cert", draft.Text(cert)).Set("key", draft.Text(im.path(key.Arg(0)))).Flow())
	}
}

// protocols is the oldest version of TLS that a block allows, "" for the default.
func (im *importer) protocols(s *server) string {
	d := s.last("ssl_protocols")
	if d == nil {
		return ""
	}
	versions := d.Words()
	switch {
	case slices.Contains(versions, "TLSv1") || slices.Contains(versions, "TLSv1.1"):
		im.Standard(d, "TLS 1.2 is the oldest version that is spoken")
		return ""
	case !slices.Contains(versions, "TLSv1.2"):
		im.Used(d)
		return "1.3"
	}
	im.Standard(d, "TLS 1.2 and 1.3, with forward secrecy alone, are the default")
	return ""
}
