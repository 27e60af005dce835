package config

import (
	"net/netip"
	"slices"
	"strings"

	"millrace/internal/route/headers"
)

// HeaderLists are the rules for the answers of a route of a site, or, for nil, of
// paths that no route answers.
func (c *Config) HeaderLists(s Site, r *Route) []headers.List {
	var own *headers.AnswerOptions
	if r != nil {
		own = r.Headers
	}
	lists := headers.Lists(s.Headers, own, c.TLS.Redirects() && public(s.Hosts))
	if r != nil && len(r.EarlyHints) > 0 {
		hints := headers.List{Type: []string{"text/html"}}
		hints.Add = map[string]string{"Link": strings.Join(r.EarlyHints, ", ")}
		lists = append(lists, hints)
	}
	return lists
}

// CORSOptions say which scripts may read the answers of a route of a site, or,
// for nil, of paths that no route answers. nil: it is not said here.
func (s Site) CORSOptions(r *Route) *headers.CORSOptions {
	o := s.CORS
	if r != nil && r.CORS != nil {
		o = r.CORS
	}
	if r != nil && r.CORS == nil && r.Cache != nil && len(r.Cache.CORS.Origins) > 0 {
		o = nil // its own word is nearer
	}
	if o == nil || len(o.Origins) == 0 {
		return nil
	}
	return o
}

// public reports whether a site names its hosts, and none like localhost, which many
// programs of a machine share: what browsers remember of it (HSTS) holds for all of them.
func public(hosts []string) bool {
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool {
		_, err := netip.ParseAddr(h)
		return err == nil || h == "localhost" || strings.HasSuffix(h, ".localhost")
	})
}

// headers checks the rules of a site and its routes together.
func (c *checker) headers(path string, s Site) {
	for _, key := range sortedKeys(s.Routes) {
		r, at := s.Routes[key], path+".routes["+key+"]"
		if r.Cache != nil && r.CORS != nil && len(r.Cache.CORS.Origins) > 0 {
			c.key(join(at, "cors"), "the cache of this route has a \"cors\" of its own", "keep one of the two")
		}
	}
}
