package apache

import (
	"io/fs"
	"strings"
	"testing"

	"millrace/importer/draft"
)

// memory are files by their names.
type memory map[string]string

func (m memory) parse(name string) ([]*draft.Directive, error) {
	return Parse(name, "", draft.Files{
		Read: func(name string) ([]byte, error) {
			text, ok := m[name]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		},
		Glob: func(pattern string) (names []string, err error) {
			for name := range m {
				if strings.HasPrefix(name, strings.TrimRight(pattern, "*")) {
					names = append(names, name)
				}
			}
			return names, nil
		},
	})
}

// show is a config on one line.
func show(list []*draft.Directive) string {
	var b strings.Builder
	for _, d := range list {
		b.WriteString(d.Name)
		for _, a := range d.Args {
			b.WriteString("[" + a + "]")
		}
		if d.Tag {
			b.WriteString("{" + show(d.Block) + "}")
		}
		b.WriteString(";")
	}
	return b.String()
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"a b  c":                                  "a[b][c];",
		"# x\n\n  a\tb # c":                       "a[b][#][c];",
		"a b\\\n c\\\r\n d\ne":                    "a[b][c][d];e;",
		"<A x>\n b\n</a>\nc":                      "A[x]{b;};c;",
		"<Files \"a b\">\n</Files>":               "Files[a b]{};",
		`a "x \"y\" \\z" 'q "r"' ""`:              `a[x "y" \z][q "r"][];`,
		`a \.b \\c`:                               `a[\.b][\c];`,
		`RewriteRule ^a\ b "c \d" [R]`:            `RewriteRule[^a\ b][c \d][[R]];`,
		`RewriteCond %{A} =""`:                    `RewriteCond[%{A}][=""];`,
		"Define X /r\na ${X}/b ${Y}":              "Define[X][/r];a[/r/b][${Y}];",
		"Include one":                             "x;",
		"IncludeOptional none\nInclude many/*\nb": "m;n;b;",
		"\ufeffa":                                 "a;",
		"<IfModule x>\n<IfModule y>\nz\n</IfModule>\n</IfModule>": "IfModule[x]{IfModule[y]{z;};};",
	} {
		list, err := memory{"/etc/a.conf": text, "/etc/one": "x", "/etc/many/1": "m", "/etc/many/2": "n"}.parse("/etc/a.conf")
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := show(list); got != want {
			t.Errorf("%q\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestBad: what is wrong is said with its file and line.
func TestBad(t *testing.T) {
	for text, want := range map[string]string{
		"a\n<B>\nc":                 "a.conf:3: <B> of line 2 is not closed",
		"</B>":                      "a.conf:1: </B> closes nothing",
		"<A>\n</B>":                 "a.conf:2: </B> closes nothing",
		"a\n<B":                     "a.conf:2: \"<B\" is not closed by",
		"a 'b":                      "a.conf:1: a quote is not closed",
		"<>\n</>":                   "a section without a name",
		"x\nInclude none":           "file does not exist",
		"x\nInclude a.conf":         "include itself?",
		"Include":                   "Include takes one file",
		"Include b":                 "b:2: a quote is not closed (included in a.conf:1)",
		strings.Repeat("<A>\n", 40): "nested more than",
	} {
		_, err := memory{"a.conf": text, "b": "a\nb 'c"}.parse("a.conf")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: nothing makes it fail; what is read can be written, and reads the same.
func FuzzParse(f *testing.F) {
	f.Add("<VirtualHost *:80>\nServerName a\n<Directory \"/a b\">\nRewriteRule ^a\\ b \"c d\" [R=301,L]\n</Directory>\n</VirtualHost>")
	f.Add("a \\\nb \"c\\\"d\\\\\" 'e'\nRewriteCond %{A} =\"\" [OR]\nDefine X y\nz ${X}")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "include") || strings.Contains(text, "${") {
			return
		}
		list, err := memory{"x": text}.parse("x")
		if err != nil {
			return
		}
		written := Write(list)
		again, err := memory{"x": written}.parse("x")
		if err != nil || show(again) != show(list) {
			t.Errorf("%q\nwritten %q\nread    %s\nagain   %s\n%v", text, written, show(list), show(again), err)
		}
	})
}
