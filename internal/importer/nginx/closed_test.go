package nginx

import (
	"strings"
	"testing"

	"millrace/internal/config"
)

// TestNobodyGetsIn: what nginx kept clients out of stays closed, or is closed by
// the same, and the report says so.
func TestNobodyGetsIn(t *testing.T) {
	const tls = " listen 443 ssl; ssl_certificate c; ssl_certificate_key k; "
	for name, c := range map[string]struct {
		config string
		want   []string // in the config
		not    []string
		left   string // in the report
	}{
		"local with a name": {
			config: "server { listen 80; server_name a; root /r; } server { listen 127.0.0.1:8081; server_name b; root /s; }",
			want:   []string{"- hosts: [b]\n    rules:\n      # REMOVE THIS RULE when you have looked at: /etc/nginx/nginx.conf:1: nginx served this block on loopback", "- {deny: {}}"},
			left:   "give it access: {allow: [127.0.0.0/8, '::1', unix]}",
		},
		"local without a name": {
			config: "server { listen 127.0.0.1:8081; root /s; } server { listen 80; server_name a; root /r; }",
			want:   []string{"- hosts: [a]"},
			not:    []string{"/s"},
			left:   "a site without hosts answers everybody",
		},
		"local and default": {
			config: "server { listen [::1]:8081 default_server; server_name b; root /s; } server { listen 80; root /r; }",
			want:   []string{"- hosts: [b]", "- {deny: {}}"},
			left:   "served on all addresses",
		},
		"socket": {
			config: "server { listen unix:/run/a.sock; server_name b; root /s; } server { listen 80; root /r; }",
			want:   []string{"- hosts: [b]", "- {deny: {}}"},
			left:   "served on all addresses",
		},
		"private address": {
			config: "server { listen 10.0.0.5:80; server_name b; root /s; } server { listen 80; root /r; }",
			want:   []string{"- hosts: [b]", "- {deny: {}}"},
			left:   "access: {allow: [your network]}",
		},
		"private address behind a router": {
			config: "server { listen 10.0.0.5:80; server_name b; root /s; } server { listen 10.0.0.5:80; root /r; }",
			not:    []string{"deny"},
		},
		"loopback alone": {
			config: "server { listen 127.0.0.1:80; server_name b; root /s; } server { listen unix:/run/a.sock; root /r; }",
			not:    []string{"deny"},
		},
		"local of the same name": {
			config: "server { listen 127.0.0.1:81; server_name a; root /s; } server { listen 80; server_name a; root /r; }",
			want:   []string{"root: /r"},
			not:    []string{"/s", "deny"},
			left:   "another block has the same hosts",
		},
		"local, merged into the block for TLS": {
			config: "server { listen 127.0.0.1:81; server_name a; location / { proxy_pass http://admin; } } server {" + tls + "server_name a; root /r; } server { listen 80; server_name b; root /b; }",
			want:   []string{"- {protocol: http, deny: {}}\n      # /etc/nginx/nginx.conf:1: location /\n      - {protocol: http, route: '@plain'}"},
			left:   "served on all addresses",
		},
		"local for TLS": {
			config: "server { listen 127.0.0.1:444 ssl; server_name a; root /s; } server { listen 80; server_name a; root /r; }",
			want:   []string{"root: /r"},
			not:    []string{"/s", "deny"},
			left:   "another block has the same hosts",
		},
		"plain HTTP on loopback alone": {
			config: "server { listen 127.0.0.1:81; server_name a; location / { proxy_pass http://admin; } } server {" + tls + "server_name a; root /r; }",
			want:   []string{"- {protocol: http, route: '@plain'}"},
			not:    []string{"deny"},
		},
		"file of an exact path": {
			config: "server { location = /metrics { alias /f; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file p; limit_req zone=z; } } limit_req_zone $binary_remote_addr zone=z:1m rate=5r/s;",
			want:   []string{"respond: {file: /f}", "access: {allow: ['10.0.0.0/8']}", "auth: {realm: x", "rate_limit: {rate: '5/s'"},
		},
		"file of an exact path over plain HTTP": {
			config: "server { listen 80; server_name a; location = /metrics { alias /f; allow 10.0.0.0/8; deny all; } } server {" + tls + "server_name a; root /r; }",
			want:   []string{"path: /metrics, route: '@plain-metrics'", "access: {allow: ['10.0.0.0/8']}"},
		},
		"PHP for some": {
			config: "server { root /r; location / { } location ~ \\.php$ { fastcgi_pass unix:/p; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file p; } }",
			want:   []string{"- {regex: '\\.php$', route: '@php'}", "access: {allow: ['10.0.0.0/8']}", "auth: {realm: x"},
		},
		"PHP with the server's password, files with none": {
			config: "server { root /r; auth_basic x; auth_basic_user_file p; location / { auth_basic off; } location ~ \\.php$ { fastcgi_pass unix:/p; } }",
			want:   []string{"- {regex: '\\.php$', route: '@php'}", "auth: {realm: x"},
		},
		"PHP and files alike": {
			config: "server { root /r; auth_basic x; auth_basic_user_file p; location / { } location ~ \\.php$ { fastcgi_pass unix:/p; } }",
			want:   []string{"auth: {realm: x"},
			not:    []string{"@php"},
		},
		"refusal with a variable": {
			config: "server { root /r; if ($http_x_token != \"s3\") { return 403 \"no access, $remote_addr\"; } }",
			want:   []string{"- {header: {X-Token: '!s3'}, deny: {}}"},
			left:   "it refuses with a short text instead",
		},
		"refusal with a variable, in a location": {
			config: "server { root /r; location /a/ { if ($arg_x = y) { return 410 \"$remote_addr\"; } return 451 \"$remote_addr\"; } }",
			want:   []string{"{query: {x: 'y'}, path: /a/, deny: {status: 410}}", "/a/: {deny: {status: 451}}"},
			left:   "texts of respond have no variables",
		},
		"answer with a variable": {
			config: "server { root /r; location /a/ { return 200 \"$remote_addr\"; } }",
			want:   []string{"/a/: {deny: {status: 404}}"},
			left:   "texts of respond have no variables",
		},
		"refusal that a rewrite hides": {
			config: "server { root /r; if ($uri ~ ^/a) { rewrite ^/b /c; return 403; } }",
			want:   []string{"- {deny: {}}"},
			left:   "what it refuses is not carried over",
		},
		"certificate 496": {
			config: "server {" + tls + "ssl_client_certificate ca; ssl_verify_client optional; root /r; if ($ssl_client_verify != SUCCESS) { return 496; } }",
			want:   []string{"- {deny: {}}"},
			left:   "there is no condition on $ssl_client_verify",
		},
		"certificate 400": {
			config: "server {" + tls + "ssl_client_certificate ca; ssl_verify_client optional; root /r; if ($ssl_client_verify != SUCCESS) { return 400; } }",
			want:   []string{"- {deny: {}}"},
			left:   "there is no condition on $ssl_client_verify",
		},
		"a question to another server over plain HTTP": {
			config: "server { listen 8080; server_name a; location / { auth_request /c; proxy_pass http://admin; } } server {" + tls + "server_name a b; root /r; }",
			want:   []string{"looked at: /etc/nginx/nginx.conf:1: auth_request /c\n      - {protocol: http, host: [a], deny: {}}", "route: '@plain'"},
			left:   "let the application decide",
		},
		"a question to another server for all sites": {
			config: "auth_request /c; server { server_name a; root /r; } server { server_name b; root /s; }",
			want:   []string{"- hosts: [a]\n    rules:\n      # REMOVE THIS RULE", "- hosts: [b]\n    rules:\n      # REMOVE THIS RULE"},
			left:   "let the application decide",
		},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := parse("http { " + c.config + " }")
			if err != nil {
				t.Fatal(err)
			}
			node, report := Translate(list, options())
			got, left := node.String(), strings.Join(report.NotCarriedOver(), "\n")
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("without %q:\n%s\n%s", want, got, left)
				}
			}
			for _, not := range c.not {
				if strings.Contains(got, not) {
					t.Errorf("with %q:\n%s\n%s", not, got, left)
				}
			}
			if !strings.Contains(left, c.left) {
				t.Errorf("not reported: %q\n%s", c.left, left)
			}
			if _, err := config.Parse("x.yaml", []byte(got)); err != nil && strings.Contains(err.Error(), "not YAML") {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
}
