package caddy

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"millrace/importer/draft"
	"millrace/importer/importertest"
	"millrace/internal/config"
)

var update = flag.Bool("update", false, "write the configs that are expected")

// read reads a Caddyfile of testdata as if it were in /etc/caddy.
func read(t testing.TB, name string) *Config {
	t.Helper()
	files := importertest.Files{Dir: "testdata/configs", As: "/etc/caddy"}
	c, err := Parse("/etc/caddy/"+name, draft.Files{Read: files.Read, Glob: files.Glob})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tested translates a Caddyfile for the tests that all importers share.
func tested() importertest.Importer {
	return importertest.Importer{
		Translate: func(text string) (*draft.Node, *draft.Report, error) {
			c, err := parse(text)
			if err != nil {
				return nil, nil, err
			}
			node, report := Translate(c, options())
			return node, report, nil
		},
		Check: func(yaml string) error { _, err := config.Parse("x.yaml", []byte(yaml)); return err },
	}
}

func options() Options {
	return Options{Dir: "/etc/caddy", IsFile: func(name string) bool { return strings.HasSuffix(name, "/404.html") }}
}

func parse(text string) (*Config, error) {
	return Parse("/etc/caddy/Caddyfile", draft.Files{
		Read: func(string) ([]byte, error) { return []byte(text), nil },
		Glob: func(string) ([]string, error) { return nil, nil },
	})
}

// TestConfigs: Caddyfiles of different kinds, and what is made of them. That they
// answer as with Caddy is tested by the commands.
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob("testdata/configs/*.Caddyfile")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d configs, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			node, report := Translate(read(t, filepath.Base(file)), options())
			text := report.File("Written by: millrace import caddy "+filepath.Base(file), node.Share())
			importertest.Golden(t, strings.TrimSuffix(file, ".Caddyfile")+".yaml", text, *update)
		})
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
	importertest.Seeds(f, "testdata/configs/*.Caddyfile")
	f.Add("a {\n@x not {\npath /a* *.b\nnot file\n}\nhandle @x {\nrewrite * {uri}\nfile_server\n}\nroot\nheader\nredir\n}")
	f.Add("a, b\nreverse_proxy {\nto :80-90\nheader_up\nlb_policy weighted_round_robin\n}\nuri\nbasic_auth\nforward_auth a {\nuri\n}")
	f.Add("(s) {\nimport s\n}\na {\nimport s {args[0]}\n}")
	f.Fuzz(func(t *testing.T, text string) {
		tested().Whatever(t, text, func() int {
			c, _ := parse(text) // it was read before
			return count(c.Lines())
		})
	})
}
