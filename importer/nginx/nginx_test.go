package nginx

import (
	"flag"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/importer/draft"
	"millrace/importer/importertest"
	"millrace/internal/config"
)

var update = flag.Bool("update", false, "write the configs that are expected")

// read reads a config of testdata as if it were in /etc/nginx.
func read(t testing.TB, name string) []*draft.Directive {
	t.Helper()
	files := importertest.Files{Dir: "testdata/configs", As: "/etc/nginx"}
	list, err := Parse("/etc/nginx/"+name, draft.Files{Read: files.Read, Glob: files.Glob})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// tested translates a config for the tests that all importers share.
func tested() importertest.Importer {
	return importertest.Importer{
		Translate: func(text string) (*draft.Node, *draft.Report, error) {
			list, err := parse(text)
			if err != nil {
				return nil, nil, err
			}
			node, report := Translate(list, options())
			return node, report, nil
		},
		Check: func(yaml string) error { _, err := config.Parse("x.yaml", []byte(yaml)); return err },
	}
}

func options() Options {
	return Options{Dir: "/etc/nginx", Prefix: "/usr/share/nginx", IsDir: func(name string) bool { return !strings.HasSuffix(name, ".jpg") }}
}

// parse reads a text.
func parse(text string) ([]*draft.Directive, error) {
	return Parse("/etc/nginx/nginx.conf", draft.Files{
		Read: func(string) ([]byte, error) { return []byte(text), nil },
		Glob: func(string) ([]string, error) { return nil, nil },
	})
}

// count is the number of lines that need a outcome.
func count(list []*draft.Directive) int {
	n := 0
	for _, d := range list {
		n++
		if !wholeBlocks()[d.Name] {
			n += count(d.Block)
		}
	}
	return n
}

// TestConfigs: twelve configs of different kinds, and what is made of them. That
// they answer as with nginx is tested by the commands.
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob("testdata/configs/*.conf")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d configs, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			list := read(t, filepath.Base(file))
			node, report := Translate(list, options())
			text := report.File("Written by: millrace import nginx "+filepath.Base(file), node.Share())
			importertest.Golden(t, strings.TrimSuffix(file, ".conf")+".yaml", text, *update)
		})
	}
}

// rulesOf is what a server block becomes, without its first lines.
func translated(t *testing.T, block string) (string, *draft.Report) {
	t.Helper()
	list, err := parse("http { server { server_name a.example; " + block + " } }")
	if err != nil {
		t.Fatal(err)
	}
	node, report := Translate(list, options())
	return regexp.MustCompile(`(?m)^ *# .*\n`).ReplaceAllString(node.String(), ""), report
}

// TestLines: what single lines become.
func TestLines(t *testing.T) {
	for block, want := range map[string]string{
		"root /r; location / { try_files $uri $uri/ /index.html; }":                                                        "try: ['{path}', '{path}/', /index.html]",
		"root /r; location / { try_files $uri =404; }":                                                                     "try: ['{path}', '=404']",
		"location /a { proxy_pass http://h:1; }":                                                                           "'/a**':\n        proxy: http://h:1",
		"location /a/ { proxy_pass http://h:1/b/; }":                                                                       "strip_prefix: /a/",
		"location = /a { proxy_pass http://h:1/b; }":                                                                       "- {path: /a, to: /b}",
		"location ~ ^/a/(.*) { proxy_pass http://h:1/b/$1$is_args$args; }":                                                 "- {path: '/a/(.*).*', to: '/b/{1}'}",
		"location /a/ { rewrite ^/a/(.*) /$1 break; proxy_pass http://h:1; }":                                              "- {path: '/a/(.*).*', to: '/{1}'}",
		"set $up http://h:1; location / { proxy_pass $up; }":                                                               "proxy: http://h:1",
		"location / { proxy_pass http://h:1; proxy_set_header Host $host; }":                                               "host: client",
		"location / { proxy_pass http://unix:/run/a.sock; }":                                                               "to: unix:/run/a.sock",
		"location / { grpc_pass grpc://h:1; }":                                                                             "proxy: h2c://h:1",
		"location / { return 301 https://b.example$request_uri; }":                                                         "redirect: {to: 'https://b.example{uri}', status: 301}",
		"location / { return 302 /b; }":                                                                                    "redirect: {to: '/b?', status: 302}",
		"location = /a { return 200 \"x$\"; }":                                                                             "respond: {text: 'x$$'}",
		"return 444;":                                                                                                      "deny: {}",
		"if ($scheme != https) { return 301 https://$host$request_uri; } root /r;":                                         "{protocol: http, redirect: {to: 'https://{host}{uri}', status: 301}}",
		"if ($http_x_forwarded_proto = http) { return 403; } root /r;":                                                     "{header: {X-Forwarded-Proto: http}, deny: {}}",
		"if ($host ~* ^www\\.(.*)) { return 301 https://$1$request_uri; } server_name www.b.example; root /r;":             "{host: [www.b.example], redirect: {to: 'https://b.example{uri}', status: 301}}",
		"if ($request_method = POST) { return 405; } root /r;":                                                             "{method: [POST], respond: {status: 405}}",
		"if ($arg_x ~ ^y) { rewrite ^/a$ /b last; } root /r;":                                                              "{regex: '^/a$', query: {x: '~^y'}, rewrite: /b}",
		"if (!-e $request_filename) { rewrite ^(.*)$ /index.html last; } root /r;":                                         "try: ['{path}', '{path}/', /index.html]",
		"if (!-f $request_filename) { proxy_pass http://h:1; break; } root /r;":                                            "try: ['{path}', '{path}/', '@upstream']",
		"root /r; location / { deny 10.0.0.1; allow 10.0.0.0/8; deny all; }":                                               "access: {allow: ['10.0.0.0/8'], deny: ['10.0.0.1']}",
		"root /r; location / { allow 10.0.0.1; deny 10.0.0.0/8; }":                                                         "{address: ['10.0.0.0/8', '!10.0.0.1'], deny: {}}",
		"root /r; location / { allow 192.168.1.7/24; deny all; }":                                                          "access: {allow: ['192.168.1.0/24']}",
		"root /r; location /a/ { deny all; }":                                                                              "/a/: {deny: {}}",
		"root /r; location / { limit_except GET { deny all; } }":                                                           "{method: ['!GET', '!HEAD'], deny: {}}",
		"root /r; location / { auth_basic \"x\"; auth_basic_user_file p; }":                                                "auth: {realm: x, file: /etc/nginx/p}",
		"root /r; location ^~ /a/ { } location ~ \\.x$ { return 410; }":                                                    "- {path: /a/, route: /a/}\n      - {regex: '\\.x$', deny: {status: 410}}",
		"root /r; location = /b.x { } location ~ \\.x$ { return 410; }":                                                    "- {path: /b.x, route: /b.x}\n      - {regex: '\\.x$', deny: {status: 410}}",
		"location /a/ { root /r; location ~ \\.x$ { return 410; } }":                                                       "- {regex: '\\.x$', within: ['/a/**'], deny: {status: 410}}",
		"location /a/ { alias /s/; }":                                                                                      "/a/:\n        static: {root: /s}",
		"location /a { root /r; } location /a/b/ { root /s; }":                                                             "- {path: /a/b/, route: /a/b/}",
		"location / { client_max_body_size 0; proxy_pass http://h:1; }":                                                    "body_bytes: 1024GiB",
		"location / { proxy_pass https://10.0.0.1; }":                                                                      "tls: {insecure: true}",
		"location / { fastcgi_pass 127.0.0.1:9000; root /r; }":                                                             "static: {root: /r}\n        php:\n          to: '127.0.0.1:9000'\n          front: 'off'",
		"root /r; location /admin/ { proxy_pass http://$arg_x; }":                                                          "/admin/: {respond: {status: 501, text: 'not carried over'}}",
		"root /r; location ~ ^/u/(.*)$ { alias /home/$1; }":                                                                "{regex: '^/u/(.*)$', rewrite: '/alias/{1}'}",
		"add_header X-Frame-Options DENY always; add_header X-A \"b\"; root /r;":                                           "headers:\n          set: {X-Frame-Options: DENY}\n          when: [{status: ['2xx', '3xx'], set: {X-A: b}}]",
		"listen 443 ssl; ssl_client_certificate a; ssl_verify_client on; root /r; } server { listen 443 ssl; root /s;":     "- {deny: {}}",
		"root /r; location = / { return 301 /home/; } location / { try_files $uri =404; }":                                 "- {regex: '^/$', route: '@root'}\n    routes:\n      /:\n        static: {root: /r}\n        try: ['{path}', '=404']\n      '@root': {redirect: {to: '/home/?', status: 301}}",
		"root /r; location = / { if ($http_user_agent ~ ^Dav) { return 302 /dav/; } } location / { try_files $uri =404; }": "{regex: '^/$', header: {User-Agent: '~^Dav'}, redirect: {to: '/dav/?', status: 302}}\n    routes:\n      /:\n",
		"root /r; location = /a/ { proxy_pass http://h:1; } location / { }":                                                "- {regex: '^/a/$', route: '@a'}",
		"if ($uri = /) { return 302 /en/; } root /r;":                                                                      "{regex: '^/$', redirect: {to: '/en/?', status: 302}}",
		`if ($request_uri ~ ^/(.*)\.html(\?|$)) { return 302 /$1$is_args$args; } root /r;`:                                 `{regex: '^/(.*)\.html$', redirect: {to: '/{1}', status: 302}}`,
		"if ($request_uri = /i.php?page=a) { return 301 /a; } root /r;":                                                    "{path: /i.php, query: {page: a}, redirect:",
		"location ~ ^/p/(?<t>[a-z]+)$ { proxy_pass http://h:1/q?t=$t&$args; }":                                             "to: '/q?t={1}'}",
		"location / { satisfy any; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file p; root /r; }":           "auth: {realm: x, file: /etc/nginx/p, except: ['10.0.0.0/8']}",
		"location / { satisfy any; deny all; auth_basic x; auth_basic_user_file p; root /r; }":                             "auth: {realm: x, file: /etc/nginx/p}",
		"location / { proxy_pass http://h:1; expires 1h; add_header Cache-Control public; }":                               "set: {Cache-Control: 'max-age=3600, public'}",
		`root /r; index index.php; location / { try_files $uri $uri/ /index.php$request_uri; } location ~ \.php$ { fastcgi_pass 127.0.0.1:9000; fastcgi_hide_header X-Powered-By; }`: "php:\n          to: '127.0.0.1:9000'\n          only: '\\.php$'\n          front: 'index.php{path}'\n        headers:\n          remove: [X-Powered-By]",
		"root /r; location / { try_files $uri /index.php; } location ~ ^/index\\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }":                                                          "only: '^/index\\.php(/|$)'",
		"root /r; location / { try_files $uri /index.php; } location ~ \\.php(/|$) { fastcgi_pass 127.0.0.1:9000; fastcgi_param HTTPS on; }":                                         "to: '127.0.0.1:9000'\n          params: {HTTPS: 'on'}\n",
		"root /r; client_max_body_size 5m; location / { try_files $uri /index.php; } location ~ \\.php { fastcgi_pass 127.0.0.1:9000; }":                                             "php: '127.0.0.1:9000'\n        body_bytes: 5MiB",
		"location / { proxy_pass http://h:1; } location ~ /\\.(?!ok) { deny all; }":                                                                                                  "- {regex: '/\\.', except: ['~^(?:/\\.(?:ok)|/[^./]|[^/])*/?$'], deny: {}}",
		"root /r; location ~ ^/(?!api/.+)x { return 403; }":                                                                                                                          "- {regex: '^/x', except: ['~^/(?:api/.+)'], deny: {}}",
		"root /r; location / { try_files $uri @front; } location @front { rewrite ^ /app.html; }":                                                                                    "try: ['{path}', /app.html]",
		"root /r; add_header A 1 always; location = /x { return 403; } location ~ y { deny all; } location /z { add_header A 1 always; add_header B 2 always; }":                     "headers:\n      set: {A: '1'}\n    routes:",
		"root /r; if ($request_uri ~ ^/old/(.*)) { return 301 /new/$1; }":                                                                                                            "redirect: {to: '/new/{1}', status: 301}",
		"root /r; if ($uri ~ ^/old/(.*)) { return 301 /new/$1; }":                                                                                                                    "redirect: {to: '/new/{1}?', status: 301}",
		"location / { proxy_pass http://h:1; proxy_set_header Proxy \"\"; proxy_set_header TE x; proxy_set_header X-A b; }":                                                          "request_headers: {set: {X-A: b}}",
		"location / { proxy_pass http://h:1; add_header X-U $request_uri; }":                                                                                                         "set: {X-U: '{uri}'}",
		"location /a/ { rewrite ^(.*)$ $1 break; proxy_pass http://h:1; }":                                                                                                           "/a/:\n        proxy: http://h:1\n",
		"location /a/ { rewrite ^/a(/.*)$ $1 break; proxy_pass http://h:1; }":                                                                                                        "- {path: '/a/(.*)', to: '/{1}'}",
		"location /a/ { proxy_pass http://h:1/y?a=b&$args; }":                                                                                                                        "- {path: '.*', to: '/y?a=b'}",
		"root /r; location / { proxy_pass http://h:1; } location /a/ { } location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; fastcgi_param HTTP_X y; }":                                "- {regex: '\\.php$', route: '@php'}",
		"location / { proxy_pass http://h:1; proxy_set_header X-User $ssl_client_s_dn; }":                                                                                            "request_headers: {remove: [X-User]}",
		"location / { proxy_pass http://h:1; proxy_set_header X-User $remote_user; auth_basic x; auth_basic_user_file p; }":                                                          "user_header: X-User",
		"location / { proxy_pass http://h:1; proxy_set_header X-User $remote_user; satisfy any; allow 10.0.0.1; auth_basic x; auth_basic_user_file p; }":                             "request_headers: {remove: [X-User]}",
		"location /a/ { proxy_pass http://h:1/; proxy_set_header Host $host; }":                                                                                                      "strip_prefix: /a/\n          host: client\n          redirects: keep",
		"root /r; client_max_body_size 2m; try_files $uri @app; location @app { proxy_pass http://h:1; } error_page 500 /500.html;":                                                  "try: ['{path}', '@app']\n        body_bytes: 2MiB",
		"root /r; location / { error_page 404 = @app; } location @app { proxy_pass http://h:1; }":                                                                                    "try: ['{path}', '{path}/', '@app']",
		"root /r; error_page 503 @m; location @m { rewrite ^(.*)$ /down.html break; }":                                                                                               "errors: {'503': /down.html}",
		"root /r; location ~ \\.jpg$ { valid_referers none server_names *.b.example; if ($invalid_referer) { return 403; } }":                                                        "Referer: '!~(?i)^(?:$|https?://a\\.example(?::\\d+)?(?:[/?#]|$)|https?://[^/?#]+\\.b\\.example(?::\\d+)?(?:[/?#]|$))'",
		"location / { auth_request /c; proxy_pass http://h:1; } location = /c { internal; proxy_pass http://a:2/check; }":                                                            "auth: {url: http://a:2/check}",
		"auth_request /a/c; location / { root /r; } location /a/ { auth_request off; proxy_pass http://a:2; }":                                                                       "static: {root: /r}\n        auth: {url: http://a:2/a/c}",
		"location / { auth_request /c; auth_request_set $u $upstream_http_x_user; proxy_set_header X-User $u; proxy_pass http://h:1; } location = /c { proxy_pass http://a:2; }":     "auth: {url: http://a:2/c, copy: [X-User]}",
		"location / { auth_request /c; auth_request_set $u $upstream_http_x_u; proxy_set_header X-User $u; proxy_pass http://h:1; } location = /c { proxy_pass http://a:2; }":        "remove: [X-User]",
		"location / { auth_request /c; auth_basic x; auth_basic_user_file p; root /r; } location = /c { proxy_pass http://a:2; }":                                                    "- {deny: {}}",
		"location / { auth_request /c; root /r; } location = /c { proxy_pass http://$x:2; }":                                                                                         "- {deny: {}}",
		"root /r; location / { try_files $uri /index.php; } location ~ \\.php$ { auth_request /c; fastcgi_pass 127.0.0.1:9; } location = /c { proxy_pass http://a:2; }":              "'@php-front':\n        static: {root: /r}\n        php:\n          to: '127.0.0.1:9'\n          only: '\\.php$'\n          front: index.php\n        auth: {url: http://a:2/c}",
		"root /r; location /p { root /s; index index.php; location ~ ^/p/(.+\\.php)$ { root /s/; fastcgi_pass 127.0.0.1:9; } }":                                                      "'/p**':\n        static: {root: /s}\n        try: ['{path}', '@php']",
		"location /a/ { proxy_pass http://h:1/b$request_uri; }":                                                                                                                      "proxy: http://h:1/b/",
		"default_type application/octet-stream; location = /x.html { return 200 hi; }":                                                                                               "type: text/html",
		"location = /a { return 301 /find?q=$arg_q&l=$cookie_lang&h=${http_x_id}; }":                                                                                                 "redirect: {to: '/find?q={query.q}&l={cookie.lang}&h={header.X-Id}', status: 301}",
		"location / { index index.php; } location ~ \\.php$ { allow 10.0.0.1; fastcgi_pass 127.0.0.1:9; }":                                                                           "only: '\\.php$'", // without a root
		"location / { root /r; add_header A 1 always; } location /b { root /s; add_header A 2 always; }":                                                                             "headers:\n          set: {A: '2'}",
		"server_name app.*; root /r;":                                                             "hosts: [a.example, 'app.*']",
		"server_name ~^(www\\.)?b\\.(org|net)$; root /r;":                                         "hosts: [a.example, www.b.org, www.b.net, b.org, b.net]",
		"server_name ~^w\\d+\\.b\\.org$; root /r;":                                                "hosts: [a.example, '*.b.org']\n    rules:\n      - {header: {Host: '!~(?i)^(?:w\\d+\\.b\\.org|a\\.example)\\.?(?::\\d+)?$'}, deny: {status: 404}}",
		"location /a/ { proxy_pass http://h:1; }":                                                 "- {path: /a, redirect: {to: /a/, status: 301}}",
		"root /r; location ~ ^/u/(?<n>[a-z]+)/(.*)$ { alias /h/$n/www/$2; }":                      "- {path: /alias/, deny: {status: 404}}\n      - {regex: '^/u/(?P<n>[a-z]+)/(.*)$', rewrite: '/alias/{n}/www/{2}'}\n      - {path: /alias/, route: /alias/}",
		"location / { proxy_pass http://h:1; proxy_set_header X-U $request_uri; }":                "request_headers: {set: {X-U: '{uri}'}}",
		"listen 8080; location / { proxy_pass http://h:1; proxy_set_header X-P $server_port; }":   "request_headers: {set: {X-P: '8080'}}",
		"listen 443 ssl; add_header Strict-Transport-Security max-age=1; location / { root /r; }": "when: [{status: ['2xx', '3xx'], protocol: https, set: {Strict-Transport-Security: max-age=1}}]",
		"add_header Strict-Transport-Security max-age=1 always; location / { root /r; }":          "set: {Strict-Transport-Security: max-age=1}",
		"add_header X-A \"\"; location / { root /r; }":                                            "static: {root: /r}\n",
		"location / { root /r; auth_request /check; }":                                            "- {deny: {}}",
	} {
		got, report := translated(t, block)
		if !strings.Contains(got, want) {
			t.Errorf("%s\nbecomes\n%s\nwithout %q\n%s", block, got, want, strings.Join(report.UntranslatedLines(), "\n"))
		}
		if _, err := config.Parse("x.yaml", []byte(got)); err != nil && !strings.Contains(err.Error(), "no folder") && !strings.Contains(err.Error(), "no such file") && !strings.Contains(err.Error(), "/etc/nginx/p") {
			t.Errorf("%s\nbecomes\n%s\n%v", block, got, err)
		}
	}
}

// TestMaps: what maps say of fields of answers.
func TestMaps(t *testing.T) {
	for text, want := range map[string]string{
		"map $sent_http_content_type $x { default a; ~image/ b; application/javascript c; } server { location / { proxy_pass http://h:1; add_header X-A $x always; } }": "headers:\n          set: {X-A: a}\n          when:\n            - {type: ['image/*'], set: {X-A: b}}\n            - {type: [application/javascript, text/javascript], set: {X-A: c}}",
		"map $sent_http_content_type $x { default off; text/html epoch; } server { expires $x; location / { proxy_pass http://h:1; } }":                                 "when: [{status: ['2xx', '3xx'], type: [text/html], set: {Cache-Control: no-cache}}]",
		"map $arg_v $x { default b; \"\" \"\"; } server { location / { root /r; add_header X-A a$x always; } }":                                                         "rules:\n      # /etc/nginx/nginx.conf:1\n      - {query: {v: ''}, route: '@files-x'}\n    routes:\n      # /etc/nginx/nginx.conf:1: location /\n      /:\n        static: {root: /r}\n        headers:\n          set: {X-A: ab}\n      # /etc/nginx/nginx.conf:1: \"\" \"\"\n      '@files-x':\n        static: {root: /r}\n        headers:\n          set: {X-A: a}",
		"map $uri $x { ~^/s/ b; } server { location / { proxy_pass http://h:1; add_header X-A $x always; } }":                                                           "- {regex: '^/s/', route: '@app-x'}",
	} {
		list, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		node, report := Translate(list, options())
		if got := node.String(); !strings.Contains(got, want) || len(report.UntranslatedLines()) > 0 {
			t.Errorf("%s\nbecomes\n%s\nwithout %q\n%s", text, got, want, strings.Join(report.UntranslatedLines(), "\n"))
		}
	}
	list, _ := parse("map $http_origin $x { default \"\"; ~a $http_origin; } server { location / { root /r; add_header X-A $x; } }")
	if _, report := Translate(list, options()); !strings.Contains(strings.Join(report.UntranslatedLines(), "\n"), "$http_origin cannot be used here") {
		t.Errorf("not listed: %v", report.UntranslatedLines())
	}
}

// TestNothingIsDropped: each line has an outcome, whatever it is.
func TestNothingIsDropped(t *testing.T) {
	list, err := parse("unknown_thing a; http { strange { inner x; } server { odd on; location / { weird; if ($x) { y; } } } } stream { server { listen 1; } }")
	if err != nil {
		t.Fatal(err)
	}
	_, report := Translate(list, options())
	var names []string
	for _, n := range report.Notes {
		if n.Outcome == 0 || n.Outcome != draft.Translated && n.Why == "" || strings.Contains(n.Why, "<nil>") {
			t.Errorf("%+v", n)
		}
		if n.Outcome == draft.Untranslated {
			names = append(names, strings.Fields(n.Line)[0])
		}
	}
	for _, want := range []string{"unknown_thing", "strange", "odd", "weird", "stream", "if"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("%s is not among those left: %v", want, names)
		}
	}
}

// FuzzTranslate: nothing makes it fail, each line has an outcome, and what is
// written is YAML that the config's reader takes apart.
func FuzzTranslate(f *testing.F) {
	importertest.Seeds(f, "testdata/configs/*.conf")
	f.Add("server { if ($a ~ \"(\") { return 301 \"$1\n\"; } location ~* ( { alias $1; } rewrite ( ) ( ; proxy_pass; }")
	f.Add("server { listen ; server_name ~( *.x.*; location { } location = { return; } location @a { fastcgi_pass; } }")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return
		}
		tested().Whatever(t, text, func() int {
			list, _ := parse(text) // it was read before
			return count(list)
		})
	})
}

// TestFieldsThatRulesLack: a field that is not in the answers of rules is listed.
func TestFieldsThatRulesLack(t *testing.T) {
	for block, want := range map[string]bool{
		"root /r; add_header X-A b always; location ~ /\\. { deny all; }":                                                     true,
		"root /r; add_header X-A b always; location ~ /\\. { deny all; } location /b { root /s; }":                            false, // of the site
		"root /r; add_header X-A b always; location /b { return 404; }":                                                       false, // a route
		"root /r; location / { add_header X-A b always; } location ~ /\\. { deny all; } location /b { root /s; }":             false, // not the server's
		"root /r; add_header X-A b; location /b { add_header X-C d; root /s; } location ~ ^/old/(.*) { return 301 /new/$1; }": true,
	} {
		_, report := translated(t, block)
		if got := strings.Contains(strings.Join(report.Defaults(), "\n"), "add_header X-A"); got != want {
			t.Errorf("%s: listed: %v, want %v\n%s", block, got, want, strings.Join(report.Defaults(), "\n"))
		}
	}
}

// TestPathsBehind: what a proxy_pass puts before the whole path is not put in the
// place of the location's; where a slash makes a difference, that is listed.
func TestPathsBehind(t *testing.T) {
	if got, _ := translated(t, "location /a/ { proxy_pass http://h:1/b$request_uri; }"); strings.Contains(got, "strip_prefix") {
		t.Error(got)
	}
	for block, want := range map[string]bool{
		"location /a/ { proxy_pass http://h:1/b; }":  true,
		"location /a { proxy_pass http://h:1/b/; }":  true,
		"location /a/ { proxy_pass http://h:1/b/; }": false,
		"location /a/ { proxy_pass http://h:1; }":    false,
	} {
		_, report := translated(t, block)
		if got := strings.Contains(strings.Join(report.Defaults(), "\n"), "behind a slash"); got != want {
			t.Errorf("%s: listed: %v, want %v", block, got, want)
		}
	}
}
