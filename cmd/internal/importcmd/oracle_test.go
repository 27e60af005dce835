package importcmd

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/cmd/internal/cli"
	"millrace/internal/config"
	"millrace/internal/process/servertest"
)

// configs are configs of nginx of different kinds.
const configs = "../../../importer/nginx/testdata/configs"

// tree are the files that they serve.
func tree() map[string]string {
	css, js := "body { color: #333 }\n", "console.log('hello')\n"
	page := func(links ...string) string {
		var b strings.Builder
		b.WriteString("<!doctype html><title>page</title>\n")
		for _, l := range links {
			fmt.Fprintf(&b, "<a href=%q>%s</a>\n", l, l)
		}
		return b.String()
	}
	return map[string]string{
		"wordpress/index.php": "<?php echo 'x';", "wordpress/robots.txt": "User-agent: *\n", "wordpress/favicon.ico": "icon",
		"wordpress/wp-content/style.css": css, "wordpress/wp-content/uploads/a.png": "png", "wordpress/wp-content/uploads/evil.php": "<?php",
		"wordpress/wp-admin/index.php": "<?php", "wordpress/readme.html": page("/wp-content/style.css", "/2024/05/hello/", "/wp-admin/", "/index.php?p=1", "/wp-content/missing.css"),
		"wordpress/.htaccess": "deny",

		"spa/index.html": page("/assets/app.1234.js", "/route/deep", "/assets/missing.js"), "spa/assets/app.1234.js": js, "spa/robots.txt": "x\n",
		"node/public/app.js": js, "node/public/a/b.css": css,
		"staff/index.html": page("/public/", "/admin", "/secret/a.txt"), "staff/public/index.html": page("/"), "staff/secret/a.txt": "secret\n",
		"staff/admin/index.html": page(), "staff/administrator.html": page(), "staff/404.html": page("/"),
		"shop/index.html": page("/login", "/login/form", "/loginx", "/download/a.txt"), "shop/download/a.txt": "a\n",
		"acme/.well-known/acme-challenge/token": "token\n",
		"example/index.html":                    page("/about", "/blog/", "/missing"), "example/about.html": page(), "example/blog/index.html": page(), "example/404.html": page(),
		"users/index.html": page("/a.txt"), "users/a.txt": "a\n",
		"docs/index.html": page("/img/a.png", "/imgs.png", "/image.png", "/b.png", "/image.txt"), "docs/img/a.png": "png", "docs/image.txt": "text\n", "docs/imgs.png": "png",
		"symfony/public/index.php": "<?php", "symfony/public/bundles/a.css": css, "symfony/public/robots.txt": "x\n", "symfony/public/other.php": "<?php",
		"django/staticfiles/admin/a.css": css, "django/staticfiles/favicon.ico": "icon", "django/media/x.png": "png", "django/public/500.html": page(), "django/public/robots.txt": "x\n",
		"moved/index.html": page("/old-page", "/about-us", "/team/anna", "/blog/2024/05/x", "/feed", "/feed/", "/search/word", "/search/word?page=2", "/go/there?a=b", "/go/there", "/?lang=de",
			"/shop/cart?id=1", "/gone/x", "/legal", "/legal?x=1", "/docs/v1/a.html", "/docs/latest/a.html", "/docs/v2/a.html", "/user/bob", "/dump.SQL", "/teapot", "/people/anna", "/old-page?x=1"),
		"moved/posts/2024-05-x.html": page(), "moved/docs/v2/a.html": page(), "moved/new-page.html": page(), "moved/about/index.html": page(), "moved/feed.xml": "<feed/>",
		"jekyll/index.html": page("/about", "/about.html?x=1", "/about.php", "/index.php?page=contact", "/archives/2021", "/node/7", "/2021/", "/feed", "/category/go/", "/blog/", "/blog/first", "/_posts/x.md", "/css/a.css", "/none"),
		"jekyll/about.html": page(), "jekyll/404.html": page(), "jekyll/2021/index.html": page(), "jekyll/blog/first.html": page(), "jekyll/blog/index.html": page(), "jekyll/_posts/x.md": "draft", "jekyll/css/a.css": css, "jekyll/feed.xml": "<feed/>",
		"cloud/index.php": "<?php", "cloud/remote.php": "<?php", "cloud/version.php": "<?php", "cloud/console.php": "<?php", "cloud/ocs/v1.php": "<?php", "cloud/lib/base.php": "<?php", "cloud/config/config.php": "<?php",
		"cloud/data/a.log": "log", "cloud/.htaccess": "x", "cloud/a.js": js, "cloud/apps/x/a.css": css, "cloud/updater/index.php": "<?php", "cloud/readme.html": page("/", "/?a=b", "/index.php", "/index.php/a/b?c=d", "/apps/files/", "/login?x=1", "/remote.php/dav/a%20b",
			"/version.php", "/version.php/x", "/console.php", "/lib/base.php", "/lib", "/libx", "/config/config.php", "/data/a.log", "/.htaccess", "/a.js", "/a.js?v=1", "/missing.js", "/missing.js?v=1", "/apps/x/a.css", "/apps/x/a.css/", "/ocs/v1.php/cloud?f=json", "/ocs/v3.php",
			"/.well-known/carddav", "/.well-known/webfinger?resource=x", "/.well-known/acme-challenge/x", "/updater/", "/foo/bar.php/baz", "/index.php/data/x", "/none.txt"),
		"front/index.php": "<?php", "front/other.php": "<?php", "front/closed.php": "<?php", "front/update.php": "<?php", "front/sub/index.php": "<?php", "front/a.css": css, "front/lib.inc": "x", "front/.env": "x", "front/.well-known/a.txt": "a",
		"front/readme.html": page("/", "/login?x=1", "/index.php", "/index.php/a", "/x/index.php/a?b=c", "/index.php?a=b", "/other.php", "/other.php/", "/other.php/x", "/closed.php", "/closed.php/", "/closed.php/x", "/closed.php?x", "/update.php", "/update.php/selection",
			"/a.css", "/b.css", "/b.css?x=1", "/lib.inc", "/LIB.INC", "/lib.inc~", "/.env", "/x/.env", "/.well-known/a.txt", "/.well-known/b", "/.well-known/.env", "/.wellknown", "/x.php~", "/deep/er"),
		"dba/index.php": "<?php", "dba/url.php": "<?php", "dba/setup/index.php": "<?php", "dba/a.css": css, "dba/libraries/x.php": "<?php",
		"spa/links.html": page("/dba", "/dba/", "/dba/index.php", "/dba/index.php?a=b", "/dba/url.php", "/dba/url.php/x", "/dba/none.php", "/dba/setup/", "/dba/setup/index.php", "/dba/libraries/x.php", "/dba/a.css",
			"/staff/", "/staff/index.php", "/staff/a.css", "/staff/setup/index.php", "/files/a.css", "/x.php"),
		"status/index.html": page("/grafana", "/grafana/d/1?a=b", "/grafana/api/live/ws", "/prometheus/graph", "/alerts/list", "/internal/x", "/probe/a.example", "/probe/a.example?x=1", "/probe/UPPER"),
		"static/index.html": page("/a.css", "/downloads/x.css", "/icons/i.svg", "/iconsheet.css", "/.git/config", "/.well-known/security.txt"),
		"static/a.css":      css, "static/app.js": js, "static/pic.png": "png", "static/downloads/x.css": css, "static/icons/i.svg": "<svg/>", "static/iconsheet.css": css,
		"static/.git/config": "x", "static/404.html": page(), "static/50x.html": page(), "static/.well-known/security.txt": "Contact: x\n",
	}
}

// place puts the configs of a folder and what they name into another one, with
// their paths changed, and returns that.
func place(t *testing.T, configs, port string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range tree() {
		write(t, filepath.Join(dir, "srv", file), text)
	}
	err := filepath.WalkDir(configs, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		rel, _ := filepath.Rel(configs, file)
		replaced := strings.NewReplacer("/srv/", dir+"/srv/", "/etc/ssl/", dir+"/ssl/", "127.0.0.1:5001", "127.0.0.1:"+port, "localhost:5001", "localhost:"+port).Replace(string(text))
		write(t, filepath.Join(dir, "configs", rel), replaced)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "ssl"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := servertest.Make(t, "example.org", "example.org", "www.example.org", "internal.example.org", "*.example.org")
	servertest.Write(t, c, filepath.Join(dir, "ssl", "example.org.pem"), filepath.Join(dir, "ssl", "example.org.key"))
	php(t, filepath.Join(dir, "srv", "run", "php-fpm.sock"))
	return filepath.Join(dir, "configs")
}

// write writes a file, and makes its folder.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// application is the upstream: it says what it was asked.
func application(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "missing"):
		http.NotFound(w, r)
	case strings.HasSuffix(r.URL.Path, "broken"):
		w.WriteHeader(http.StatusBadGateway)
	default:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "%s %s\n<a href=%q>x</a><a href='/login/missing'></a><a href='/broken'></a>", r.Host, r.RequestURI, "/deeper/path?q=1")
	}
}

// php is a server of FastCGI that says which script it ran.
func php(t *testing.T, socket string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		_ = fcgi.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			env := fcgi.ProcessEnv(r)
			w.Header().Set("Content-Type", "text/html")
			behind := ""
			if env["APP_PATH"] != "" { // Apache has other words for it
				behind = strings.TrimPrefix(env["PATH_TRANSLATED"], env["DOCUMENT_ROOT"])
			}
			fmt.Fprintf(w, "script %s app %s uri %s behind %s TLS %v", filepath.Base(env["SCRIPT_FILENAME"]), env["APP_ENV"], r.RequestURI, strings.TrimSuffix(behind, "/"), r.TLS != nil)
		}))
	}()
}

// TestNginxIsTheOracle runs each config by nginx, and what the importer makes of
// it by Millrace: they answer the same.
func TestNginxIsTheOracle(t *testing.T) {
	servertest.Nginx().Path(t)
	upstream := httptest.NewServer(http.HandlerFunc(application))
	t.Cleanup(upstream.Close)
	_, port, _ := net.SplitHostPort(upstream.Listener.Addr().String())
	for _, c := range []struct {
		name  string
		least int // answers compared
		// differ are answers that differ by intention: what the report lists.
		differ []string
	}{
		// A folder without an index belongs to the front controller.
		{"wordpress", 20, []string{"/wp-content", "/wp-content/", "/wp-content/uploads", "/wp-content/uploads/"}},
		{"spa", 8, []string{"/assets"}},
		// A folder's path without its slash leads to the one with it.
		{"node-websocket", 8, []string{"/static"}},
		{"basic-auth", 8, []string{"/public", "/secret", "/404.html"}}, // an error page has a path of its own
		{"rate-limit", 8, nil},
		{"mtls", 1, nil}, // both without asking for certificates
		{"several-sites", 20, []string{"/.well-known/acme-challenge", "/.well-known/acme-challenge/token"}}, // its type
		{"symfony", 8, nil},
		{"proxy-cache", 8, nil},
		{"django", 8, []string{"/static"}},
		{"redirects", 20, nil},
		{"jekyll", 20, nil},
		{"subpath", 12, []string{"/probe/a.example"}}, // nginx leaves the & of an empty query
		{"guarded-php", 20, []string{"/.htaccess", "/wp-admin", "/wp-content", "/wp-content/", "/wp-content/uploads", "/wp-content/uploads/"}}, // folders and hidden files belong to the front controller
		// The types of a location are listed as not carried over.
		{"static-precompressed", 15, []string{"/downloads/x.css"}},
		{"cloud", 40, []string{"/apps", "/apps/x", "/ocs", "/a.js?v=1"}}, // folders without an index; what a map says of a query is listed
		// A folder's path without its slash; scripts that are not there; one with guards of its own is listed.
		{"tools", 20, []string{"/dba", "/staff", "/files", "/dba/none.php", "/files/index.php", "/files/libraries/x.php", "/files/setup/index.php", "/files/url.php"}},
		{"front", 40, []string{"/sub", "/sub/", "/.well-known", "/.well-known/", "/lib.inc", "/.env"}}, // folders, what is private and hidden
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(place(t, configs, port), c.name+".conf")
			yaml := filepath.Join(filepath.Dir(file), "millrace.yaml")
			same(t, c.least, c.differ, yaml,
				(&Nginx{File: file, Prefix: "/usr/share/nginx", output: output{Output: yaml}}).Run,
				&Compare{Nginx: file, Config: yaml, Limit: 300, Prefix: "/usr/share/nginx"})
		})
	}
}

// same imports a config, and asks its server and ours the same. differ are the
// paths whose answers differ by intention.
func same(t *testing.T, least int, differ []string, yaml string, importIt func(cli.Streams) error, compare *Compare) {
	t.Helper()
	var out, messages bytes.Buffer
	s := cli.Streams{Out: &out, Err: &messages}
	if err := importIt(s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(yaml)
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(text), "\n\n")
	if _, err := config.Load(yaml); err != nil {
		t.Fatalf("check: %v\n%s", err, lines)
	}
	err = compare.Run(s)
	for line := range strings.SplitSeq(out.String(), "\n") {
		if _, path, is := strings.Cut(line, "://"); is && strings.HasPrefix(line, "http") && !slices.Contains(differ, path[strings.Index(path, "/"):]) {
			t.Errorf("%s differs", line)
		}
	}
	if err != nil && (t.Failed() || out.Len() == 0) {
		t.Errorf("%v\n%s\n%s", err, &out, strings.ReplaceAll(lines, filepath.Dir(filepath.Dir(yaml)), ""))
	}
	asked := 0
	for line := range strings.SplitSeq(messages.String(), "\n") {
		_, _ = fmt.Sscanf(line, "%d paths of", &asked)
	}
	if asked < least {
		t.Errorf("only %d answers were compared", asked)
	}
	messages.Reset()
	compare.Config, compare.Limit = "", 1 // what it would import itself
	_ = compare.Run(s)                    // the answers were compared above
	if !strings.Contains(messages.String(), "asked for") {
		t.Errorf("without --config: %s", messages.String())
	}
}

// caddyConfigs are Caddyfiles of different kinds.
const caddyConfigs = "../../../importer/caddy/testdata/configs"

// TestCaddyIsTheOracle runs each Caddyfile by Caddy, and what the importer makes
// of it by Millrace: they answer the same.
func TestCaddyIsTheOracle(t *testing.T) {
	binary := servertest.Caddy().Path(t)
	upstream := httptest.NewServer(http.HandlerFunc(application))
	t.Cleanup(upstream.Close)
	_, port, _ := net.SplitHostPort(upstream.Listener.Addr().String())
	for _, c := range []struct {
		name   string
		least  int
		differ []string
	}{
		{"wordpress", 20, nil},
		{"spa", 8, nil},
		// A folder's path without its slash leads to the one with it.
		{"node-websocket", 8, []string{"/static"}},
		{"basic-auth", 8, []string{"/secret"}},
		{"several-sites", 20, []string{"/x-no-such-path", "/old-pagex-no-such-path", "/missing"}}, // errors have the site's headers, too
		{"mtls", 1, nil}, // both without asking for certificates
		{"symfony", 8, nil},
		{"redirects", 20, []string{"/posts"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(place(t, caddyConfigs, port), c.name+".Caddyfile")
			yaml := filepath.Join(filepath.Dir(file), "millrace.yaml")
			same(t, c.least, c.differ, yaml, (&Caddy{File: file, output: output{Output: yaml}}).Run, &Compare{Caddy: file, Config: yaml, Limit: 300, Binary: binary})
		})
	}
}
