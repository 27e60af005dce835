package apache

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/importer/draft"
	"millrace/importer/importertest"
	"millrace/internal/config"
)

var update = flag.Bool("update", false, "write the configs that are expected")

const configs = "testdata/configs"

// files are those of testdata, as if configs were in /etc/apache2 and the folders
// of htaccess in /srv.
func files() (etc, srv importertest.Files) {
	return importertest.Files{Dir: configs, As: "/etc/apache2"}, importertest.Files{Dir: configs + "/htaccess", As: "/srv"}
}

func options() Options {
	_, srv := files()
	return Options{
		Read:  srv.Read,
		IsDir: func(string) bool { return true },
		IsFile: func(name string) bool {
			return strings.HasSuffix(name, "/index.php") && !strings.Contains(name, "members") && !strings.Contains(name, "moved") && !strings.Contains(name, "/app/") && !strings.Contains(name, "/r/")
		},
		Below: func(dir string) (found []string, all bool) {
			_ = filepath.WalkDir(strings.Replace(dir, srv.As, srv.Dir, 1), func(name string, d fs.DirEntry, err error) error {
				if err == nil && d.Name() == Htaccess {
					found = append(found, strings.Replace(name, srv.Dir, srv.As, 1))
				}
				return nil
			})
			return found, true
		},
	}
}

// read reads a config of testdata, or the .htaccess of a folder of it.
func read(t testing.TB, name string) ([]*draft.Directive, Options) {
	t.Helper()
	etc, srv := files()
	o, at, from := options(), "/etc/apache2/"+name, etc
	if strings.HasSuffix(name, Htaccess) {
		at, from = "/srv/"+name, srv
		o.Root = filepath.Dir(at)
		if strings.HasPrefix(name, "moved") {
			o.Hosts = []string{"example.org", "www.example.org"}
		}
	}
	list, err := Parse(at, "", draft.Files{Read: from.Read, Glob: from.Glob})
	if err != nil {
		t.Fatal(err)
	}
	return list, o
}

// TestConfigs: configs of different kinds, and what is made of them. That they
// answer as with Apache is tested by the commands.
func TestConfigs(t *testing.T) {
	names, err := filepath.Glob(configs + "/*.conf")
	folders, bad := filepath.Glob(configs + "/htaccess/*")
	if err != nil || bad != nil || len(names)+len(folders) < 12 {
		t.Fatalf("%d configs, %v", len(names)+len(folders), err)
	}
	for _, folder := range folders {
		file := filepath.Join(folder, Htaccess)
		if _, err := os.Stat(file); err != nil {
			file = filepath.Join(folder, "public", Htaccess)
		}
		names = append(names, file)
	}
	for _, file := range names {
		name := strings.TrimPrefix(strings.TrimPrefix(file, configs+"/"), "htaccess/")
		t.Run(name, func(t *testing.T) {
			list, o := read(t, name)
			node, report := Translate(list, o)
			golden := strings.Split(strings.TrimSuffix(name, ".conf"), "/")[0] + ".yaml"
			importertest.Golden(t, filepath.Join(configs, golden), report.File("Written by: millrace import apache "+name, node.Share()), *update)
			for _, fault := range tested().Faults(node.String()) {
				t.Errorf("millrace check: %s", fault)
			}
		})
	}
}

// parse reads a text.
func parse(text string) ([]*draft.Directive, error) {
	return Parse("/etc/apache2/apache2.conf", "", draft.Files{
		Read: func(string) ([]byte, error) { return []byte(text), nil },
		Glob: func(string) ([]string, error) { return nil, nil },
	})
}

// tested translates a config for the tests that all importers share; one that
// names no folder is the .htaccess of /r.
func tested() importertest.Importer {
	return importertest.Importer{
		Translate: func(text string) (*draft.Node, *draft.Report, error) {
			list, err := parse(text)
			if err != nil {
				return nil, nil, err
			}
			o := options()
			if !strings.Contains(text, "DocumentRoot") && !strings.Contains(text, "VirtualHost") {
				o.Root, o.Hosts = "/r", []string{"a.example", "www.a.example"}
			}
			node, report := Translate(list, o)
			return node, report, nil
		},
		Check: func(yaml string) error { _, err := config.Parse("x.yaml", []byte(yaml)); return err },
	}
}

// count is the number of lines.
func count(list []*draft.Directive) int {
	n := 0
	for _, d := range list {
		n += 1 + count(d.Block)
	}
	return n
}

// FuzzTranslate: nothing makes it fail, each line has an outcome, and what is
// written is YAML that the config's reader takes apart.
func FuzzTranslate(f *testing.F) {
	importertest.Seeds(f, configs+"/*.conf")
	importertest.Seeds(f, configs+"/htaccess/*/.htaccess")
	f.Add("RewriteEngine on\nRewriteCond %{REQUEST_URI} ^/(a|b)$ [OR]\nRewriteCond %1 x\nRewriteRule ( ) [\nRewriteRule !^a|b$ %1$9?{ [R=999,P]\nRedirect\nRedirectMatch (\nRedirect 301 / {x}")
	f.Add("<Files ~ ^(>\nRequire not\n</Files>\n<RequireAll>\n<RequireNone>\nRequire ip x\n</RequireNone>\n</RequireAll>\nOrder\nAllow from 1. 2/3\nDeny from env=a\nSatisfy any")
	f.Add("<VirtualHost>\nProxyPass / unix:|\n<Location ~ >\nProxyPass balancer://\n</Location>\n<Directory ~ \"^(\">\nRequire all denied\n</Directory>\nSSLEngine on\nDocumentRoot x\nAlias a\n</VirtualHost>")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "include") || strings.Contains(text, "/srv") {
			return
		}
		tested().Whatever(t, text, func() int {
			list, _ := parse(text) // it was read before
			return count(list) + 1
		})
	})
}

// TestBelow: files are found behind links as well, also where the folder is one, and
// a link to what it is in does not go in circles.
func TestBelow(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"release/private", "shared/secret", "release/node_modules/x"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil { //nolint:gosec // a test's
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, Htaccess), []byte("Require all denied\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"current": "release", "release/shared": "../shared", "release/private/up": "..", "release/gone": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "current")
	want := []string{filepath.Join(root, "private", Htaccess), filepath.Join(root, "shared/secret", Htaccess)}
	if found, all := Below(root); !all || !slices.Equal(found, want) {
		t.Errorf("found %q, %v; want %q", found, all, want)
	}
}
