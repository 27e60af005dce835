package nginx

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// server is one server block.
type server struct {
	*scope
	*plan.Server
	values map[string]string // of "set" with plain texts
	expr   string            // which of the names that one with a star covers are meant; "" for all
}

func (im *importer) server(d *draft.Directive, http *scope) *server {
	s := &server{scope: &scope{parent: http, list: d.Block}, Server: &plan.Server{Line: d}, values: map[string]string{}}
	listens := s.each("listen")
	for _, l := range listens {
		im.listen(s, l)
		s.Listen = l
	}
	if len(listens) == 0 {
		s.Plain = []string{"0.0.0.0:80"}
	}
	for _, n := range s.each("server_name") {
		im.names(s, n)
	}
	if ssl := s.last("ssl"); ssl != nil && ssl.Arg(0) == "on" {
		s.Secure, s.Plain = append(s.Secure, s.Plain...), nil
		im.Used(ssl)
	}
	for _, v := range s.each("set") {
		if !strings.Contains(v.Arg(1), "$") {
			s.values[strings.TrimPrefix(v.Arg(0), "$")] = v.Arg(1)
			im.Used(v)
		}
	}
	if !s.OnlyPlain() {
		im.tls(s)
	}
	s.Read = func(to *plan.Site) { im.site(s, to) }
	return s
}

// port is the one that the block listens at, "" if there are several.
func (s *server) port() (port string) {
	for _, at := range slices.Concat(s.Plain, s.Secure) {
		_, one, err := net.SplitHostPort(at)
		if err != nil || port != "" && one != port {
			return ""
		}
		port = one
	}
	return port
}

// tls reads certificates, versions, and what is asked of clients.
func (im *importer) tls(s *server) {
	im.certificate(s)
	s.MinVersion = im.protocols(s)
	d, ca := s.last("ssl_verify_client"), s.last("ssl_client_certificate")
	if d == nil || d.Arg(0) == "off" {
		return
	}
	s.Asks = &plan.Asks{Line: d, Mode: map[string]string{"on": "required", "optional": "optional"}[d.Arg(0)], Lines: []*draft.Directive{ca}}
	im.Standard(s.last("ssl_verify_depth"), "chains of any sensible length are checked")
	if ca != nil {
		s.Asks.File = im.path(ca.Arg(0))
	}
}

func (im *importer) listen(s *server, d *draft.Directive) {
	address, tls := d.Arg(0), false
	for _, option := range d.Words()[min(1, len(d.Args)):] {
		switch name, _, _ := strings.Cut(option, "="); name {
		case "ssl":
			tls = true
		case "quic":
			tls, s.HTTP3 = true, true
		case "default_server", "default":
			s.Any = true
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
	to := &s.Plain
	if tls {
		to = &s.Secure
	}
	if !slices.Contains(*to, address) {
		*to = append(*to, address)
	}
}

func (im *importer) names(s *server, d *draft.Directive) {
	im.Used(d)
	s.Named = d
	for _, name := range d.Words() {
		lower := strings.ToLower(name)
		expr, isRegex := strings.CutPrefix(name, "~")
		switch {
		case name == "" || name == "_" || !isRegex && !strings.ContainsAny(name, ".*") && strings.HasPrefix(name, "_"):
		case isRegex:
			im.expressionName(s, d, expr)
		case strings.HasPrefix(lower, "."):
			s.Names = append(s.Names, lower[1:], "*"+lower)
		case strings.Contains(strings.TrimSuffix(strings.TrimPrefix(lower, "*."), ".*"), "*"), strings.HasPrefix(lower, "*.") && strings.HasSuffix(lower, ".*"):
			im.Leave(d, fmt.Sprintf("a star is the first label of a host alone: list the names that %s stands for", name))
		case lower == "$hostname":
			im.Leave(d, "write this machine's name into hosts")
		default:
			s.Names = append(s.Names, lower)
		}
	}
	s.Names = draft.Unique(s.Names)
	if len(s.Names) == 0 && im.Outcome(d) != draft.Untranslated {
		s.Any = true
	}
}

// expressionName translates a name that is an expression: to the names that it is for, if
// these are few, or else to a name with a star and a rule that the others answer 404.
func (im *importer) expressionName(s *server, d *draft.Directive, expr string) {
	note := fmt.Sprintf("%s: for %q", d.At(), "~"+expr)
	if wild, ok := wildcard(expr); ok {
		s.Names, s.Notes = append(s.Names, wild), append(s.Notes, note)
		return
	}
	re2, err := plan.Expression(expr, true)
	if list, ok := plan.Words(re2); ok && err == nil {
		s.Names, s.Notes = append(s.Names, list...), append(s.Notes, note)
		return
	}
	domain := regexp.MustCompile(`\\\.((?:[a-z0-9-]+\\\.)*[a-z0-9-]+)\$$`).FindStringSubmatch(expr)
	if err != nil || domain == nil || s.expr != "" || len(draft.Alternatives(expr)) > 1 {
		im.Leave(d, fmt.Sprintf("hosts have no regular expressions: list the names that ~%s stands for", expr))
		return
	}
	parent := strings.ReplaceAll(domain[1], `\.`, ".")
	s.Names, s.Notes, s.expr = append(s.Names, "*."+parent), append(s.Notes, note), expr
	if regexp.MustCompile(re2).MatchString(parent) {
		s.Names = append(s.Names, parent)
	}
}

// onlyNamed keeps hosts out that a name with a star covers, and the expression that it
// stands for does not.
func (t *site) onlyNamed() {
	if t.server.expr == "" {
		return
	}
	ways := []string{strings.TrimSuffix(strings.TrimPrefix(t.server.expr, "^"), "$")}
	for _, name := range t.Server.Names {
		if !strings.HasPrefix(name, "*") {
			ways = append(ways, strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, ".*"))
		}
	}
	hosts, err := plan.Expression("^(?:"+strings.Join(ways, "|")+`)\.?(?::\d+)?$`, true)
	if err != nil {
		t.Close(t.server.Line, err.Error())
		return
	}
	t.Add(plan.Rule{If: plan.Cond{Header: map[string]string{"Host": plan.Match(hosts, true)}}, Do: plan.Deny(404), Note: "other names than ~" + t.server.expr})
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

// certificate takes a block's certificates over.
func (im *importer) certificate(s *server) {
	certs, keys := s.all("ssl_certificate"), s.all("ssl_certificate_key")
	if len(keys) == 0 {
		return
	}
	for i, d := range certs {
		key := keys[min(i, len(keys)-1)]
		if strings.ContainsAny(d.Arg(0)+key.Arg(0), "$") || strings.HasPrefix(d.Arg(0), "data:") || strings.HasPrefix(key.Arg(0), "engine:") {
			im.Leave(d, "certificates are files: name them in tls.certificates, or let them come by themselves (tls.auto)")
			im.Leave(key, "belongs to ssl_certificate")
			continue
		}
		im.Used(d, key)
		s.Certificates = append(s.Certificates, plan.Pair{Chain: im.path(d.Arg(0)), Key: im.path(key.Arg(0))})
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
