// Package plan is the model that the configs of nginx, Caddy and Apache are read into,
// and from which a config of Millrace is written: servers with their addresses and
// hosts, and for each of them conditions and actions in the order in which the original
// decides, and routes for what they leave.
//
// What the original's order means is decided by its reader, and by nobody else. These
// locations of nginx
//
//	location / { root /srv; }
//	location ~ \.inc$ { deny all; }
//	location = /a { return 410; }
//
// are, since nginx looks for exact paths first, then for expressions, then for prefixes:
//
//	site.Rules = []Rule{
//		{If: Cond{Path: "/a"}, Do: Deny(410)},
//		{If: Cond{Regex: `\.inc$`}, Do: Deny(403)},
//	}
//	site.Route("/", &Route{Static: Static{Root: "/srv"}})
package plan

import (
	"slices"
	"strings"

	"millrace/importer/draft"
)

// Config is a config of another server, as far as it is about more than one site.
type Config struct {
	*draft.Ledger
	Name        string // of the original: nginx
	Servers     []*Server
	TLS         *draft.Node // what it says of TLS beside certificates; nil for nothing
	Auto        *draft.Node // where certificates come from that no file has; nil: as by default
	Redirecting []string    // addresses at which clients are sent to TLS
	AllOfTry    bool        // rules are for each path that try makes, not for the last alone
	// Upgrade is what clients get over plain HTTP from a server that has TLS alone where
	// others have both, and why; nil: they are sent to TLS.
	Upgrade func(s *Server) *Rule
}

// Server is a block of the original that answers for some hosts: server, <VirtualHost>,
// the addresses of a Caddyfile with their braces.
type Server struct {
	Line   *draft.Directive // nil: the whole config
	Listen *draft.Directive // the line that says where it listens; nil: Line
	Names  []string         // in lower case; *.example.org are all below
	Named  *draft.Directive // a line that says so, where the first server has all other hosts
	Any    bool             // it answers for every host that nobody else has
	Plain  []string         // addresses without TLS, as host:port
	Secure []string         // addresses with TLS

	Certificates []Pair
	MinVersion   string // of TLS
	HTTP3        bool
	Asks         *Asks // for a certificate; nil: it does not

	Notes  []string    // above the site, behind its line
	Closed []string    // why nobody is let in until somebody has looked
	Read   func(*Site) // reads its lines

	local bool // fewer clients could connect to it than to others
}

// Pair are the files of a certificate, with its chain, and of its key.
type Pair struct{ Chain, Key string }

// Asks is a server's demand for certificates of clients.
type Asks struct {
	Line  *draft.Directive
	File  string             // of the CA; "" if it is not one file
	Mode  string             // required or optional; "" for anything else
	Lines []*draft.Directive // what belongs to it
}

// OnlyPlain reports whether the server speaks no TLS.
func (s *Server) OnlyPlain() bool { return len(s.Secure) == 0 }

// line is the one that says where it listens.
func (s *Server) line() *draft.Directive {
	if s.Listen != nil {
		return s.Listen
	}
	return s.Line
}

// at is the place of the server, "" for the whole config.
func (s *Server) at() string {
	if s.Line == nil {
		return ""
	}
	return s.Line.At()
}

// Sites writes the servers. Those of one name for plain HTTP and for TLS become one site,
// since a site is served on all addresses.
func (c *Config) Sites() *draft.Node {
	list := draft.List()
	taken := map[string]bool{}
	fallback := false
	for _, s := range c.Servers {
		if s.OnlyPlain() && c.mergedInto(s) != nil {
			// Its lines come with those of the other; what that has no names of is a site.
			rest := c.withoutTLS(s)
			if len(rest) == 0 {
				continue
			}
			copied := *s
			copied.Names, copied.Any, copied.Closed = rest, false, slices.Clone(s.Closed)
			s = &copied
		}
		hosts := slices.DeleteFunc(slices.Clone(s.Names), func(n string) bool { return taken[n] })
		switch all := !s.local && (len(s.Names) == 0 || s.Any); {
		case s.local && len(s.Names) == 0:
			c.Leave(s.Line, c.servedLocally()+", and a site without hosts answers everybody: give it hosts and "+s.localAccess()+", or a process of its own")
			continue
		case all && !fallback:
			hosts, fallback = nil, true
		case all && len(hosts) == 0:
			c.Leave(s.Line, "a second block for all other hosts: sites are not told apart by address. Give it hosts")
			continue
		case len(hosts) == 0:
			c.Leave(s.Line, "another block has the same hosts, and sites are not told apart by port: give it hosts of its own")
			continue
		}
		node := draft.Map()
		node.FillTexts("hosts", hosts)
		for _, n := range s.Names {
			taken[n] = true
		}
		c.site(s, node)
		if s.Line != nil {
			list.Add(node, append([]string{s.at()}, s.Notes...)...)
		} else {
			list.Add(node)
		}
	}
	return list
}

// site writes one server, with what those for plain HTTP of its names do.
func (c *Config) site(s *Server, node *draft.Node) {
	t := NewSite(c, s)
	s.Read(t)
	t.closeEnds()
	var rules []Rule
	blocks := c.plainOf(s)
	for _, p := range blocks {
		rules = append(rules, t.overPlain(p)...)
	}
	if len(blocks) == 0 && !s.OnlyPlain() && len(s.Plain) == 0 && slices.ContainsFunc(c.Servers, func(o *Server) bool { return len(o.Plain) > 0 }) {
		if p := c.plainDefault(); p != nil {
			rules = t.overPlain(p)
		} else if c.Upgrade == nil {
			toTLS := Redirection{To: "https://{host}{uri}"}
			rules = append(rules, Rule{If: Cond{Protocol: "http"}, Do: Action{Redirect: toTLS}, Note: c.Name + " served these hosts over TLS alone"})
		} else if r := c.Upgrade(s); r != nil {
			rules = append(rules, *r)
		}
	}
	t.Rules = append(rules, t.Rules...)
	t.write(node)
}

// mergedInto is the server for TLS that takes over one for plain HTTP: one that shares a
// name with it.
func (c *Config) mergedInto(s *Server) *Server {
	i := slices.IndexFunc(c.Servers, func(o *Server) bool { return o != s && !o.OnlyPlain() && shares(o, s) })
	if i < 0 {
		return nil
	}
	return c.Servers[i]
}

// withoutTLS are the names of a server that none for TLS has.
func (c *Config) withoutTLS(s *Server) []string {
	return slices.DeleteFunc(slices.Clone(s.Names), func(n string) bool {
		return slices.ContainsFunc(c.Servers, func(o *Server) bool { return !o.OnlyPlain() && (s.local || !o.local) && slices.Contains(o.Names, n) })
	})
}

func shares(secure, plain *Server) bool {
	if secure.local && !plain.local {
		return false // it would be closed with the other
	}
	if len(plain.Names) == 0 {
		return !plain.local && (len(secure.Names) == 0 || secure.Any)
	}
	return slices.ContainsFunc(plain.Names, func(n string) bool { return slices.Contains(secure.Names, n) })
}

// plainOf are the servers for plain HTTP of the names of one for TLS.
func (c *Config) plainOf(s *Server) (list []*Server) {
	if s.OnlyPlain() || len(s.Plain) > 0 {
		return nil
	}
	for _, o := range c.Servers {
		if o.OnlyPlain() && shares(s, o) {
			list = append(list, o)
		}
	}
	return list
}

// plainDefault is the server for all other hosts over plain HTTP, if it only redirects
// or refuses: hosts without a server of their own are given to that.
func (c *Config) plainDefault() *Server {
	for _, s := range c.Servers {
		if s.OnlyPlain() && !s.local && s.Any && s.Line != nil && slices.ContainsFunc(s.Line.Block, func(d *draft.Directive) bool { return strings.EqualFold(d.Name, "return") }) {
			return s
		}
	}
	return nil
}
