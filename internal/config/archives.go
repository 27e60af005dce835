package config

import (
	"slices"
	"strings"

	"millrace/internal/server/guard"
)

// archives refuses archives of folders that are partly closed: an archive holds all files
// below, whatever rules and other routes say.
func (c *checker) archives(path string, s Site) {
	closing := slices.ContainsFunc(s.Rules, func(r guard.Rule) bool { return r.Deny != nil || r.Respond != nil || r.Route != "" })
	for _, pattern := range sortedKeys(s.Routes) {
		if r := s.Routes[pattern]; r.Static == nil || !r.Static.Archives {
			continue
		}
		at := path + ".routes[" + pattern + "].static.archives"
		const hint = "give the folder for archives a route and a root of its own"
		if closing {
			c.value(at, "an archive would hold files that the site's rules close", hint)
		}
		for _, other := range sortedKeys(s.Routes) {
			if other != pattern && strings.HasPrefix(other, pattern) {
				c.value(at, "an archive would hold files below "+other+", which has a route of its own", hint)
			}
		}
	}
}
