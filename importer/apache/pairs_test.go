package apache

import "testing"

// TestPairs: short configs, and what is made of them.
func TestPairs(t *testing.T) {
	tested().Pairs(t, "testdata/pairs/*.txt", func(inside, name string) string {
		return "<VirtualHost *:80>\nServerName " + name + "\nDocumentRoot /srv/www\n" + inside + "</VirtualHost>\n"
	}, *update)
}
