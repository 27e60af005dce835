package caddy

import (
	"fmt"
	"strings"
	"testing"

	"millrace/importer/draft"
)

// files are files by their names.
type files map[string]string

func (f files) parse(t *testing.T, name string) (*Config, error) {
	t.Helper()
	return Parse(name, draft.Files{
		Read: func(name string) ([]byte, error) {
			text, is := f[name]
			if !is {
				return nil, fmt.Errorf("%s: no such file", name)
			}
			return []byte(text), nil
		},
		Glob: func(pattern string) (names []string, _ error) {
			for name := range f {
				if name == pattern || strings.HasSuffix(pattern, "*") && strings.HasPrefix(name, strings.TrimSuffix(pattern, "*")) {
					names = append(names, name)
				}
			}
			return names, nil
		},
	})
}

// show writes lines one after the other: name[args]{block}.
func show(list []*draft.Directive) string {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "%s%q", d.Name, d.Args)
		if d.Opens {
			b.WriteString("{" + show(d.Block) + "}")
		}
		b.WriteString(";")
	}
	return b.String()
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"a.example\nrespond \"x y\" 200":                                       `["a.example"]{respond["x y" "200"];};`,
		"a, b,\nc {\nx\n}":                                                     `["a" "b" "c"]{x[];};`,
		"a {\nx `one \"two\"` \"3\\\"\" # not this\n}":                         `["a"]{x["one \"two\"" "3\""];};`,
		"a {\nx one \\\n two\n}":                                               `["a"]{x["one" "two"];};`,
		"a {\nx {\ny z\n}\n}":                                                  `["a"]{x[]{y["z"];};};`,
		"a {\nx <<END\n  one\n    two\n  END 3\n}":                             `["a"]{x["one\n  two" "3"];};`,
		"a {\nx <<END\n  one\n    two\n  END\n}":                               `["a"]{x["one\n  two"];};`,
		"{\nemail x\n}\na {\n}":                                                `["a"]{};`,
		"(s) {\nx {args[0]} {args[1:]}\n}\na {\nimport s 1 2 3\n}":             `["a"]{x["1" "2" "3"];};`,
		"(s) {\nx {\n{block}\n}\n}\na {\nimport s {\ny 1\n}\n}":                `["a"]{x[]{y["1"];};};`,
		"(s) {\n@m path {args[0]}\n}\n(t) {\nimport s /a\n}\na {\nimport t\n}": `["a"]{@m["path" "/a"];};`,
		"import f/*":               `["b"]{x[];};`,
		"a {\nimport f/one\n}":     `["a"]{b[]{x[];};};`,
		"a {\nimport none/*\nx\n}": `["a"]{x[];};`,
		"a {\nx {$HOME:/x y}\n}":   `["a"]{x["{$HOME:/x" "y}"];};`,
		"a {\nx \\{ y\n}":          `["a"]{x["{" "y"];};`,
	} {
		c, err := files{"/etc/Caddyfile": text, "/etc/f/one": "b {\nx\n}\n"}.parse(t, "/etc/Caddyfile")
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := show(c.Sites); got != want {
			t.Errorf("%q\ngot  %s\nwant %s", text, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"a {\nx":                               "is not closed",
		"}":                                    "closes what no other",
		"a {\nx \"y\n}":                        "quote that begins in line 2",
		"a {\nx <<END\n}":                      "no line is \"END\"",
		"a {\nimport nothing\n}":               "neither a snippet nor a file",
		"(s) {\nimport s\n}\na {\nimport s\n}": "in a circle",
		"import Caddyfile":                     "in a circle",
		"a {\n}\n{\n}":                         "first block",
		"":                                     "no site",
		strings.Repeat("a {\n", 100):           "too many blocks",
		"(s) {\nx\nimport t\nimport t\n}\n(t) {\nimport s\nimport s\n}\na {\nimport s\n}": "Caddyfile",
	} {
		_, err := files{"/etc/Caddyfile": text}.parse(t, "/etc/Caddyfile")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, not %q", text, err, want)
		}
	}
}

// FuzzParse: nothing makes it fail or go on for ever.
func FuzzParse(f *testing.F) {
	f.Add("(s) {\nx {args[0]}\n}\na, b {\nimport s 1 {\ny\n}\n}")
	f.Add("a\nx <<E\n y\n E\n\"z\\\"\" `q`")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := files{"/etc/Caddyfile": text}.parse(t, "/etc/Caddyfile")
		if err != nil {
			return
		}
		for _, d := range c.Lines() {
			if d.Line < 1 {
				t.Errorf("%+v has no line", d)
			}
		}
	})
}

// TestLinesOfTheEnvironment: a line that is nothing but a variable is what that holds, or
// none where it is not set.
func TestLinesOfTheEnvironment(t *testing.T) {
	for env, want := range map[string]string{"": `["http://a"]{file_server[];};`, "respond x\nrespond /b y": `["http://a"]{respond["x"];respond["/b" "y"];file_server[];};`} {
		c, err := Parse("Caddyfile", draft.Files{
			Read: func(string) ([]byte, error) {
				return []byte("{\n{$GLOBAL}\n}\nhttp://a {\n\t{$MORE}\n\tfile_server\n}"), nil
			},
			Env: func(name string) string {
				if name == "MORE" {
					return env
				}
				return ""
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := show(c.Sites); got != want {
			t.Errorf("%q: %s, want %s", env, got, want)
		}
		unset := 1
		if env == "" {
			unset = 2
		}
		if len(c.Unset) != unset {
			t.Errorf("%q: %d lines are not set", env, len(c.Unset))
		}
	}
}

// TestVariablesThatAreReadFirst: addresses, tls and the paths of matchers have what a
// variable holds, since that says how they are to be read; all else keeps the variable.
func TestVariablesThatAreReadFirst(t *testing.T) {
	env := map[string]string{"SITE": "http://a, http://b", "TLS": "internal", "BUCKET": "up"}
	for text, want := range map[string]string{
		"{$SITE} {\nrespond x\n}":                                          `["http://a" "http://b"]{respond["x"];};`,
		"{$NONE:http://c} {\nrespond x\n}":                                 `["http://c"]{respond["x"];};`,
		"a {\ntls {$TLS}\n}":                                               `["a"]{tls["internal"];};`,
		"a {\nhandle /{$BUCKET}/* {\nrespond {$BUCKET}\n}\n}":              `["a"]{handle["/up/*"]{respond["\ue000BUCKET\ue002"];};};`,
		"a {\n@x path /{$NONE:files}/*\nrespond /{$BUCKET} 403\n}":         `["a"]{@x["path" "/files/*"];respond["/up" "403"];};`,
		"(s) {\nrespond x\n}\n{\nemail e\n}\na {\nimport s\n}":             `["a"]{respond["x"];};`,
		"a {\nroot * /srv/{$BUCKET}\nreverse_proxy {$NONE:127.0.0.1:1}\n}": `["a"]{root["*" "/srv/\ue000BUCKET\ue002"];reverse_proxy["\ue000NONE\ue001127.0.0.1:1\ue002"];};`,
	} {
		c, err := Parse("Caddyfile", draft.Files{Read: func(string) ([]byte, error) { return []byte(text), nil }, Env: func(name string) string { return env[name] }})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := show(c.Sites); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
