package config

import "strings"

// php checks that a route's scripts have a folder.
func (c *checker) php(path string, r Route) {
	for key, err := range r.PHP.Check() {
		c.value(join(path, "php."+key), err.Error(), "")
	}
	if r.Static == nil && !c.doc.unread[join(path, "static")] {
		c.key(join(path, "php"), "PHP of what? There is no folder beside it", "add static: {root: /srv/www}")
	}
	if r.Static != nil && r.Static.RuleFiles {
		c.key(join(path, "static.rule_files"), "rule_files is for folders without PHP: a script could be behind any path", "write what the files say as rules and headers of the site")
	}
	if !strings.HasSuffix(path, "/]") { // the route's own path ends the config's
		c.key(join(path, "php"), "a route with PHP covers a folder: its path ends in \"/\"", "")
	}
}
