package nginx

import (
	"strings"
	"testing"

	"millrace/importer/importertest"
)

// TestNobodyGetsIn: what nginx kept clients out of stays closed, or is closed by
// the same, and the report says so.
func TestNobodyGetsIn(t *testing.T) {
	const tls = " listen 443 ssl; ssl_certificate c; ssl_certificate_key k; "
	tested().Closed(t, map[string]importertest.Case{
		"what a query may not have": {
			Config: "server { root /r; if ($request_uri ~* union) { return 403; } }",
			Want:   []string{"{regex: '(?i)union', deny: {}}"},
			Left:   "what it looks for in queries passes",
		},
		"who is not signed in": {
			Config: "map $http_cookie $in { default 0; ~*session 1; plain 1; } server { root /r; if ($in = 0) { return 403; } }",
			Want:   []string{"{header: {Cookie: '!~(?i:^plain$)|(?i:session)'}, deny: {}}"},
		},
		"an expression that looks behind": {
			Config: "server { root /r; location ~ /(config|(?<!ext/)phpbb(?!\\w+)|store) { deny all; } location ~ /x(?!y)z { root /s; } }",
			Want:   []string{"{regex: '/(config|phpbb|store)', deny: {}}"},
			Left:   "location ~ /x(?!y)z",
		},
		"a script with the path behind it": {
			Config: "server { root /r; location / { try_files $uri $uri/ @front; } location @front { rewrite ^(.*)$ /index.php/$1 last; } location ~ \\.php(/|$) { fastcgi_pass unix:/p.sock; } }",
			Want:   []string{"try: ['{path}', '{path}/', '/index.php{path}']"},
		},
		"a front controller for scripts that are not there": {
			Config: "server { root /r; location / { proxy_pass http://h:1; } location ~ \\.php(/|$) { try_files $uri /index.php$is_args$args; fastcgi_pass unix:/p.sock; } location ~ ^/b/.*\\.php(/|$) { try_files $uri =404; fastcgi_pass unix:/q.sock; } }",
			Want:   []string{"to: unix:/p.sock\n          only: '\\.php$'\n", "to: unix:/q.sock\n          only: '^/b/.*\\.php$'\n          front: 'off'"},
		},
		"a file named like a folder": {
			Config: "server { root /r; location / { auth_basic x; auth_basic_user_file /p; } location /x.jpg/ { auth_basic off; } }",
			Want:   []string{"- {path: '/x.jpg/**', route: '@x.jpg'}"},
		},
		"one file of those that ^~ names": {
			Config: "server { location ~ b { proxy_pass http://h:1; } location = /x.jpg { internal; } location ^~ /x.jpg { proxy_pass http://h:2; } }",
			Want:   []string{"- {path: /x.jpg, route: /x.jpg}\n      - {path: '/x.jpg**', route: '/x.jpg**'}"},
		},
		"local with a name": {
			Config: "server { listen 80; server_name a; root /r; } server { listen 127.0.0.1:8081; server_name b; root /s; }",
			Want:   []string{"- hosts: [b]\n    rules:\n      # REMOVE THIS RULE when you have looked at: /etc/nginx/nginx.conf:1: nginx served this block on loopback", "- {deny: {}}"},
			Left:   "give it access: {allow: [127.0.0.0/8, '::1', unix]}",
		},
		"local without a name": {
			Config: "server { listen 127.0.0.1:8081; root /s; } server { listen 80; server_name a; root /r; }",
			Want:   []string{"- hosts: [a]"},
			Not:    []string{"/s"},
			Left:   "a site without hosts answers everybody",
		},
		"local and default": {
			Config: "server { listen [::1]:8081 default_server; server_name b; root /s; } server { listen 80; root /r; }",
			Want:   []string{"- hosts: [b]", "- {deny: {}}"},
			Left:   "served on all addresses",
		},
		"socket": {
			Config: "server { listen unix:/run/a.sock; server_name b; root /s; } server { listen 80; root /r; }",
			Want:   []string{"- hosts: [b]", "- {deny: {}}"},
			Left:   "served on all addresses",
		},
		"private address": {
			Config: "server { listen 10.0.0.5:80; server_name b; root /s; } server { listen 80; root /r; }",
			Want:   []string{"- hosts: [b]", "- {deny: {}}"},
			Left:   "access: {allow: [your network]}",
		},
		"private address behind a router": {
			Config: "server { listen 10.0.0.5:80; server_name b; root /s; } server { listen 10.0.0.5:80; root /r; }",
			Not:    []string{"deny"},
		},
		"loopback alone": {
			Config: "server { listen 127.0.0.1:80; server_name b; root /s; } server { listen unix:/run/a.sock; root /r; }",
			Not:    []string{"deny"},
		},
		"local of the same name": {
			Config: "server { listen 127.0.0.1:81; server_name a; root /s; } server { listen 80; server_name a; root /r; }",
			Want:   []string{"root: /r"},
			Not:    []string{"/s", "deny"},
			Left:   "another block has the same hosts",
		},
		"local, merged into the block for TLS": {
			Config: "server { listen 127.0.0.1:81; server_name a; location / { proxy_pass http://admin; } } server {" + tls + "server_name a; root /r; } server { listen 80; server_name b; root /b; }",
			Want:   []string{"- {protocol: http, deny: {}}\n      # /etc/nginx/nginx.conf:1: location /\n      - {protocol: http, route: '@plain'}"},
			Left:   "served on all addresses",
		},
		"local for TLS": {
			Config: "server { listen 127.0.0.1:444 ssl; server_name a; root /s; } server { listen 80; server_name a; root /r; }",
			Want:   []string{"root: /r"},
			Not:    []string{"/s", "deny"},
			Left:   "another block has the same hosts",
		},
		"plain HTTP on loopback alone": {
			Config: "server { listen 127.0.0.1:81; server_name a; location / { proxy_pass http://admin; } } server {" + tls + "server_name a; root /r; }",
			Want:   []string{"- {protocol: http, route: '@plain'}"},
			Not:    []string{"deny"},
		},
		"file of an exact path": {
			Config: "server { location = /metrics { alias /f; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file p; limit_req zone=z; } } limit_req_zone $binary_remote_addr zone=z:1m rate=5r/s;",
			Want:   []string{"respond: {file: /f}", "access: {allow: ['10.0.0.0/8']}", "auth: {realm: x", "rate_limit: {rate: '5/s'"},
		},
		"file of an exact path over plain HTTP": {
			Config: "server { listen 80; server_name a; location = /metrics { alias /f; allow 10.0.0.0/8; deny all; } } server {" + tls + "server_name a; root /r; }",
			Want:   []string{"path: /metrics, route: '@plain-metrics'", "access: {allow: ['10.0.0.0/8']}"},
		},
		"PHP for some": {
			Config: "server { root /r; location / { } location ~ \\.php$ { fastcgi_pass unix:/p; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file p; } }",
			Want:   []string{"- {regex: '\\.php$', route: '@php'}", "access: {allow: ['10.0.0.0/8']}", "auth: {realm: x"},
		},
		"a front controller for some": {
			Config: "server { root /r; location / { try_files $uri $uri/ /index.php?$args; } location ~ \\.php$ { fastcgi_pass unix:/p; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file p; } }",
			Want: []string{
				"try: ['{path}', '{path}/', '@php-front']",
				"'@php-front':\n        static: {root: /r}\n        php:\n          to: unix:/p\n          only: '\\.php$'\n          front: index.php\n        access: {allow: ['10.0.0.0/8']}\n        auth: {realm: x",
				"- {regex: '\\.php$', route: '@php'}",
			},
		},
		"a folder's script for some": {
			Config: "server { root /r; index index.php; location / { } location ~ \\.php$ { fastcgi_pass unix:/p; allow 10.0.0.0/8; deny all; } }",
			Want:   []string{"try: ['{path}', '@php']", "access: {allow: ['10.0.0.0/8']}"},
		},
		"a front controller behind rules": {
			Config: "server { root /r; location / { try_files $uri /index.php; } location ~ \\.php$ { fastcgi_pass unix:/p; allow 10.0.0.1; deny 10.0.0.0/8; } }",
			Want:   []string{"try: ['{path}', /index.php]", "address: ['10.0.0.0/8', '!10.0.0.1']"},
			Not:    []string{"-front"},
			Left:   "its rules are not for it",
		},
		"PHP with the server's password, files with none": {
			Config: "server { root /r; auth_basic x; auth_basic_user_file p; location / { auth_basic off; } location ~ \\.php$ { fastcgi_pass unix:/p; } }",
			Want:   []string{"- {regex: '\\.php$', route: '@php'}", "auth: {realm: x"},
		},
		"PHP and files alike": {
			Config: "server { root /r; auth_basic x; auth_basic_user_file p; location / { } location ~ \\.php$ { fastcgi_pass unix:/p; } }",
			Want:   []string{"auth: {realm: x"},
			Not:    []string{"@php"},
		},
		"refusal with a variable": {
			Config: "server { root /r; if ($http_x_token != \"s3\") { return 403 \"no access, $remote_addr\"; } }",
			Want:   []string{"- {header: {X-Token: '!s3'}, deny: {}}"},
			Left:   "it refuses with a short text instead",
		},
		"refusal with a variable, in a location": {
			Config: "server { root /r; location /a/ { if ($arg_x = y) { return 410 \"$remote_addr\"; } return 451 \"$remote_addr\"; } }",
			Want:   []string{"{path: /a/, query: {x: 'y'}, deny: {status: 410}}", "/a/: {deny: {status: 451}}"},
			Left:   "texts of respond have no variables",
		},
		"answer with a variable": {
			Config: "server { root /r; location /a/ { return 200 \"$remote_addr\"; } }",
			Want:   []string{"/a/: {deny: {status: 404}}"},
			Left:   "texts of respond have no variables",
		},
		"refusal that a rewrite hides": {
			Config: "server { root /r; if ($uri ~ ^/a) { rewrite ^/b /c; return 403; } }",
			Want:   []string{"- {regex: '^/a', deny: {}}"},
		},
		"an index that another location closes": {
			Config: "server { root /r; location / { } location ~ \\.html$ { deny all; } }",
			Want:   []string{"- {regex: '\\.html$', deny: {}}", "- {regex: '/$', deny: {}}"},
		},
		"an index that an exact location closes": {
			Config: "server { root /r; location / { } location = /a/index.html { auth_basic x; auth_basic_user_file p; } }",
			Want:   []string{"- {regex: '^/a/$', deny: {}}"},
			Not:    []string{"regex: '/$'"},
		},
		"a folder whose index is elsewhere": {
			Config: "server { root /r; location / { proxy_pass http://h:1; deny all; } location = /a/ { allow all; } }",
			Want:   []string{"- {regex: '^/a/$', deny: {}}"},
		},
		"an index that is internal": {
			Config: "server { root /r; location / { } location = /index.html { internal; } }",
			Not:    []string{"regex: '^/$'"},
		},
		"a rewrite to a path that is closed": {
			Config: "server { root /r; location = /a/x.jpg { deny all; } location ~ /c/ { rewrite ^/b/ /a/x.jpg last; root /s; } location ~ ^/a/ { return 200 open; } }",
			Want:   []string{"- {regex: '^/b/', within: ['~/c/'], respond: {status: 501"},
			Left:   "another location keeps clients out of the path that this makes",
		},
		"certificate 496": {
			Config: "server {" + tls + "ssl_client_certificate ca; ssl_verify_client optional; root /r; if ($ssl_client_verify != SUCCESS) { return 496; } }",
			Want:   []string{"- {deny: {}}"},
			Left:   "there is no condition on $ssl_client_verify",
		},
		"certificate 400": {
			Config: "server {" + tls + "ssl_client_certificate ca; ssl_verify_client optional; root /r; if ($ssl_client_verify != SUCCESS) { return 400; } }",
			Want:   []string{"- {deny: {}}"},
			Left:   "there is no condition on $ssl_client_verify",
		},
		"a question to another server over plain HTTP": {
			Config: "server { listen 8080; server_name a; location / { auth_request /c; proxy_pass http://admin; } } server {" + tls + "server_name a b; root /r; }",
			Want:   []string{"looked at: /etc/nginx/nginx.conf:1: auth_request /c\n      - {protocol: http, host: [a], deny: {}}", "route: '@plain'"},
			Left:   "no location passes /c on to a server",
		},
		"a question to another server for all sites": {
			Config: "auth_request /c; server { server_name a; root /r; } server { server_name b; root /s; }",
			Want:   []string{"- hosts: [a]\n    rules:\n      # REMOVE THIS RULE", "- hosts: [b]\n    rules:\n      # REMOVE THIS RULE"},
			Left:   "no location passes /c on to a server",
		},
		"an expression within a prefix, and a longer prefix": {
			Config: "server { root /r; location /media/ { location ~ \\.jpg$ { expires 1d; } } location /media/customer/ { deny all; } location ~ \\.png$ { return 200 x; } }",
			Want:   []string{"- {regex: '\\.jpg$', within: ['/media/**'], except: ['/media/customer/**'], route: '@files'}"},
		},
		"an expression within another": {
			Config: "server { root /r; location ~ ^/a/ { location ~ \\.jpg$ { return 200 x; } deny all; } location ~ \\.jpg$ { deny all; } }",
			Want:   []string{"- {regex: '\\.jpg$', within: ['~^/a/'], respond: {text: x}}", "- {regex: '^/a/', deny: {}}", "- {regex: '\\.jpg$', deny: {}}"},
		},
		"a prefix with ^~ and a longer one without": {
			Config: "server { root /r; location ^~ /a/ { } location /a/b/ { } location ~ \\.x$ { deny all; } }",
			Want:   []string{"- {path: /a/, except: ['/a/b/**'], route: /a/}", "- {regex: '\\.x$', deny: {}}"},
		},
		"a prefix within a shorter one": {
			Config: "server { root /r; location /a/ { location /a/b/c/ { root /s; } } location /a/b/ { deny all; } }",
			Want:   []string{"/a/b/: {deny: {}}"},
			Not:    []string{"/s"},
		},
		"a rewrite, and a refusal behind it": {
			Config: "server { root /r; location /a/ { rewrite ^/a/x /b/x; return 403; } }",
			Want:   []string{"/a/: {deny: {}}"},
			Not:    []string{"rewrite"},
		},
		"methods before an answer": {
			Config: "server { location /a/ { limit_except POST { deny all; } return 200 x; } }",
			Want:   []string{"- {path: /a/, method: ['!POST'], deny: {}}"},
		},
		"internal, and an answer": {
			Config: "server { root /r; location ~ ^/a/ { internal; location ~ x { return 200 x; } return 200 y; } }",
			Want:   []string{"- {regex: x, within: ['~^/a/'], deny: {status: 404}}", "- {regex: '^/a/', deny: {status: 404}}"},
		},
		"addresses of a location with a name": {
			Config: "server { location / { root /r; try_files $uri @a; } location @a { allow 10.0.0.1; deny 10.0.0.0/8; proxy_pass http://h:1; } }",
			Not:    []string{"http://h:1"},
			Left:   "must be said above",
		},
		"an alias from around": {
			Config: "server { location /a/ { alias /s/; location /a/b/ { } } }",
			Want:   []string{"/a/b/:\n        static: {root: /s/b}"},
		},
		"what the other server must not get": {
			Config: "server { location / { proxy_pass http://h:1; proxy_pass_request_headers off; proxy_pass_request_body off; } }",
			Not:    []string{"proxy:"},
			Left:   "the other server must not get them",
		},
	})
}

// TestOff: that a line which is off is off here, too, is said only where that is true.
func TestOff(t *testing.T) {
	for line, want := range map[string]bool{"autoindex": true, "proxy_pass_request_headers": false, "underscores_in_headers": false, "whatever": false, "chunked_transfer_encoding": false} {
		_, report := translated(t, "root /r; "+line+" off;")
		if got := strings.Contains(strings.Join(report.Defaults(), "\n"), "off here"); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// TestListen: each line opens what it has opened in nginx.
func TestListen(t *testing.T) {
	for lines, want := range map[string]string{
		"":                                       "listen: ['0.0.0.0:80']",
		"listen 81;":                             "listen: ['0.0.0.0:81']",
		"listen *:81;":                           "listen: ['0.0.0.0:81']",
		"listen 81; listen [::]:81;":             "listen: ['0.0.0.0:81', '[::]:81']",
		"listen [::]:81 ipv6only=off;":           "listen: [':81']",
		"listen 81; listen [::]:81 ipv6only=on;": "listen: ['0.0.0.0:81', '[::]:81']",
		"listen 81; listen 10.0.0.1:81;":         "listen: ['0.0.0.0:81']",
	} {
		if got, _ := translated(t, "root /r; "+lines); !strings.Contains(got, want) {
			t.Errorf("%s: without %s\n%s", lines, want, got)
		}
	}
}

// TestErrorPages: pages take the place of an application's own where nginx looks at its
// answers, and nowhere else.
func TestErrorPages(t *testing.T) {
	const page, php = "error_page 404 500 /e.html; ", "root /r; location ~ \\.php$ { fastcgi_pass unix:/p.sock; "
	on := []string{"errors: {'404': /e.html, '500': /e.html}", "intercept_errors: true"}
	tested().Closed(t, map[string]importertest.Case{
		"a proxy":                 {Config: "server { location / { proxy_pass http://h:1; " + page + "} }", Want: on[:1], Not: on[1:]},
		"a proxy, on":             {Config: "server { location / { proxy_pass http://h:1; proxy_intercept_errors on; " + page + "} }", Want: on},
		"a proxy, on for all":     {Config: "proxy_intercept_errors on; server { " + page + "location / { proxy_pass http://h:1; } }", Want: on},
		"a proxy, off again":      {Config: "proxy_intercept_errors on; server { " + page + "location / { proxy_pass http://h:1; proxy_intercept_errors off; } }", Want: on[:1], Not: on[1:]},
		"a proxy, on without any": {Config: "server { location / { proxy_pass http://h:1; proxy_intercept_errors on; } }", Not: on[1:]},
		"PHP":                     {Config: "server { " + page + php + "} }", Want: on[:1], Not: on[1:]},
		"PHP, on":                 {Config: "server { " + page + php + "fastcgi_intercept_errors on; } }", Want: on},
		"PHP, on for proxies":     {Config: "server { proxy_intercept_errors on; " + page + php + "} }", Want: on[:1], Not: on[1:]},
	})
}
