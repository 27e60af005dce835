package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes files and returns their folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestInclude(t *testing.T) {
	dir := tree(t, map[string]string{
		"millrace.yaml": `
include: [conf.d/*.yaml, none/*.yaml, last.yaml]
snippets:
  files: {static: {root: public, files: 5, index: [a.html]}, errors: {404: /404.html}}
  hard: {use: files, auth: {passwords: {a: "$2a$04$abcdefghijklmnopqrstuuXa3Kk1FQWqkTLlKxLQhsTnvCUHl1mZ6"}}}
sites:
  - routes: {/: {use: files}}
`,
		"conf.d/a.yaml": `
sites:
  - hosts: [a.example]
    use: safe
    routes: {/: {use: [files], static: {root: other, index: [b.html]}, errors: {404: /x.html, 5xx: /y.html}}}
`,
		"conf.d/b.yaml": `
snippets:
  safe: {rules: [{path: /.git/, deny: {}}], errors: {403: /no.html}}
`,
		"last.yaml":         "sites: [{hosts: [b.example], routes: {/: {use: hard}}}]",
		"public/index.html": "", "other/index.html": "",
	})
	cfg, err := Load(filepath.Join(dir, "millrace.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Sites) != 3 {
		t.Fatalf("%d sites, want 3", len(cfg.Sites))
	}
	a := cfg.Sites[1]
	r := a.Routes["/"]
	if a.Hosts[0] != "a.example" || len(a.Rules) != 1 || a.Errors["403"] != "/no.html" {
		t.Errorf("the site is %+v", a)
	}
	if r.Static.Root != filepath.Join(dir, "other") || r.Static.Files != 5 || len(r.Static.Index) != 1 || r.Static.Index[0] != "b.html" {
		t.Errorf("the route's files are %+v", r.Static)
	}
	if r.Errors["404"] != "/x.html" || r.Errors["5xx"] != "/y.html" {
		t.Errorf("its pages are %v", r.Errors)
	}
	if first := cfg.Sites[0].Routes["/"]; first.Static.Root != filepath.Join(dir, "public") || first.Errors["5xx"] != "" {
		t.Errorf("a snippet was changed by who used it: %+v", first)
	}
	if r := cfg.Sites[2].Routes["/"]; r.Static == nil || r.Auth == nil {
		t.Errorf("a snippet of a snippet: %+v", r)
	}
}

// Files of more text than is held as trees know the snippets of each other and their own
// anchors as all others do, and what is wrong with them is found where it is.
func TestIncludeLarge(t *testing.T) {
	files := map[string]string{"m.yaml": "include: [conf.d/*.yaml]", "conf.d/z.yaml": "snippets: {last: {deny: {status: 410}}}"}
	for _, name := range []string{"a", "b", "c"} {
		text := "sites:\n- {hosts: [" + name + ".example], routes: {/: {use: last}, /x/: &x {redirect: {to: /" + name + "}}, /y/: *x}}\n"
		files["conf.d/"+name+".yaml"] = text + strings.Repeat("# what nobody reads\n", maxTreeText*2/3/20)
	}
	dir := tree(t, files)
	cfg, err := Load(filepath.Join(dir, "m.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c"} {
		s := cfg.Sites[i]
		if y := s.Routes["/y/"].Redirect; s.Hosts[0] != name+".example" || s.Routes["/"].Deny == nil || y == nil || y.To != "/"+name {
			t.Errorf("%s is read as %+v", name, s)
		}
	}
	for _, name := range []string{"a", "c"} {
		path := filepath.Join(dir, "conf.d", name+".yaml")
		if err := os.WriteFile(path, []byte(files["conf.d/"+name+".yaml"]+"- {hosts: [d.example], routs: {}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		line := strings.Count(files["conf.d/"+name+".yaml"], "\n") + 1
		if _, err := Load(filepath.Join(dir, "m.yaml")); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s:%d:", path, line)) {
			t.Errorf("a mistake in %s is told of as %v", name, err)
		}
	}
}

// Findings name the file, and the line in it.
func TestIncludeFindings(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a key": {map[string]string{
			"m.yaml": "include: a.yaml\nsites: [{routes: {/: {deny: }}}]",
			"a.yaml": "sites:\n  - hosts: [a]\n    routes: {/: {statik: x}}\n",
		}, []string{"a.yaml:3:18: unknown key \"statik\"", "3 |     routes: {/: {statik: x}}"}},
		"a snippet's key": {map[string]string{
			"m.yaml": "include: a.yaml\nsites: [{routes: {/: {use: s}}}]",
			"a.yaml": "\nsnippets: {s: {deny: {status: 999}}}\n",
		}, []string{"a.yaml:2:31: status 999"}},
		"twice a host": {map[string]string{
			"m.yaml": "include: a.yaml\nsites: [{hosts: [a], routes: {/: {deny: }}}]",
			"a.yaml": "sites: [{hosts: [a], routes: {/: {deny: }}}]",
		}, []string{"a.yaml:1:18: a belongs to a site already", "in line 2"}},
		"the other way": {map[string]string{
			"m.yaml": "include: [a.yaml, b.yaml]",
			"a.yaml": "sites: [{hosts: [a], routes: {/: {deny: }}}]",
			"b.yaml": "sites: [{hosts: [a], routes: {/: {deny: }}}]",
		}, []string{"b.yaml:1:18: a belongs", "in ", "a.yaml, line 1"}},
		"broken": {map[string]string{
			"m.yaml": "include: a.yaml\nsites: [{routs: {/: {deny: }}}]",
			"a.yaml": "sites: [",
		}, []string{"a.yaml:1:"}},
		"not there":    {map[string]string{"m.yaml": "include: a.yaml\nsites: [{routes: {/: {deny: }}}]"}, []string{"m.yaml:1:10: there is no file"}},
		"a folder":     {map[string]string{"m.yaml": "include: d\nsites: [{routes: {/: {deny: }}}]", "d/x": ""}, []string{"d is not a file", "d/*.yaml"}},
		"other keys":   {map[string]string{"m.yaml": "include: a.yaml", "a.yaml": "listen: :80\nsites: []"}, []string{"a.yaml:1:1: \"listen\" is not for an included file"}},
		"nested":       {map[string]string{"m.yaml": "include: a.yaml", "a.yaml": "include: m.yaml"}, []string{"cannot include others"}},
		"itself":       {map[string]string{"m.yaml": "include: m.yaml"}, []string{"is included already"}},
		"no map":       {map[string]string{"m.yaml": "include: a.yaml", "a.yaml": "[1]"}, []string{"a.yaml:1:1: an included file starts with"}},
		"no snippet":   {map[string]string{"m.yaml": "snippets: {asset: {deny: }}\nsites: [{routes: {/: {use: assets}}}]"}, []string{"there is no snippet assets", "did you mean \"asset\"?"}},
		"circles":      {map[string]string{"m.yaml": "snippets: {a: {use: b}, b: {use: a}}\nsites: [{routes: {/: {use: a}}}]"}, []string{"the snippet a leads to itself: a, b, a"}},
		"two snippets": {map[string]string{"m.yaml": "include: a.yaml\nsnippets: {a: {deny: }}\nsites: [{routes: {/: {use: a}}}]", "a.yaml": "snippets: {a: {deny: }}"}, []string{"a.yaml:1:12: a second snippet a", "in line 2"}},
		"a site's":     {map[string]string{"m.yaml": "snippets: {a: {deny: }}\nsites: [{use: a, routes: {/: {deny: }}}]"}, []string{"m.yaml:1:16: unknown key \"deny\""}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, c.files)
			_, err := Load(filepath.Join(dir, "m.yaml"))
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it says\n%v\nwithout %q", err, want)
				}
			}
		})
	}
}
