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
	if !strings.HasSuffix(path, "/]") { // the route's own path ends the config's
		c.key(join(path, "php"), "a route with PHP covers a folder: its path ends in \"/\"", "")
	}
}
