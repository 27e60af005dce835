package importcmd

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/process/servertest"
)

// apacheConfigs are configs of Apache of different kinds; those in htaccess are
// the files of folders of /srv.
const apacheConfigs = "../../../importer/apache/testdata/configs"

// apacheTree are files that only they serve.
func apacheTree() map[string]string {
	return map[string]string{
		"wordpress/wp-config.php": "<?php", "wordpress/xmlrpc.php": "<?php", "wordpress/wp-admin/admin-ajax.php": "<?php", "wordpress/wp-admin/style.css": "a{}", "wordpress/dump.sql": "x", "wordpress/wp-admin/includes/x.php": "<?php",
		"laravel/public/index.php": "<?php", "laravel/public/css/app.css": "a{}", "laravel/public/robots.txt": "x",
		"drupal/index.php": "<?php", "drupal/core/install.php": "<?php", "drupal/core/misc/drupal.js": "x", "drupal/update.module": "x", "drupal/composer.json": "{}", "drupal/autoload.php": "<?php", "drupal/modules/x/evil.php": "<?php",
		"drupal/sites/default/files/a.png": "png", "drupal/sites/default/files/evil.php": "<?php", "drupal/sites/default/services.yml": "x", "drupal/robots.txt": "x",
		"app/index.html": `<a href="/assets/app.js">a</a><a href="/assets/a.css">a</a><a href="/deep/route">r</a><a href="/service-worker.js">s</a>`, "app/assets/app.js": "x", "app/assets/a.css": "a{}", "app/f.woff2": "font", "app/service-worker.js": "x", "app/site.webmanifest": "{}",
		"moved/two.html": "two", "moved/docs/v2/b.html": "b", "moved/people/anna.html": "anna", "moved/pic.png": "png", "moved/missing.html": "missing", "moved/keep/a.htm": "a", "moved/one.html": "1", "moved/x.html": `<a href="/team/anna/">t</a><a href="/team/otto">t</a>
			<a href="/docs/v1/b.html">d</a><a href="/search/word?x=1">s</a><a href="/feed">f</a><a href="/item.php?id=12">i</a><a href="/item.php?id=x">i</a><a href="/item.php">i</a><a href="/index.html">i</a><a href="/gone/x">g</a><a href="/gone">g</a><a href="/gone.html">g</a>
			<a href="/blog/2024/05/hello">b</a><a href="/private/x">p</a><a href="/privatex">p</a><a href="/shop/cart?a=b">s</a><a href="/shop">s</a><a href="/legal">l</a><a href="/keep/a.htm">k</a><a href="/x.htm">x</a><a href="/old-page">o</a><a href="/old-page/more">o</a><a href="/one.html?q=1">o</a>`,
		"mvc/index.php": "<?php", "mvc/config.php": "<?php", "mvc/css/a.css": "a{}", "mvc/other.php": "<?php",
		"blog/index.php": "<?php", "blog/README.md": "x", "blog/a.css": "a{}", "blog/post/index.html": "post",
		"members/index.html": `<a href="/private/a.txt">p</a><a href="/open/a.txt">o</a>`, "members/login.html": "please", "members/private/a.txt": "private", "members/open/a.txt": "open",
		"example/a.txt": "a", "docs/.git/config": "x", "symfony/public/index.php": "<?php", "htpasswd": "alice:$apr1$x$y\n",
	}
}

// TestApacheIsTheOracle runs each config by Apache, and what the importer makes
// of it by Millrace: they answer the same.
func TestApacheIsTheOracle(t *testing.T) {
	servertest.Apache().Path(t)
	upstream := httptest.NewServer(http.HandlerFunc(application))
	t.Cleanup(upstream.Close)
	_, port, _ := net.SplitHostPort(upstream.Listener.Addr().String())
	for _, c := range []struct {
		name   string // a config, or the folder of a .htaccess
		least  int
		differ []string
		hosts  []string
	}{
		// A folder without an index belongs to the front controller, and so does
		// what is hidden. Who may not read a path is told so before a password is asked for.
		{"wordpress/.htaccess", 20, []string{"/.htaccess", "/wp-admin/.htaccess", "/wp-admin/includes/", "/wp-admin/includes/x.php", "/wp-admin/includes/x.php/behind", "/wp-content", "/wp-content/", "/wp-content/uploads", "/wp-content/uploads/", "/wp-content/uploads/.htaccess"}, nil},
		{"laravel/public/.htaccess", 8, []string{"/.htaccess", "/css", "/css/"}, nil},
		{"drupal/.htaccess", 20, []string{
			"/core", "/core/", "/core/misc", "/core/misc/", "/modules", "/modules/", "/modules/x", "/modules/x/", "/sites", "/sites/", "/sites/default", "/sites/default/", "/sites/default/files", "/sites/default/files/",
		}, nil},
		{"app/.htaccess", 10, []string{"/.htaccess", "/assets", "/assets/"}, nil},
		{"moved/.htaccess", 30, []string{"/.htaccess"}, []string{"example.org", "www.example.org"}},
		{"mvc/.htaccess", 8, []string{"/.htaccess", "/css", "/css/"}, nil},
		{"blog/.htaccess", 8, []string{"/.htaccess"}, nil},
		{"members/.htaccess", 8, []string{"/.htaccess", "/open/.htaccess"}, nil}, // Apache shows the latter
		{"symfony.conf", 8, nil, nil},
		// Lists of folders look different, and a folder's path without its slash leads to the one with it.
		{"apache2.conf", 20, []string{"/img/", "/icons/", "/icons"}, nil},
		{"proxy.conf", 10, []string{"/static"}, nil},
		{"mtls.conf", 1, nil, nil}, // both without asking for certificates
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Dir(place(t, apacheConfigs, port))
			reachable(t, dir)
			file := filepath.Join(dir, "configs", c.name)
			if strings.HasSuffix(c.name, ".htaccess") {
				file = filepath.Join(dir, "srv", c.name)
			}
			yaml := filepath.Join(dir, "configs", "millrace.yaml")
			options := ApacheOptions{Hostname: c.hosts, PHP: filepath.Join(dir, "srv", "run", "php-fpm.sock")}
			same(t, c.least, c.differ, yaml, (&Apache{File: file, ApacheOptions: options, output: output{Output: yaml}}).Run, &Compare{Apache: file, Config: yaml, Limit: 300, ApacheOptions: options})
		})
	}
}

// reachable lets Apache's workers, which are not root, read what a test has
// written, and puts the files of folders in their place.
func reachable(t *testing.T, dir string) {
	t.Helper()
	for file, text := range apacheTree() {
		write(t, filepath.Join(dir, "srv", file), text)
	}
	from := filepath.Join(dir, "configs", "htaccess")
	err := filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		rel, _ := filepath.Rel(from, name)
		write(t, filepath.Join(dir, "srv", rel), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for at := dir; at != os.TempDir() && len(at) > 4; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "srv", "run", "php-fpm.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
}
