package engine_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestPathsReachUpstreamsAsTheyCame: byte for byte, by what passes paths on, also
// as a hit; and no path gets round another route by the way it is written.
func TestPathsReachUpstreamsAsTheyCame(t *testing.T) {
	t.Parallel()
	up := mirror(t)
	routes := fmt.Sprintf("    /p/: {proxy: %s}\n    /c/: {cache: {to: %s, rules: [{path: /c/kept/*, ttl: 5m}]}}\n    /p/admin/: {deny: {}}\n    /c/admin/: {deny: {}}\n    /f/: {static: {root: %q}}\n", up, up, t.TempDir())
	everyWay(t, "sites:\n- routes:\n"+routes, func(w *way) {
		for _, route := range []string{"/p/", "/c/"} {
			for _, rest := range []string{
				"https%3A%2F%2Fexample.com/x", "https://example.com/x", "a%2F..%2Fb", "a//b", "a/./b", "a/../b?x=//", "/", "%2ex",
			} {
				for range 3 {
					status, said, _ := w.visit(route+rest, anything{})
					if want := "GET " + route + rest + "\n"; status != 200 || !strings.HasPrefix(said, want) {
						w.Errorf("%s: %d, the upstream was asked %q", route+rest, status, strings.SplitN(said, "\n", 2)[0])
					}
				}
			}
			for _, rest := range []string{
				"admin/x", "/admin/x", "%2fadmin/x", "..%2fadmin", "x%2f..%2fadmin%2fx", "x/../admin/x", "%2e/admin/x", "admin%2fx", "admin/..%2fadmin/x",
				"admin%2f..%2fx", "admin/../x", "x/../admin//../k", "y/x/../../admin/%2e%2e/../p/k", "../f/x", "..%2ff%2fx",
			} {
				for range 3 {
					if status, said, _ := w.visit(route+rest, anything{}); status == 200 || strings.HasPrefix(said, "GET ") {
						w.Errorf("%s reaches the upstream: %d %q", route+rest, status, said)
					}
				}
			}
		}
		// What a rule says is not for a path that an upstream may read as another.
		for target, want := range map[string]string{"/c/kept//x": "hit", "/c/kept/..%2fx": "bypass", "/c/kept%2f..%2fx": "bypass", "/c/x%2f..%2fkept/x": "bypass"} {
			w.visit(target, anything{})
			if _, _, header := w.visit(target, anything{}); !strings.Contains(header.Get("Cache-Status"), want) {
				w.Errorf("%s: %q, want a %s", target, header.Get("Cache-Status"), want)
			}
		}
		if status, _, header := w.visit("/f//x", anything{}); status != 301 || header.Get("Location") != "/f/x" {
			w.Errorf("files have one path: %d to %q", status, header.Get("Location"))
		}
	})
}
