package plan

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// servedLocally is why a server is closed that the original did not serve to all.
func (c *Config) servedLocally() string {
	return c.Name + " served this block on loopback, a socket or a private address alone"
}

func (s *Server) reach() draft.Reach { return draft.Widest(slices.Concat(s.Plain, s.Secure)...) }

// localAccess is the access for those clients that could connect before.
func (s *Server) localAccess() string {
	if s.reach() == draft.ThisNetwork {
		return "access: {allow: [your network]}"
	}
	return "access: {allow: [127.0.0.0/8, '::1', unix]}"
}

// locals finds the servers that fewer clients can connect to than to others. A site is
// served on all addresses, so they stay closed, and come after the others, whose hosts
// and requests they must not take.
func (c *Config) locals() {
	for _, s := range c.Servers {
		s.local = slices.ContainsFunc(c.Servers, func(o *Server) bool { return o.reach() > s.reach() })
	}
	slices.SortStableFunc(c.Servers, func(a, b *Server) int {
		switch {
		case a.local == b.local:
			return 0
		case a.local:
			return 1
		}
		return -1
	})
	for _, s := range c.Servers {
		if !s.local || c.hiddenAnyway(s) {
			continue
		}
		c.Leave(s.line(), "a site is served on all addresses: give it "+s.localAccess()+", or a process of its own. It answers 403 until its first rule is removed")
		s.Closed = append(s.Closed, s.at()+": "+c.servedLocally())
	}
}

// hiddenAnyway reports whether a server becomes rules for plain HTTP alone, which is
// served nowhere else.
func (c *Config) hiddenAnyway(s *Server) bool {
	return s.OnlyPlain() && c.mergedInto(s) != nil && len(c.withoutTLS(s)) == 0 &&
		!slices.ContainsFunc(c.Servers, func(o *Server) bool { return draft.Widest(o.Plain...) > draft.Widest(s.Plain...) })
}

// others says what becomes of hosts that no server names, which the original gives to its
// first server.
func (c *Config) others() {
	if len(c.Servers) > 0 && c.Servers[0].Named != nil && !slices.ContainsFunc(c.Servers, func(s *Server) bool { return s.Any || len(s.Names) == 0 }) {
		c.Partly(c.Servers[0].Named, c.Name+" gave this block, the first, all hosts that no other has: here these get 404. Remove the hosts of its site if it is to answer them")
	}
}

// Listeners writes addresses and certificates.
func (c *Config) Listeners(root *draft.Node) {
	c.others()
	c.locals()
	var plain, secure []string
	pairs := draft.List()
	seen := map[string]bool{}
	minimum, http3 := "", false
	for _, s := range c.Servers {
		plain, secure = append(plain, s.Plain...), append(secure, s.Secure...)
		if s.OnlyPlain() {
			continue
		}
		http3 = http3 || s.HTTP3
		minimum = max(minimum, s.MinVersion)
		for _, pair := range s.Certificates {
			if !seen[pair.Chain] {
				seen[pair.Chain] = true
				pairs.Add(draft.Map().Set("cert", draft.Text(pair.Chain)).Set("key", draft.Text(pair.Key)).Flow())
			}
		}
	}
	root.Set("listen", draft.Texts(draft.Listen(append(plain, c.Redirecting...))...))
	if len(secure) == 0 {
		return
	}
	tls := draft.Map().Set("listen", draft.Texts(draft.Listen(secure)...)).Fill("certificates", pairs)
	switch {
	case c.Auto != nil:
		tls.Set("auto", c.Auto)
	case pairs.Len() == 0:
		tls.Set("auto", draft.Map().Flow(), "no certificate could be taken over: these come by themselves")
	}
	if minimum != "" {
		tls.Set("min_version", draft.Verbatim(minimum))
	}
	if c.TLS != nil {
		c.TLS.CopyTo(tls)
	}
	if http3 {
		tls.Set("http3", draft.Number(true))
	}
	root.Set("tls", tls)
	c.clientCertificates(tls)
}

// clientCertificates writes what servers ask of clients. All sites share one TLS: where
// only some ask for certificates, those stay closed.
func (c *Config) clientCertificates(tls *draft.Node) {
	var first *Asks
	all := true
	for _, s := range c.Servers {
		switch a := s.Asks; {
		case s.OnlyPlain():
		case a == nil:
			all = false
		default:
			if first == nil {
				first = a
			}
			all = all && a.File != "" && a.Mode != "" && a.File == first.File && a.Mode == first.Mode
		}
	}
	if first == nil {
		return
	}
	for _, s := range c.Servers {
		if s.Asks == nil || s.OnlyPlain() {
			continue
		}
		if all {
			c.Used(append(s.Asks.Lines, s.Asks.Line)...)
			continue
		}
		c.Leave(s.Asks.Line, "clients of all sites are asked for certificates of one CA, or of none (tls.client_ca, tls.client_auth): this site answers 403 until its first rule is removed. Serve it by a process of its own")
		s.Closed = append(s.Closed, s.Asks.Line.At()+": "+c.Name+" asked clients for a certificate")
	}
	if !all {
		return
	}
	tls.Set("client_ca", draft.Text(first.File))
	if first.Mode == "optional" {
		tls.Set("client_auth", draft.Text("optional"))
	}
}

// Log writes an access log into log: there is one for all sites, whose line comes first.
// A file stands beside the original's own; it has no name, or its folder is not there,
// where the log goes to the standard output.
func (c *Config) Log(log *draft.Node, d *draft.Directive, format, file string) {
	if log.Len() > 0 {
		c.Standard(d, "there is one access log for all sites; its lines have the host with format: json")
		return
	}
	log.Set("format", draft.Text(format))
	if file == "/dev/stdout" {
		c.Used(d)
		return
	}
	if file == "" {
		c.Standard(d, "the access log goes to the standard output (the journal); log.file names a file")
		return
	}
	c.Used(d)
	dir, base := filepath.Split(file)
	if path.Base(dir) == "nginx" {
		log.Set("file", draft.Text(path.Join(path.Dir(path.Clean(dir)), "millrace", base)), c.Name+"'s own stays its own")
		return
	}
	log.Set("file", draft.Text(dir+"millrace-"+base), c.Name+"'s own stays its own")
}

// LogFormat is the format that is nearest to one of the original by its name.
func LogFormat(name string) string {
	switch {
	case strings.Contains(name, "json"):
		return "json"
	case name == "common":
		return "common"
	}
	return "combined"
}
