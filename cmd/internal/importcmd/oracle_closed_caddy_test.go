package importcmd

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/cmd/internal/cli"
	"millrace/internal/process/servertest"
)

// caddyMatcher is a matcher of one line.
func (g *generator) caddyMatcher() string {
	return g.of("/a/*", "/b*", "/*.jpg", "/a/b/*", "/c", "/ab/*", "/x.jpg")
}

// caddyLines are what stands in a site or a block.
func (g *generator) caddyLines(depth int) string {
	var b strings.Builder
	for range 1 + g.IntN(4-depth) {
		m := g.caddyMatcher()
		switch g.IntN(9) {
		case 0, 1:
			fmt.Fprintf(&b, "respond %s %s\n", m, g.of("403", "404", "410"))
		case 2:
			fmt.Fprintf(&b, "basic_auth %s {\nalice $2a$04$JQbQPmFZwv4wlCVYlYPyR.6vGSnJdE7k8B1Q2VqhCjWx5F5nIYdWa\n}\n", m)
		case 3, 4:
			if depth < 2 {
				fmt.Fprintf(&b, "handle %s {\n%s}\n", m, g.caddyLines(depth+1))
			}
		case 5:
			if depth < 2 {
				fmt.Fprintf(&b, "route %s {\n%s}\n", m, g.caddyLines(depth+1))
			}
		case 6:
			name := fmt.Sprint("@m", g.IntN(1_000_000))
			fmt.Fprintf(&b, "%s {\npath %s\nnot path %s\n}\nrespond %s 403\n", name, m, g.caddyMatcher(), name)
		case 7:
			name := fmt.Sprint("@m", g.IntN(1_000_000))
			fmt.Fprintf(&b, "%s path_regexp %s\nrespond %s 404\n", name, g.nginxExpression(), name)
		case 8:
			fmt.Fprintf(&b, "reverse_proxy %s %s\n", m, strings.TrimPrefix(g.upstream, "http://"))
		}
	}
	b.WriteString(g.of("file_server\n", "file_server\n", "reverse_proxy "+strings.TrimPrefix(g.upstream, "http://")+"\n"))
	return b.String()
}

// TestCaddyNeverOpens: what Caddy refuses is not served by what the importer writes.
func TestCaddyNeverOpens(t *testing.T) {
	binary := servertest.Caddy().Path(t)
	g := generate(t)
	const sites, each = 60, 60
	var b strings.Builder
	for i := range sites {
		fmt.Fprintf(&b, "http://s%d.example {\nroot * %s\n%s}\n", i, g.root, g.caddyLines(0))
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	write(t, file, b.String())
	blocks := strings.Split(b.String(), "http://")
	g.neverOpens(t, serveBoth(t, &Compare{Caddy: file, Binary: binary}), each, func(host string) string {
		yaml := filepath.Join(t.TempDir(), "millrace.yaml")
		if err := (&Caddy{File: file, output: output{Output: yaml}}).Run(cli.Streams{Out: io.Discard, Err: io.Discard}); err != nil {
			return err.Error()
		}
		return blocks[slices.IndexFunc(blocks, func(b string) bool { return strings.HasPrefix(b, host+" {") })] + "\n" + siteOf(yaml, host)
	})
}
