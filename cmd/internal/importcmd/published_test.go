package importcmd

import (
	"bytes"
	"net"
	"net/http"
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

// publishedTree are files that only published configs serve.
func publishedTree() map[string]string {
	return map[string]string{
		"wiki/w/index.php": "<?php", "wiki/w/load.php": "<?php", "wiki/w/rest.php": "<?php", "wiki/w/install.php": "<?php", "wiki/w/LocalSettings.php": "<?php secret", "wiki/w/resources/lib/a.css": "a{}", "wiki/w/skins/v/a.css": "a{}", "wiki/w/skins/v/a.php": "<?php",
		"wiki/w/images/favicon.ico": "icon", "wiki/w/images/a.png": "png", "wiki/w/images/deleted/x.png": "png", "wiki/w/images/evil.php": "<?php", "wiki/w/COPYING": "text",
		"social/public/500.html": "<title>error</title>", "social/public/sw.js": "x", "social/public/assets/a.css": "a{}", "social/public/system/media/a.png": "png", "social/public/robots.txt": "x",
		"blog/nginx-root/.well-known/x.txt": "x", "school/index.php": "<?php", "school/pic.php": "<?php", "school/a.css": "a{}", "school/p.png": "png", "school/vendor/x.css": "a{}", "school/composer.json": "{}", "school/readme.txt": "r", "schooldata/secret.txt": "s",
		"school/index2.html":        `<a href="/pic.php/1/a.png">a</a><a href="/vendor/x.css">v</a>`,
		"shop-app/public/index.php": "<?php", "shop-app/public/other.php": "<?php", "shop-app/public/a.css": "a{}", "shop-app/public/robots.txt": "x", "shop-app/.env": "secret",
		"people/html/index.html":             `<a href="/~anna/index.html">a</a><a href="/~anna/../bob/x">b</a><a href="/media/v2/a.png">m</a><a href="/media/v2/">m</a><a href="/old">o</a><a href="/who">w</a><a href="/~anna/.htaccess">h</a><a href="/alias/anna/public/index.html">x</a>`,
		"people/home/anna/public/index.html": "anna", "people/home/anna/private.txt": "private", "people/media/a.png": "png", "people/html/.htpasswd": "x",
		"dba/templates/x.twig": "x", "example/private/a.txt": "private",
	}
}

// publishedConfig is a config as a project publishes it, and what is known of it.
type publishedConfig struct {
	file   string
	least  int      // answers compared
	differ []string // answers that differ, which the report says first
}

// imports are the importers of the three servers.
func imports(binary string) map[string]struct {
	peer    servertest.Peer
	run     func(file, yaml string) func(cli.Streams) error
	compare func(file, yaml string) *Compare
} {
	type server = struct {
		peer    servertest.Peer
		run     func(file, yaml string) func(cli.Streams) error
		compare func(file, yaml string) *Compare
	}
	return map[string]server{
		"nginx": {
			servertest.Nginx(),
			func(file, yaml string) func(cli.Streams) error {
				return (&Nginx{File: file, Prefix: "/usr/share/nginx", output: output{Output: yaml}}).Run
			},
			func(file, yaml string) *Compare {
				return &Compare{Nginx: file, Config: yaml, Limit: 300, Prefix: "/usr/share/nginx"}
			},
		},
		"apache": {
			servertest.Apache(),
			func(file, yaml string) func(cli.Streams) error {
				return (&Apache{File: file, output: output{Output: yaml}}).Run
			},
			func(file, yaml string) *Compare { return &Compare{Apache: file, Config: yaml, Limit: 300} },
		},
		"caddy": {
			servertest.Caddy(),
			func(file, yaml string) func(cli.Streams) error {
				return (&Caddy{File: file, output: output{Output: yaml}}).Run
			},
			func(file, yaml string) *Compare {
				return &Compare{Caddy: file, Config: yaml, Limit: 300, Binary: binary}
			},
		},
	}
}

// TestPublished: configs as projects publish them are imported to a file that check takes,
// and answer as before but for what the report lists.
func TestPublished(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(application))
	t.Cleanup(upstream.Close)
	_, port, _ := net.SplitHostPort(upstream.Listener.Addr().String())
	for kind, list := range published() {
		t.Run(kind, func(t *testing.T) {
			server := imports("")[kind]
			if binary := server.peer.Path(t); kind == "caddy" {
				server = imports(binary)[kind]
			}
			for _, c := range list {
				t.Run(strings.TrimSuffix(c.file, filepath.Ext(c.file)), func(t *testing.T) {
					from := "../../../importer/" + kind + "/testdata/"
					dir := place(t, from+"configs", port)
					text, err := os.ReadFile(filepath.Join(from, "published", c.file))
					if err != nil {
						t.Fatal(err)
					}
					srv := filepath.Dir(dir)
					for name, text := range publishedTree() {
						write(t, filepath.Join(srv, "srv", name), text)
					}
					if kind == "apache" {
						reachable(t, srv)
					}
					file := filepath.Join(dir, "published-"+c.file)
					write(t, file, strings.NewReplacer("/srv/", srv+"/srv/", "/etc/ssl/", srv+"/ssl/", "127.0.0.1:5001", "127.0.0.1:"+port, "UPSTREAM", port).Replace(string(text)))
					c.compare(t, filepath.Join(dir, "millrace.yaml"), server.run, server.compare, file)
				})
			}
		})
	}
}

func (c publishedConfig) compare(t *testing.T, yaml string, run func(file, yaml string) func(cli.Streams) error, compare func(file, yaml string) *Compare, file string) {
	t.Helper()
	var out, messages bytes.Buffer
	s := cli.Streams{Out: &out, Err: &messages}
	if err := run(file, yaml)(s); err != nil {
		t.Fatalf("%v\n%s", err, &messages)
	}
	left := messages.String()
	if _, err := config.Load(yaml); err != nil {
		t.Fatal(err)
	}
	messages.Reset()
	err := compare(file, yaml).Run(s)
	var found []string
	for line := range strings.SplitSeq(out.String(), "\n") {
		if _, path, is := strings.Cut(line, "://"); is && strings.HasPrefix(line, "http") {
			found = append(found, path[strings.Index(path, "/"):])
		}
	}
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(found, slices.Sorted(slices.Values(c.differ))) {
		text, _ := os.ReadFile(yaml)
		t.Errorf("differ: %q\n%v\n%s\n%s\n%s", found, err, &out, left, text)
	}
	asked := 0
	for line := range strings.SplitSeq(messages.String(), "\n") {
		if n, _, is := strings.Cut(line, " paths of"); is {
			for _, digit := range n {
				asked = asked*10 + int(digit-'0')
			}
		}
	}
	if asked < c.least {
		t.Errorf("only %d answers were compared: %v %s", asked, err, &messages)
	}
}

// published are the configs of importer/*/testdata/published.
func published() map[string][]publishedConfig {
	return map[string][]publishedConfig{
		"nginx": {
			{"gitea.conf", 15, []string{"/"}}, // nginx's own page
			{"grafana.conf", 8, nil},
			{"mediawiki.conf", 30, nil},
			{"vaultwarden.conf", 4, nil},
			{"keycloak.conf", 8, nil},
			// What a cache did is said in another field.
			{"mastodon.conf", 20, []string{"/", "/.well-known/acme-challenge/", "/assets", "/deeper/path?q=1", "/sw.jsx-no-such-path", "/system", "/x-no-such-path"}},
			{"ghost.conf", 4, nil},
			{"moodle.conf", 4, nil},
			{"jellyfin.conf", 4, nil},
			{"laravel.conf", 8, []string{"/index.php/behind"}},
			{"paperless.conf", 4, nil},
			{"users.conf", 4, nil},
		},
		"apache": {
			{"gitea.conf", 4, nil},
			{"rails.conf", 4, nil},
			{"plausible.conf", 4, nil},
			{"several-apps.conf", 4, nil},
			{"wordpress.conf", 20, nil},
			{"phpmyadmin.conf", 4, nil},
			{"django.conf", 8, nil},
			{"mediawiki.conf", 20, nil},
			{"owncloud.conf", 40, nil},
			{"keycloak.conf", 4, nil},
		},
		"caddy": {
			{"gitea.Caddyfile", 4, nil},
			{"vaultwarden.Caddyfile", 4, nil},
			{"nextcloud.Caddyfile", 4, []string{"/apps/x/a.css/"}}, // Caddy leads a file with a slash behind to the file
			{"authelia.Caddyfile", 4, nil},
			{"immich.Caddyfile", 4, nil},
			{"mastodon.Caddyfile", 4, nil},
			{"frankenphp.Caddyfile", 4, nil},
			{"homeassistant.Caddyfile", 4, []string{"/private"}},
			{"ghost.Caddyfile", 4, nil},
			{"spa.Caddyfile", 4, nil},
		},
	}
}
