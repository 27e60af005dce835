package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManualsExamples reads the configs that manuals show.
func TestManualsExamples(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	for _, manual := range []string{"proxy.md", "coming-from/nginx.md", "coming-from/caddy.md", "coming-from/apache.md", "coming-from/varnish.md", "coming-from/haproxy.md"} {
		text, err := os.ReadFile("../../docs/" + manual)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "public"), 0o755); err != nil {
			t.Fatal(err)
		}
		for i, m := range block.FindAllStringSubmatch(string(text), -1) {
			t.Run(fmt.Sprint(manual, i), func(t *testing.T) {
				if !strings.Contains(m[1], "sites:") {
					t.Fatal("this is no whole config:\n" + m[1])
				}
				if _, err := Parse(filepath.Join(dir, FileName), []byte(strings.ReplaceAll(m[1], "/var/cache/millrace-bodies", dir))); err != nil {
					t.Errorf("%v\n%s", err, m[1])
				}
			})
		}
	}
}

// TestBadPaths: each mistake has its message.
func TestBadPaths(t *testing.T) {
	for what, want := range map[string]string{
		"strip_prefix: app/":                      "is not the beginning of a path",
		"strip_prefix: /other/":                   "no path of this route begins with it",
		"redirects: no":                           "write rewrite (the default) or keep",
		`rewrite: [{path: "/(a", to: /}]`:         "is not a regular expression: missing closing )",
		`rewrite: [{path: "/a", to: "/{1}"}]`:     "names group 1",
		`rewrite: [{path: "/a", to: "/{x}"}]`:     "{ begins the number of a group",
		`rewrite: [{path: "/a", to: "http://x"}]`: "is not a path",
		`rewrite: [{to: "/x"}]`:                   "a regular expression",

		`request_headers: {set: {X-A: "{nobody}"}}`: "there is no variable {nobody}: use {client_ip}",
		`request_headers: {set: {Host: x}}`:         `it is set by "host"`,
		`request_headers: {add: {"a b": x}}`:        "is not the name of a header field",
		"retries: {status: [200]}":                  "is not the status of a failure",
		`health: {path: /, body: "("}`:              "is not a regular expression",
		`health: {body: "ok"}`:                      `does nothing without "path"`,
		`request_headers: {remove: [Upgrade]}`:      "it belongs to the connection",
		`request_headers: {set: {X-A: "a\nb"}}`:     "is not the value of a header field",
	} {
		_, err := Parse("x.yaml", []byte("sites: [{routes: {/app/: {proxy: {to: http://127.0.0.1:5000, "+what+"}}}}]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
}
