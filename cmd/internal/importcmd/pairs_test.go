package importcmd

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/importer/compare"
	"millrace/importer/importertest"
	"millrace/internal/process/servertest"
)

var update = flag.Bool("update", false, "write the answers of the original servers into the pairs")

// pairsTree are the files of /srv/www.
func pairsTree() map[string]string {
	return map[string]string{
		"index.html": "index", "a.txt": "a", "a.html": "page a", "b/index.html": "b", "b/c.txt": "c", "b/x.css": "css", "b/in/x.txt": "in", "x.js": "js", "pic.png": "png", "empty/x.txt": "x",
		"index.php": "<?php", "x.php": "<?php", "b/y.php": "<?php", ".secret": "secret", ".well-known/w.txt": "w", "lost.html": "no page", "data.json": "{}", "old.bak": "bak", "b/private.txt": "private",
	}
}

// echo is the upstream of the pairs: it says what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Up", "1")
	w.Header().Set("Content-Type", "text/plain")
	switch {
	case strings.HasSuffix(r.URL.Path, "/moved"):
		w.Header().Set("Location", "http://"+r.Host+"/there")
		w.WriteHeader(http.StatusFound)
	case strings.HasSuffix(r.URL.Path, "/missing"):
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "the application's own page")
	case strings.HasSuffix(r.URL.Path, "/closed"):
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "/signed"):
		w.Header().Set("X-User", "alice")
	default:
		fmt.Fprintf(w, "app %s %s %s", r.Method, hostname(r.Host), r.RequestURI)
		for _, name := range []string{"X-A", "X-B", "X-User"} {
			if v := r.Header.Get(name); v != "" {
				fmt.Fprintf(w, " %s: %s", name, v)
			}
		}
	}
}

// hostname is a Host without its port; addresses are one like the other.
func hostname(host string) string {
	host, _, _ = strings.Cut(host, ":")
	if strings.HasSuffix(host, ".example") {
		return "SITE"
	}
	return host
}

// TestPairs: what the original server and ours answer to the requests of the pairs is what
// stands there, "theirs, here ours" where both differ by intention.
func TestPairs(t *testing.T) {
	for kind, write1 := range map[string]func(dir string, configs []string) (*Compare, error){
		"nginx": func(dir string, configs []string) (*Compare, error) {
			file := filepath.Join(dir, "nginx.conf")
			return &Compare{Nginx: file, Prefix: "/usr/share/nginx"}, os.WriteFile(file, []byte("events { }\n"+"http {\ninclude /etc/nginx/mime.types;\n"+strings.Join(configs, "\n")+"\n}\n"), 0o600)
		},
		"apache": func(dir string, configs []string) (*Compare, error) {
			file := filepath.Join(dir, "apache2.conf")
			return &Compare{Apache: file}, os.WriteFile(file, []byte("Listen 80\n"+strings.Join(configs, "\n")+"\n"), 0o600)
		},
		"caddy": func(dir string, configs []string) (*Compare, error) {
			file := filepath.Join(dir, "Caddyfile")
			return &Compare{Caddy: file, Binary: os.Getenv("MILLRACE_CADDY")}, os.WriteFile(file, []byte(strings.Join(configs, "\n")+"\n"), 0o600)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			switch kind {
			case "nginx":
				servertest.Nginx().Path(t)
			case "apache":
				servertest.Apache().Path(t)
			case "caddy":
				t.Setenv("MILLRACE_CADDY", servertest.Caddy().Path(t))
			}
			testPairs(t, "../../../importer/"+kind+"/testdata/pairs/*.txt", wholes()[kind], write1)
		})
	}
}

// wholes make a whole config of the inside of a site.
func wholes() map[string]func(inside, name string) string {
	return map[string]func(inside, name string) string{
		"nginx": func(inside, name string) string { return "server { server_name " + name + "; " + inside + "}" },
		"apache": func(inside, name string) string {
			return "<VirtualHost *:80>\nServerName " + name + "\nDocumentRoot /srv/www\n" + inside + "</VirtualHost>\n"
		},
		"caddy": func(inside, name string) string { return "http://" + name + " {\n" + inside + "}\n" },
	}
}

func testPairs(t *testing.T, pattern string, whole func(inside, name string) string, start func(dir string, configs []string) (*Compare, error)) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	for name, text := range pairsTree() {
		write(t, filepath.Join(dir, "srv/www", name), text)
	}
	write(t, filepath.Join(dir, "srv/passwords"), "alice:$2a$04$JQbQPmFZwv4wlCVYlYPyR.6vGSnJdE7k8B1Q2VqhCjWx5F5nIYdWa\n")
	php(t, filepath.Join(dir, "srv/run/php.sock"))
	for _, open := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "srv/run/php.sock")} {
		if err := os.Chmod(open, 0o777); err != nil { //nolint:gosec // Apache's workers are not root
			t.Fatal(err)
		}
	}
	to := strings.NewReplacer("/srv/", dir+"/srv/", "127.0.0.1:3000", strings.TrimPrefix(upstream.URL, "http://"))
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string][]*importertest.Pair{}
	sites := map[string]*importertest.Pair{} // by their names
	var configs []string
	for _, file := range files {
		lists[file] = importertest.ReadPairs(t, file)
		for _, p := range lists[file] {
			if p.Asked != nil {
				name := fmt.Sprintf("p%d.example", len(sites))
				sites[name] = p
				configs = append(configs, to.Replace(p.Whole(whole, name)))
			}
		}
	}
	c, err := start(t.TempDir(), configs)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range serveBoth(t, c) {
		p := sites[s.Host]
		if p == nil || s.TLS {
			continue
		}
		for i, line := range p.Asked {
			question, _, _ := strings.Cut(line, " → ")
			if got := question + " → " + answered(t, s, question, dir); *update {
				p.Asked[i] = got
			} else if got != line {
				t.Errorf("%s:\n%s\ninstead of\n%s", p.Title, got, line)
			}
		}
	}
	if *update {
		for file, list := range lists {
			importertest.WritePairs(t, file, list)
		}
	}
}

// answered is what both servers answer to a question.
func answered(t *testing.T, s compare.Site, question, dir string) string {
	t.Helper()
	theirs, ours := answer(t, s.Host, s.Theirs, question, dir), answer(t, s.Host, s.Ours, question, dir)
	if !strings.Contains(theirs, " Cache-Control: ") { // files have one by default
		ours = regexp.MustCompile(` Cache-Control: \S+`).ReplaceAllString(ours, "")
	}
	if theirs != ours {
		return theirs + ", here " + ours
	}
	return ours
}

// answer is what a server answers to a question such as "POST /x?y X-A: b".
func answer(t *testing.T, host, address, question, dir string) string {
	t.Helper()
	method, rest, _ := strings.Cut(question, " ")
	target, header, _ := strings.Cut(rest, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host, r.Close = host, true
	if name, value, has := strings.Cut(header, ": "); has {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(res.StatusCode)
	own := res.StatusCode >= 300 && res.StatusCode < 400 || res.StatusCode >= 400 && regexp.MustCompile(`<|\.`).Match(body)
	if !own && len(body) > 0 { // of the server's own pages the status counts
		text += " " + strings.TrimSpace(strings.ReplaceAll(string(body), dir, ""))
	}
	for _, name := range []string{"Location", "Cache-Control", "X-A", "X-B", "X-Up"} {
		v := strings.ReplaceAll(strings.Join(res.Header.Values(name), ","), " ", "")
		if u, err := r.URL.Parse(v); name == "Location" && v != "" && err == nil {
			v = strings.TrimPrefix(regexp.MustCompile(`^http://(p\d+\.example(:\d+)?|127\.0\.0\.1:\d+)/`).ReplaceAllString(u.String(), "/"), "http://"+address)
		}
		if v != "" {
			text += " " + name + ": " + regexp.MustCompile(`p\d+\.example`).ReplaceAllString(v, "SITE")
		}
	}
	return text
}
