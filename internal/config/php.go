package config

import (
	"strings"

	"millrace/internal/route/site"
)

// php checks that a route's scripts have a folder.
func (c *checker) php(path string, r Route) {
	for key, err := range r.PHP.Check() {
		c.value(join(path, "php."+key), err.Error(), "")
	}
	if r.Static == nil && !c.doc.unread[join(path, "static")] {
		c.key(join(path, "php"), "PHP of what? There is no folder beside it", "add static: {root: /srv/www}")
	}
	if r.Static != nil && len(r.Static.Fallback) > 0 {
		c.key(join(path, "static.fallback"), "fallback is for folders without PHP: its scripts are those of one folder", "give the other folder a route of its own")
	}
	if r.Static != nil && r.Static.RuleFiles {
		c.key(join(path, "static.rule_files"), "rule_files is for folders without PHP: a script could be behind any path", "write what the files say as rules and headers of the site")
	}
	key := strings.TrimSuffix(path[strings.LastIndex(path, "routes[")+len("routes["):], "]") // the route's own path ends the config's
	if !strings.HasSuffix(key, "/") && !strings.HasSuffix(key, ".php") && !site.IsName(key) {
		c.key(join(path, "php"), "a route with PHP covers a folder, or is a script or a name: its path ends in \"/\" or .php, or begins with \"@\"", "")
	}
}
