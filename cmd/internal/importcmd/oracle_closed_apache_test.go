package importcmd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/cmd/internal/cli"
	"millrace/internal/process/servertest"
)

// apacheGuard is what a section asks of clients.
func (g *generator) apacheGuard() string {
	password := "AuthType Basic\nAuthName x\nAuthBasicProvider file\nAuthUserFile " + g.passwords + "\nRequire valid-user\n"
	return g.of("Require all denied\n", "Require all granted\n", "Require all granted\n", "Require ip 10.0.0.1\n", "Require ip 127.0.0.1\n", "<RequireAll>\nRequire not ip 127.0.0.1\nRequire all granted\n</RequireAll>\n", password, password,
		"Order allow,deny\nDeny from all\n", "Order deny,allow\nDeny from 127.0.0.1\n", "")
}

// folder is one below the root.
func (g *generator) folder() string {
	var b strings.Builder
	for range 1 + g.IntN(2) {
		b.WriteString("/" + g.of("a", "b", "c", "ab"))
	}
	return b.String()
}

// apacheSection is a section that keeps clients out, or not.
func (g *generator) apacheSection(root string) string {
	guard := g.apacheGuard()
	files := func() string {
		if g.often(50) {
			return fmt.Sprintf("<Files %q>\n%s</Files>\n", g.of("x.jpg", "*.txt", "index.html", "*.jpg"), guard)
		}
		return fmt.Sprintf("<FilesMatch %q>\n%s</FilesMatch>\n", g.of(`\.jpg$`, `^z`, `txt`, `\.(jpg|txt)$`), guard)
	}
	switch g.IntN(9) {
	case 0, 1, 2:
		inner := ""
		if g.often(30) {
			inner = files()
		}
		return fmt.Sprintf("<Directory %q>\n%s%s</Directory>\n", root+g.folder(), guard, inner)
	case 3, 4:
		return fmt.Sprintf("<Location %q>\n%s</Location>\n", g.folder()+g.of("", "/"), guard)
	case 5:
		return fmt.Sprintf("<LocationMatch %q>\n%s</LocationMatch>\n", g.of("^/a/b", "/c/", "b", `\.jpg$`, "^/alias/a"), guard)
	case 6:
		return fmt.Sprintf("<DirectoryMatch %q>\n%s</DirectoryMatch>\n", g.of("/a/b", "/c/", "/b/a", "ab/", "^"+root+"/a/[a-z]+/"), guard)
	case 7:
		return "Redirect " + g.of("403", "404", "410") + " " + g.folder() + "\n"
	}
	return files()
}

func (g *generator) apacheSite(number int) string {
	root := filepath.Join(g.root, "site"+fmt.Sprint(number%4))
	var b strings.Builder
	fmt.Fprintf(&b, "<VirtualHost *:80>\nServerName s%d.example\nDocumentRoot %s\n<Directory %q>\n%s\n%s</Directory>\n", number, root, root, "AllowOverride "+g.of("All", "None"), g.of("Require all granted\n", "Require all granted\n", "Require all granted\n", g.apacheGuard()))
	for range g.IntN(3) {
		to := g.of(root, root, g.root+"/other") + "/" + g.of("a", "b", "c", "ab")
		switch g.IntN(8) {
		case 0:
			fmt.Fprintf(&b, "AliasMatch \"^/%s/(.*)$\" \"%s/$1\"\n", g.of("alias", "b"), to)
		default:
			fmt.Fprintf(&b, "Alias %q %q\n", g.of("/alias", "/alias/a", "/b", "/c/ab"), to)
		}
	}
	for range 1 + g.IntN(4) {
		b.WriteString(g.apacheSection(root))
	}
	if g.often(15) {
		fmt.Fprintf(&b, "ProxyPass %q %q\n", g.folder()+"/", g.upstream+"/")
	}
	return b.String() + "</VirtualHost>\n"
}

// TestApacheNeverOpens: what sections, aliases and .htaccess files keep closed in Apache
// is so in what the importer writes.
func TestApacheNeverOpens(t *testing.T) {
	servertest.Apache().Path(t)
	g := generate(t)
	base := g.root
	whole := filepath.Join(t.TempDir(), "whole")
	if err := os.Rename(base, whole); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"site0", "site1", "site2", "site3", "other"} {
		if err := os.CopyFS(filepath.Join(base, folder), os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		write(t, filepath.Join(base, "site"+fmt.Sprint(g.IntN(4)), g.folder(), ".htaccess"), g.apacheGuard())
	}
	for at := base; at != os.TempDir() && len(at) > 4; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const sites, each = 80, 60
	var b strings.Builder
	fmt.Fprintf(&b, "Listen 80\n<Directory %q>\nRequire all granted\n</Directory>\n", base)
	for i := range sites {
		b.WriteString(g.apacheSite(i))
	}
	file := filepath.Join(t.TempDir(), "apache2.conf")
	write(t, file, b.String())
	blocks := strings.Split(b.String(), "<VirtualHost ")
	g.aliases = true
	g.neverOpens(t, serveBoth(t, &Compare{Apache: file}), each, func(host string) string {
		yaml := filepath.Join(t.TempDir(), "millrace.yaml")
		if err := (&Apache{File: file, output: output{Output: yaml}}).Run(cli.Streams{Out: io.Discard, Err: io.Discard}); err != nil {
			return err.Error()
		}
		return blocks[slices.IndexFunc(blocks, func(b string) bool { return strings.Contains(b, "ServerName "+host+"\n") })] + "\n" + siteOf(yaml, host)
	})
}
