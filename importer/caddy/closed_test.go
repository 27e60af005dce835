package caddy

import (
	"regexp"
	"strings"
	"testing"

	"millrace/importer/importertest"
	"millrace/internal/config"
)

const remove = "# REMOVE THIS RULE when you have looked at: "

// TestLines: what single lines become, and what the report says of those that
// do not.
func TestLines(t *testing.T) {
	const hash = "$2a$04$mXlvbnpJ7V7hGcXWxcAu1.xPdHMxZ/9o4DpFs2LZJM9nqUVXYCrBe"
	for block, want := range map[string]string{
		"root * /r\nfile_server":                                                         "static: {root: /r}",
		"root /r\nfile_server browse":                                                    "static: {root: /r, listing: true}",
		"root * /r\nfile_server /img/*":                                                  "/img/:\n        static: {root: /r/img}",
		"root * /r\ntry_files {path} /i.html\nfile_server":                               "try: ['{path}', /i.html]",
		"root * /r\ntry_files {path} {path}.html\nfile_server":                           "static: {root: /r, clean_urls: true}",
		"root * /r\n@n not file\nrewrite @n /i.html\nfile_server":                        "try: ['{path}', /i.html]",
		"root * /r\n@n {\nnot file {path} {path}/\n}\nreverse_proxy @n h:1\nfile_server": "try: ['{path}', '{path}/', '@n']",
		"root * /r\n@f file\nhandle @f {\nfile_server\n}\nreverse_proxy h:1":             "try: ['{path}', '@upstream']",
		"reverse_proxy h:1 h:2-4":                                                        "to: [http://h:1, http://h:2, http://h:3, http://h:4]",
		"reverse_proxy https://h {\nheader_up Host {upstream_hostport}\n}":               "to: https://h\n          host: upstream",
		"reverse_proxy unix//run/a.sock":                                                 "to: unix:/run/a.sock",
		"reverse_proxy h:1 {\nlb_policy cookie x\nhealth_uri /h\nhealth_status 2xx\n}":   "sticky: x\n          host: client\n          redirects: keep\n          health: {path: /h, status: ['2xx']}",
		"reverse_proxy h:1 {\ntransport http {\ntls_insecure_skip_verify\n}\n}":          "to: https://h:1\n          host: client\n          redirects: keep\n          tls: {insecure: true}",
		"handle_path /a/* {\nreverse_proxy h:1\n}":                                       "/a/:\n        proxy:\n          to: http://h:1\n          strip_prefix: /a/",
		"handle_path /a/* {\nrewrite * /b{uri}\nreverse_proxy h:1\n}":                    "to: http://h:1/b\n          strip_prefix: /a/",
		"handle /a/* {\nrewrite * /b\nreverse_proxy h:1\n}":                              "rewrite:\n            - {path: '.*', to: /b}",
		"redir /a /b 301":                                                                 "/a: {redirect: {to: '/b?', status: 301}}",
		"redir https://b.example{uri} permanent":                                          "redirect: {to: 'https://b.example{uri}', status: 301}",
		"@r path_regexp x ^/a/(.*)$\nredir @r /b/{re.x.1}":                                "{regex: '^/a/(.*)$', redirect: {to: '/b/{1}?', status: 302}}",
		"rewrite /a /b":                                                                   "{path: /a, rewrite: /b}",
		"uri strip_prefix /a":                                                             "{path: /a/, rewrite: '/{1}'}",
		"respond / \"x\" 201":                                                             "{regex: '^/$', respond: {status: 201, text: x}}",
		"respond /h 200":                                                                  "/h: {respond: {status: 200}}",
		"respond /a/* 403":                                                                "{regex: '(?i)^/a/', deny: {}}",
		"error /a* 410":                                                                   "{regex: '(?i)^/a', deny: {status: 410}}",
		"@b remote_ip 10.1.2.3/8\nabort @b":                                               "{address: ['10.0.0.0/8'], deny: {}}",
		"@b not client_ip private_ranges\nrespond @b 403":                                 "address: ['!192.168.0.0/16',",
		"@m method POST PUT\nrespond @m 405":                                              "{method: [POST, PUT], respond: {status: 405}}",
		"@h header X-A b*\nrespond @h 404":                                                "{header: {X-A: 'b*'}, deny: {status: 404}}",
		"@h header !X-A\nrespond @h 404":                                                  "{header: {X-A: ''}, deny: {status: 404}}",
		"@h header_regexp X-A ^b\nrespond @h 404":                                         "{header: {X-A: '~^b'}, deny: {status: 404}}",
		"@q query a=1 b=*\nrespond @q 404":                                                "{query: {a: '1', b: '*'}, deny: {status: 404}}",
		"@e expression `path('/a*')`\nrespond @e 404":                                     "{regex: '(?i)^/a', deny: {status: 404}}",
		"@e `{method} == 'POST'`\nrespond @e 405":                                         "{method: [POST], respond: {status: 405}}",
		"header -X-Powered-By\nroot * /r\nfile_server":                                    "headers:\n      remove: [X-Powered-By]",
		"header /a/* ?Cache-Control no-store\nroot * /r\nfile_server":                     "/a/:\n        static: {root: /r/a}\n        headers:\n          default: {Cache-Control: no-store}",
		"basic_auth {\nbob " + hash + "\n}\nroot * /r\nfile_server":                       "auth: {passwords: {bob: '" + hash + "'}}",
		"forward_auth h:9 {\nuri /v\ncopy_headers A B\n}\nreverse_proxy h:1":              "auth: {url: http://h:9/v, copy: [A, B]}",
		"root * /r\nphp_fastcgi unix//p.sock\nfile_server":                                "static: {root: /r}\n        php: /p.sock",
		"root * /r\nphp_fastcgi h:9000 {\nindex app.php\nenv A b\n}\nfile_server":         "php:\n          to: h:9000\n          index: app.php\n          params: {A: b}\n          front: app.php",
		"request_body {\nmax_size 10MB\n}\nreverse_proxy h:1":                             "body_bytes: 10000000B",
		"root * /r\nfile_server\nhandle_errors 404 {\nrewrite * /no.html\nfile_server\n}": "errors: {'404': '@error-no'}",
		"root * /r\nfile_server\nhandle_errors {\nrespond \"sorry\"\n}":                   "errors: {'4xx': '@error-respond', '5xx': '@error-respond'}",
		"respond {$GREETING:hello}":                                                       "respond: {text: '${GREETING:-hello}'}",
	} {
		c, err := parse("http://a.example {\n" + block + "\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		node, report := Translate(c, options())
		got := regexp.MustCompile(`(?m)^ *# [^R].*\n`).ReplaceAllString(node.String(), "")
		if !strings.Contains(got, want) {
			t.Errorf("%s\nbecomes\n%s\nwithout %q\n%s", block, got, want, strings.Join(report.UntranslatedLines(), "\n"))
		}
		if strings.Contains(got, remove) {
			t.Errorf("%s\nis closed:\n%s", block, strings.Join(report.UntranslatedLines(), "\n"))
		}
		if _, err := config.Parse("x.yaml", []byte(got)); err != nil && !strings.Contains(err.Error(), "no folder") && !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s\nbecomes\n%s\n%v", block, got, err)
		}
	}
}

// TestNobodyGetsIn: what kept clients out of Caddy stays closed, or is closed by
// the same, and the report says so.
func TestNobodyGetsIn(t *testing.T) {
	tested().Closed(t, map[string]importertest.Case{
		"a matcher that rules cannot say": {
			Config: "a {\n@x vars {x} y\nrespond @x 403\nreverse_proxy h:1\n}",
			Want:   []string{remove + "/etc/caddy/Caddyfile:3: respond @x 403\n      - {deny: {}}"},
			Left:   "rules have no condition vars",
		},
		"an expression that sends to a page for signing in": {
			Config: "a {\n@x expression {http.request.cookie.s} == \"\"\nredir @x /login\nreverse_proxy h:1\n}",
			Want:   []string{remove},
			Left:   "expressions are not translated",
		},
		"a header for a matcher that rules cannot say": {
			Config: "a {\n@x vars {x} y\nheader @x A b\nreverse_proxy h:1\n}",
			Not:    []string{remove},
			Left:   "write its condition by hand",
		},
		"a plugin": {
			Config: "a {\nauthorize with policy\nreverse_proxy h:1\n}",
			Want:   []string{remove}, Left: "may keep clients out",
		},
		"a plugin that nobody knows": {
			Config: "a {\nwhatever {\n x\n}\nreverse_proxy h:1\n}",
			Want:   []string{remove}, Left: "no part of Caddy itself",
		},
		"a rate": {
			Config: "a {\nrate_limit {\n zone z {\n  events 1\n }\n}\nreverse_proxy h:1\n}",
			Not:    []string{remove}, Left: "write rate_limit",
		},
		"passwords that cannot be read": {
			Config: "a {\nbasic_auth scrypt {\n bob x\n}\nreverse_proxy h:1\n}",
			Want:   []string{remove}, Left: "millrace hash-password",
		},
		"another spelling of a path with a password": {
			Config: "a {\nhandle /admin/* {\n basic_auth {\n  bob $2a$04$mXlvbnpJ7V7hGcXWxcAu1.xPdHMxZ/9o4DpFs2LZJM9nqUVXYCrBe\n }\n reverse_proxy h:1\n}\nreverse_proxy h:1\n}",
			Want:   []string{"- {path: '/admin/**', route: /admin/}", "- {regex: '(?i)^/admin/', deny: {status: 404}}"},
		},
		"a longer path does not overtake a refusal": {
			Config: "a {\nrespond /api/* 403\nreverse_proxy /api/v1/* h:1\nreverse_proxy h:1\n}",
			Want:   []string{"- {regex: '(?i)^/api/', deny: {}}"}, Not: []string{"/api/v1/:"},
		},
		"loopback alone": {
			Config: "a {\nbind 127.0.0.1\nreverse_proxy h:1\n}\nb {\nreverse_proxy h:2\n}",
			Want:   []string{remove + "/etc/caddy/Caddyfile:1: Caddy served this block on loopback"}, Left: "served on all addresses",
		},
		"a port of its own": {
			Config: "a {\nreverse_proxy h:1\n}\n:9000 {\nreverse_proxy admin:1\n}",
			Want:   []string{remove + "/etc/caddy/Caddyfile:4: Caddy served this on port 9000 alone"}, Left: "a process of its own",
		},
		"the same host on two ports": {
			Config: "a:8443 {\nreverse_proxy h:1\n}\na:9443 {\nreverse_proxy admin:1\n}",
			Not:    []string{"admin:1"}, Left: "another block has the same hosts",
		},
		"certificates of some clients": {
			Config: "a {\ntls {\nclient_auth {\nmode require_and_verify\ntrust_pool file ca.pem\n}\n}\nreverse_proxy h:1\n}\nb {\nreverse_proxy h:2\n}",
			Want:   []string{remove + "/etc/caddy/Caddyfile:3: Caddy asked clients for a certificate"}, Not: []string{"client_ca"}, Left: "of all sites",
		},
		"an upstream that is not known": {
			Config: "a {\nhandle /x/* {\nreverse_proxy {args}\n}\nreverse_proxy h:2\n}",
			Want:   []string{"{status: 501, text: 'not carried over'}"}, Left: "no variables",
		},
		"PHP without files": {
			Config: "a {\nroot * /r\nphp_fastcgi unix//p\n}",
			Want:   []string{remove}, Left: "there is no file_server",
		},
		"two ways to sign in": {
			Config: "a {\nbasic_auth {\n bob $2a$04$mXlvbnpJ7V7hGcXWxcAu1.xPdHMxZ/9o4DpFs2LZJM9nqUVXYCrBe\n}\nforward_auth h:9 {\nuri /v\n}\nreverse_proxy h:1\n}",
			Want:   []string{remove + "/etc/caddy/Caddyfile:5: forward_auth h:9\n      - {deny: {}}"}, Left: "a route has one auth",
		},
		"a password of its own for some paths": {
			Config: "a {\nbasic_auth {\n bob $2a$04$mXlvbnpJ7V7hGcXWxcAu1.xPdHMxZ/9o4DpFs2LZJM9nqUVXYCrBe\n}\nbasic_auth /x/* {\n al $2a$04$mXlvbnpJ7V7hGcXWxcAu1.xPdHMxZ/9o4DpFs2LZJM9nqUVXYCrBe\n}\nreverse_proxy h:1\n}",
			Want:   []string{remove + "/etc/caddy/Caddyfile:2: basic_auth"}, Left: "a route has one auth",
		},
		"methods that are excluded behind others": {
			Config: "a {\n@a not method GET POST\nreverse_proxy @a h:2\nroute {\n@b not method GET\nrespond @b 403\nreverse_proxy h:1\n}\n}",
			Want:   []string{"method: ['!GET']"},
		},
		"clients without a field": {
			Config: "a {\n@no not header Authorization *\nrespond @no 401\nreverse_proxy h:1\n}",
			Want:   []string{"- {header: {Authorization: ''}, respond: {status: 401}}", "proxy:"},
		},
		"two that must not hold together": {
			Config: "a {\n@n {\nnot {\npath /login\nremote_ip 10.0.0.0/8\n}\n}\nrespond @n 403\nreverse_proxy h:1\n}",
			Want:   []string{"{except: ['~(?i)^/login$'], deny: {}}", "{address: ['!10.0.0.0/8'], deny: {}}"}, Not: []string{remove},
		},
		"paths of one length": {
			Config: "http://a {\nhandle /x.jpg {\nreverse_proxy h:1\n}\nhandle /*.jpg {\nrespond 404\n}\n}",
			Want:   []string{"rules:\n      # /etc/caddy/Caddyfile:6: respond 404\n      - {regex: '(?i)^/[^/]*\\.jpg$', deny: {status: 404}}\n    routes:"},
		},
		"a prefix that is taken away without its slash": {
			Config: "http://a {\nhandle_path /app* {\nreverse_proxy h:1\n}\nroute /b* {\nuri strip_prefix /b\nreverse_proxy h:2\n}\nroute /ws {\nuri strip_prefix /ws\nreverse_proxy h:3\n}\nreverse_proxy h:4\n}",
			Want:   []string{"strip_prefix: /app/", "strip_prefix: /b/", "{regex: '(?i)^/app[^/]', deny: {status: 404}}", "{regex: '(?i)^/b[^/]', deny: {status: 404}}", "/ws:", "- {path: '.*', to: /}"},
			Not:    []string{remove, "501"},
		},
		"HTTPS alone, without redirects": {
			Config: "{\nauto_https disable_redirects\n}\nhttp://b {\nreverse_proxy h:2\n}\na {\nreverse_proxy h:1\n}",
			Want:   []string{"- hosts: [a]\n    rules:\n      # Caddy serves it over HTTPS alone\n      - {protocol: http, deny: {status: 404}}"},
		},
		"a password over plain HTTP": {
			Config: "http://a {\nbasic_auth {\nbob $2a$04$mXlvbnpJ7V7hGcXWxcAu1.xPdHMxZ/9o4DpFs2LZJM9nqUVXYCrBe\n}\nreverse_proxy h:1\n}\na {\nreverse_proxy h:2\n}",
			Want:   []string{"{protocol: http, route: '@plain'}", "auth: {passwords"},
		},
	})
}
