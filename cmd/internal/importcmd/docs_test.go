package importcmd

import (
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/importer/apache"
	"millrace/importer/draft"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// block is the first example in a language on a page of the documentation.
func block(t *testing.T, page, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/coming-from/" + page)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```").FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no example in %s", page, language)
	}
	return string(m[1])
}

// page is one of the pages, with the files that its examples name.
type page struct {
	name, language, file string
	// importIt translates the file.
	importIt func(file string) (*draft.Node, *draft.Report, error)
	// accepts is the server's own check of a config, with the program it needs.
	peer    servertest.Peer
	accepts func(file string) []string
	urls    []string
}

func pages() []page {
	return []page{
		{
			name: "nginx.md", language: "nginx", file: "nginx.conf", peer: servertest.Nginx(),
			importIt: func(file string) (*draft.Node, *draft.Report, error) { return FromNginx(file, "/usr/share/nginx") },
			accepts:  func(file string) []string { return []string{"-t", "-q", "-c", file} },
			urls:     []string{"/", "/a.css", "/deep/route", "/api/users?x=1", "/.htpasswd", "/sub/.htaccess"},
		},
		{
			name: "caddy.md", language: "caddyfile", file: "Caddyfile", peer: servertest.Caddy(),
			importIt: FromCaddy,
			accepts:  func(file string) []string { return []string{"adapt", "--adapter", "caddyfile", "--config", file} },
			urls:     []string{"/", "https://example.org/", "https://example.org/a.css", "https://example.org/api/users", "https://example.org/api/", "https://example.org/deep/route", "https://example.org/.env"},
		},
		{
			name: "apache.md", language: "apache", file: ".htaccess", peer: servertest.Apache(),
			importIt: func(file string) (*draft.Node, *draft.Report, error) {
				list, o, err := ReadApache(file, ApacheOptions{Hostname: []string{"example.org", "www.example.org"}})
				if err != nil {
					return nil, nil, err
				}
				node, report := apache.Translate(list, o)
				return node, report, nil
			},
			urls: []string{"/", "/a.css", "/old/page", "/x.bak", "/sub/dump.sql", "/missing", "http://www.example.org/a.css?x=1"},
		},
	}
}

// TestExamplesOfPages: what a page shows of another server is translated line by
// line, that server takes it, and Millrace answers by the result as by what the
// page shows of Millrace.
func TestExamplesOfPages(t *testing.T) {
	for _, p := range pages() {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			public := filepath.Join(dir, "public")
			for name, text := range map[string]string{"index.html": "home", "a.css": "a{}", "404.html": "none", "x.bak": "x"} {
				write(t, filepath.Join(public, name), text)
			}
			file := filepath.Join(dir, p.file)
			if p.file == ".htaccess" {
				file = filepath.Join(public, p.file)
			}
			theirs := regexp.MustCompile(`/srv/[a-z]+`).ReplaceAllString(block(t, p.name, p.language), public)
			if p.language == "nginx" {
				theirs = "events { }\nhttp {\n" + theirs + "}\n"
			}
			write(t, file, theirs)
			if binary, why := p.peer.Find(); why == "" && p.accepts != nil {
				if out, err := exec.Command(binary, p.accepts(file)...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", binary, err, out)
				}
			}
			node, report, err := p.importIt(file)
			if err != nil {
				t.Fatal(err)
			}
			if left := report.UntranslatedLines(); len(left) > 0 {
				t.Errorf("not carried over:\n%s", strings.Join(left, "\n"))
			}
			node.Remove("log")
			imported := parsed(t, dir, node.String())
			shown := parsed(t, dir, strings.ReplaceAll(block(t, p.name, "yaml"), "./public", public))
			for _, url := range p.urls {
				a, b := explained(t, imported, url), explained(t, shown, url)
				if a != b {
					t.Errorf("%s\nimported: %s\nshown:    %s\n%s", url, a, b, node)
				}
			}
		})
	}
}

func parsed(t *testing.T, dir, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(dir, config.FileName), []byte(yaml))
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	return cfg
}

// explained is what answers a request by a config.
func explained(t *testing.T, cfg *config.Config, url string) string {
	t.Helper()
	if strings.HasPrefix(url, "/") {
		url = "http://example.org" + url
	}
	r, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), "203.0.113.7:1"
	if r.URL.Scheme == "https" {
		r.TLS = &tls.ConnectionState{}
	}
	e, err := engine.Explain(cfg, r)
	if err != nil {
		t.Fatal(err)
	}
	// Which rule or route says so is the importer's choice.
	return regexp.MustCompile(`, by (rule|route) .*`).ReplaceAllString(strings.TrimSpace(e.Answer), "")
}
