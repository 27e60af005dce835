package nginx

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/importer/draft"
)

// memory are files without a disk.
func memory(files map[string]string) draft.Files {
	return draft.Files{
		Read: func(name string) ([]byte, error) {
			text, ok := files[name]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
		Glob: func(pattern string) (names []string, err error) {
			for name := range files {
				if ok, err := filepath.Match(pattern, name); ok || err != nil {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names, nil
		},
	}
}

func flat(list []*draft.Directive, depth int) (lines []string) {
	for _, d := range list {
		lines = append(lines, fmt.Sprintf("%s%s %q %s", strings.Repeat("  ", depth), d.Name, d.Args, d.At()))
		lines = append(lines, flat(d.Block, depth+1)...)
	}
	return lines
}

// TestParse: words, quotes, escapes, variables in braces, comments, and the
// line that each directive begins on, over includes.
func TestParse(t *testing.T) {
	list, err := Parse("/etc/nginx/nginx.conf", memory(map[string]string{
		"/etc/nginx/nginx.conf": "\ufeff# a comment\nhttp {\n  include sites/*.conf; # another\n  map $a $b {\n    '' none;\n    \"~^x y{2}\" its;\n  }\n}\n",
		"/etc/nginx/sites/a.conf": "server {\n  log_format main '$a - '\n    \"$b\\\"\";\n  location ~ \\.php$ { return 200 \"a # b; {}\\n\"; }\n" +
			"  set $x ${y}z;\n  if ($a ~ ^/(b|c)$) { break; }\n  root C:\\\\x\\ y;}\n",
		"/etc/nginx/sites/b.conf":  "content_by_lua_block { -- } comment\n  local s = \"}\" if x { y } }\nserver_tokens off;",
		"/etc/nginx/sites/c.other": "}",
		"/etc/nginx/sites/.a.conf": "}", // an editor's
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`http [] /etc/nginx/nginx.conf:2`,
		`  server [] /etc/nginx/sites/a.conf:1`,
		`    log_format ["main" "$a - " "$b\""] /etc/nginx/sites/a.conf:2`,
		`    location ["~" "\\.php$"] /etc/nginx/sites/a.conf:4`,
		`      return ["200" "a # b; {}\n"] /etc/nginx/sites/a.conf:4`,
		`    set ["$x" "${y}z"] /etc/nginx/sites/a.conf:5`,
		`    if ["($a" "~" "^/(b|c)$)"] /etc/nginx/sites/a.conf:6`,
		`      break [] /etc/nginx/sites/a.conf:6`,
		`    root ["C:\\x\\ y"] /etc/nginx/sites/a.conf:7`,
		`  content_by_lua_block [] /etc/nginx/sites/b.conf:1`,
		`  server_tokens ["off"] /etc/nginx/sites/b.conf:3`,
		`  map ["$a" "$b"] /etc/nginx/nginx.conf:4`,
		`     ["none"] /etc/nginx/nginx.conf:5`,
		`    ~^x y{2} ["its"] /etc/nginx/nginx.conf:6`,
	}
	if diff := cmp.Diff(want, flat(list, 0)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestBad: what is wrong is said with its file and line.
func TestBad(t *testing.T) {
	for text, want := range map[string]string{
		"server {\n listen 80;":       "a.conf:2: a block is not closed",
		"}":                           "a.conf:1: \"}\" closes nothing",
		"a b":                         "a.conf:1: \"a\" is not ended",
		"a b\n}":                      "a.conf:2: \"a\" is not ended",
		";":                           "a.conf:1: a name is missing",
		"a 'b;\n":                     "a.conf:1: a quote is not closed",
		"include;":                    "include takes one file",
		"include none;":               "file does not exist",
		"x;\ninclude a.conf;":         "include itself?",
		"include b.conf;":             "b.conf:2: a quote is not closed (included in a.conf:1)",
		"x_by_lua_block { a = '}'":    "a block of Lua is not closed",
		strings.Repeat("a {", 40):     "nested more than",
		"a \"b\"c;":                   "right behind a closing quote",
		"location / { 'a' { b; } } {": "a name is missing",
	} {
		_, err := Parse("a.conf", memory(map[string]string{"a.conf": text, "b.conf": "a;\n'b", "none/x": ""}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: what is read can be written, and reads the same.
func FuzzParse(f *testing.F) {
	f.Add("server { listen 80; location ~ \\.php$ { return 200 \"a\\\"b\"; } }")
	f.Add("a 'b c' \"d${e}\"; # f\nx_by_lua_block { { } '}' }\nmap a b { '' c; }")
	f.Add("a \\; b\\ c;{;}")
	f.Fuzz(func(t *testing.T, text string) {
		none := draft.Files{Read: func(string) ([]byte, error) { return []byte(text), nil }, Glob: func(string) ([]string, error) { return nil, nil }}
		list, err := Parse("x", draft.Files{Read: none.Read, Glob: none.Glob})
		if err != nil || strings.Contains(text, "include") {
			return
		}
		written := Write(list)
		again, err := Parse("x", draft.Files{Read: func(string) ([]byte, error) { return []byte(written), nil }, Glob: none.Glob})
		if err != nil {
			t.Fatalf("%q was written as %q: %v", text, written, err)
		}
		if a, b := Write(again), written; a != b {
			t.Errorf("%q was written as %q and then as %q", text, b, a)
		}
	})
}

// FuzzQuoted: a word reads as the text it is made of.
func FuzzQuoted(f *testing.F) {
	for _, s := range []string{"", "a", "a b", `"`, `\`, "a;{}", "$x", "#", "\\n", "\n", "${a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse("x", draft.Files{Read: func(string) ([]byte, error) { return []byte("a " + quoted(text) + ";"), nil }})
		if err != nil || len(list) != 1 || len(list[0].Args) != 1 {
			t.Fatalf("%q: %v", text, err)
		}
		if got := list[0].Arg(0); got != text && !strings.Contains(text, "\r") {
			t.Errorf("%q reads as %q", text, got)
		}
	})
}
