package caddy

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/config"
	"millrace/internal/importer/caddyconf"
	"millrace/internal/importer/draft"
)

var update = flag.Bool("update", false, "write the configs that are expected")

// read reads a Caddyfile of testdata as if it were in /etc/caddy.
func read(t testing.TB, name string) *caddyconf.Config {
	t.Helper()
	const dir = "testdata/configs"
	c, err := caddyconf.Parse("/etc/caddy/"+name, caddyconf.Files{
		Read: func(name string) ([]byte, error) { return os.ReadFile(strings.Replace(name, "/etc/caddy", dir, 1)) },
		Glob: func(pattern string) ([]string, error) {
			names, err := filepath.Glob(strings.Replace(pattern, "/etc/caddy", dir, 1))
			for i := range names {
				names[i] = strings.Replace(names[i], dir, "/etc/caddy", 1)
			}
			return names, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func options() Options {
	return Options{Dir: "/etc/caddy", IsFile: func(name string) bool { return strings.HasSuffix(name, "/404.html") }}
}

func parse(text string) (*caddyconf.Config, error) {
	return caddyconf.Parse("/etc/caddy/Caddyfile", caddyconf.Files{
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
			text := report.File("Written by: millrace import caddy "+filepath.Base(file), node)
			golden := strings.TrimSuffix(file, ".Caddyfile") + ".yaml"
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text); diff != "" {
				t.Errorf("go test -run TestConfigs -update writes it anew (-want +got)\n%s", diff)
			}
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

// FuzzTranslate: nothing makes it fail, each line has a fate, and what is
// written is YAML that the config's reader takes apart.
func FuzzTranslate(f *testing.F) {
	files, _ := filepath.Glob("testdata/configs/*.Caddyfile")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("a {\n@x not {\npath /a* *.b\nnot file\n}\nhandle @x {\nrewrite * {uri}\nfile_server\n}\nroot\nheader\nredir\n}")
	f.Add("a, b\nreverse_proxy {\nto :80-90\nheader_up\nlb_policy weighted_round_robin\n}\nuri\nbasic_auth\nforward_auth a {\nuri\n}")
	f.Add("(s) {\nimport s\n}\na {\nimport s {args[0]}\n}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse(text)
		if err != nil {
			return
		}
		node, report := Translate(c, options())
		if got, most := len(report.Notes), count(c.Lines()); got > most {
			t.Errorf("%d fates for %d lines", got, most)
		}
		for _, n := range report.Notes {
			if n.Fate == 0 || n.Fate != draft.Translated && n.Why == "" {
				t.Errorf("without a fate: %+v", n)
			}
		}
		_, err = config.Parse("x.yaml", []byte(report.File("x", node)))
		if err != nil && strings.Contains(err.Error(), "not YAML") {
			t.Errorf("%v\n%s", err, node)
		}
	})
}
