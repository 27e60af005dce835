package nginx

import "testing"

// TestPairs: short configs, and what is made of them.
func TestPairs(t *testing.T) {
	tested().Pairs(t, "testdata/pairs/*.txt", func(inside, name string) string { return "server { server_name " + name + "; " + inside + "}" }, *update)
}
