package apache

import (
	"strings"
	"testing"

	"millrace/importer/importertest"
)

const remove = "# REMOVE THIS RULE when you have looked at: "

// TestNobodyGetsIn: what Apache kept clients out of stays closed, or is closed by
// the same, and the report says so.
func TestNobodyGetsIn(t *testing.T) {
	const host = "<VirtualHost *:80>\nServerName a.example\nDocumentRoot /r\n"
	tested().Closed(t, map[string]importertest.Case{
		"everybody":                           {Config: "Require all denied", Want: []string{"/: {deny: {}}"}},
		"the old way":                         {Config: "Order allow,deny\nDeny from all", Want: []string{"/: {deny: {}}"}},
		"nobody is allowed":                   {Config: "Order allow,deny", Want: []string{"/: {deny: {}}"}},
		"both words":                          {Config: "Order allow,deny\nAllow from all\nDeny from all", Want: []string{"/: {deny: {}}"}},
		"addresses":                           {Config: "Require ip 10.0.0.0/8 192.168", Want: []string{"access: {allow: ['10.0.0.0/8', '192.168.0.0/16']}"}},
		"all but some":                        {Config: "Order allow,deny\nAllow from all\nDeny from 203.0.113.7", Want: []string{"access: {deny: ['203.0.113.7']}"}},
		"denied but for some":                 {Config: "Order deny,allow\nDeny from 10.\nAllow from 10.1.2.3", Want: []string{remove + "/etc/apache2/apache2.conf:1: Order deny,allow"}, Left: "what is denied goes before what is allowed"},
		"a name of a host":                    {Config: "Require host example.org", Want: []string{remove}, Left: "addresses are looked at, not names"},
		"a name that is denied":               {Config: "Order allow,deny\nAllow from all\nDeny from evil.example", Want: []string{remove}, Left: "addresses are looked at, not names"},
		"a user of many":                      {Config: "AuthType Basic\nAuthUserFile /p\nRequire user alice", Want: []string{remove}, Left: "a file of passwords lets in all of its users"},
		"a group":                             {Config: "AuthType Basic\nAuthUserFile /p\nAuthGroupFile /g\nRequire group staff", Want: []string{remove}, Left: "a file of passwords lets in all of its users"},
		"another way to sign in":              {Config: "AuthType openid-connect\nRequire valid-user", Want: []string{remove}, Left: "clients sign in by auth"},
		"passwords elsewhere":                 {Config: "AuthType Basic\nAuthBasicProvider ldap\nAuthUserFile /p\nRequire valid-user", Want: []string{remove}, Left: "passwords are in a file"},
		"no file of passwords":                {Config: "AuthType Basic\nRequire valid-user", Want: []string{remove}, Left: "name a file of passwords"},
		"an expression":                       {Config: "Require expr %{HTTP_USER_AGENT} == 'x'", Want: []string{remove}, Left: "write the condition as a rule"},
		"address and password":                {Config: "AuthType Basic\nAuthUserFile /p\n<RequireAll>\nRequire valid-user\nRequire ip 10.1.2.3\n</RequireAll>", Want: []string{"access: {allow: ['10.1.2.3']}", "auth: {file: /p}"}},
		"address or password":                 {Config: "AuthType Basic\nAuthUserFile /p\nRequire valid-user\nRequire ip 10.1.2.3", Want: []string{"auth: {file: /p, except: ['10.1.2.3']}"}, Not: []string{"access:"}},
		"satisfy any":                         {Config: "AuthType Basic\nAuthUserFile /p\nRequire valid-user\nOrder deny,allow\nDeny from all\nAllow from 10.1.2.3\nSatisfy any", Want: []string{"auth: {file: /p, except: ['10.1.2.3']}"}, Not: []string{"access:"}},
		"satisfy any without a list":          {Config: "AuthType Basic\nAuthUserFile /p\nRequire valid-user\nSatisfy any", Want: []string{"auth: {file: /p}"}},
		"satisfy all":                         {Config: "AuthType Basic\nAuthUserFile /p\nRequire valid-user\nOrder deny,allow\nDeny from all\nAllow from 10.1.2.3", Want: []string{"access: {allow: ['10.1.2.3']}", "auth: {file: /p}"}},
		"not a network":                       {Config: "<RequireAll>\nRequire all granted\nRequire not ip 10.1\n</RequireAll>", Want: []string{"access: {deny: ['10.1.0.0/16']}"}},
		"not a host":                          {Config: "<RequireAll>\nRequire all granted\nRequire not host x\n</RequireAll>", Want: []string{remove}},
		"none of":                             {Config: "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire ip 10.1\n</RequireNone>\n</RequireAll>", Want: []string{"access: {deny: ['10.1.0.0/16']}"}},
		"a variable":                          {Config: "SetEnvIfNoCase User-Agent bot bad\nOrder allow,deny\nAllow from all\nDeny from env=bad", Want: []string{"- {header: {User-Agent: '~(?i)bot'}, deny: {}}"}},
		"a variable of nobody":                {Config: "Order allow,deny\nAllow from all\nDeny from env=bad", Want: []string{remove}, Left: "is set in a way that is not known"},
		"a variable lets in":                  {Config: "SetEnvIf X-Key s3 in\nOrder deny,allow\nDeny from all\nAllow from env=in", Want: []string{"/: {deny: {}}"}, Left: "variables let nobody in"},
		"an Apache that is started otherwise": {Config: "<IfDefine STAGING>\n<Location /x>\nRequire all denied\n</Location>\n</IfDefine>\n" + host + "</VirtualHost>", Left: "-D STAGING, and keeps clients out there"},
		"an old order":                        {Config: "Order mutual-failure\nAllow from 10.0.0.0/8", Want: []string{"access: {allow: ['10.0.0.0/8']}"}},
		"an order that is none":               {Config: "Order never\nAllow from 10.0.0.0/8", Want: []string{remove}, Left: "Apache knows no such order"},
		"methods that let in":                 {Config: "Require ip 10.1.2.3\n<Limit GET>\nRequire all granted\n</Limit>", Want: []string{remove}, Left: "for some methods alone would be for all"},
		"methods, everybody":                  {Config: "Require all granted\n<Limit GET POST>\nOrder allow,deny\nAllow from all\n</Limit>", Not: []string{remove, "deny"}},
		"what is let through before a front controller": {
			Config: host + "<Directory /r>\nRewriteEngine on\nRewriteRule ^\\.well-known/ - [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]\n</Directory>\n</VirtualHost>",
			Want:   []string{"- {regex: '^/\\.well-known/', route: '@files'}", "'@files':\n        static: {root: /r}\n", "php: /run/php/php-fpm.sock"},
		},
		"parameters that are fields of requests": {
			Config: host + "SetEnv HTTP_MOD_REWRITE On\nSetEnv APP_ENV prod\nFallbackResource /index.php\n</VirtualHost>",
			Want:   []string{"params: {APP_ENV: prod}"}, Not: []string{"501"}, Left: "SetEnv HTTP_MOD_REWRITE On",
		},
		"proxies with host bits": {
			Config: "RemoteIPHeader X-Forwarded-For\nRemoteIPInternalProxy 10.0.0.1/8\n" + host + "</VirtualHost>",
			Want:   []string{"trusted_proxies: ['10.0.0.0/8']"},
		},
		"folders that Order closes, with files that Require opens": {
			Config: host + "<Directory /r>\nRequire ip 10.1.2.3\n</Directory>\n<DirectoryMatch /c/>\nOrder allow,deny\nDeny from all\n</DirectoryMatch>\n<FilesMatch \\.txt$>\nRequire all granted\n</FilesMatch>\n</VirtualHost>",
			Want:   []string{"- {regex: /c/, deny: {}}\n      # /etc/apache2/apache2.conf:11: <FilesMatch \\.txt$>\n"},
		},
		"a path that is gone, beside a proxy for what is below": {
			Config: host + "Redirect 410 /ab/a\nProxyPass /ab/a/ http://h:1/\n</VirtualHost>",
			Want:   []string{"- {path: /ab/a, deny: {status: 410}}", "/ab/a/:"},
		},
		"a path beside a section and a proxy for what is below": {
			Config: host + "<Directory /r>\nAuthType Basic\nAuthUserFile /p\nRequire valid-user\n</Directory>\n<Location /a/>\nRequire all granted\n</Location>\nProxyPass /a/ http://h:1/\n</VirtualHost>",
			Want:   []string{"- {path: /a, redirect: {to: /a/, status: 301}}"},
		},
		"folders put together": {
			Config: host + "<Directory /r>\nAuthType Basic\nAuthUserFile /p\nRequire valid-user\n</Directory>\n<Directory /r/a>\nAuthMerging And\nRequire ip 10.1\n</Directory>\n</VirtualHost>",
			Want:   []string{remove + "/etc/apache2/apache2.conf:10: AuthMerging And"}, Left: "is not put together",
		},
		"a condition on requests":                  {Config: host + "<Directory /r>\n<If \"%{HTTP_HOST} == 'x'\">\nRequire all denied\n</If>\n</Directory>\n</VirtualHost>", Want: []string{remove}, Left: "write the condition as a rule"},
		"a condition on requests here":             {Config: "<If \"true\">\nRequire ip 10.1\n</If>", Want: []string{remove}, Left: "write the condition as a rule"},
		"a condition that is about something else": {Config: "<If \"true\">\nHeader set A b\n</If>", Not: []string{remove}, Left: "<If"},
		"what is passed on":                        {Config: host + "ProxyPass / http://h:1/\n<Proxy *>\nRequire ip 10.1\n</Proxy>\n</VirtualHost>", Want: []string{remove}, Left: "of the routes that pass requests on"},
		"what is passed on, for all":               {Config: host + "ProxyPass / http://h:1/\n<Proxy *>\nOrder deny,allow\nAllow from all\n</Proxy>\n</VirtualHost>", Not: []string{remove}},
		"a certificate for a path":                 {Config: host + "<Location /v>\nSSLVerifyClient require\n</Location>\n</VirtualHost>", Want: []string{remove}, Left: "not by some paths"},
		"a condition on TLS":                       {Config: host + "<Location /v>\nSSLRequire %{SSL_CIPHER_USEKEYSIZE} >= 128\n</Location>\n</VirtualHost>", Want: []string{remove}, Left: "SSLRequire"},
		"TLS alone":                                {Config: host + "<Location /v>\nSSLRequireSSL\n</Location>\n</VirtualHost>", Want: []string{remove}, Left: "protocol: http"},
		"files of another name":                    {Config: "AccessFileName .acl .htaccess\n" + host + "</VirtualHost>", Want: []string{remove}, Left: "only files called .htaccess are read"},
		"methods":                                  {Config: "<LimitExcept GET POST>\nRequire all denied\n</LimitExcept>", Want: []string{"- {method: ['!GET', '!POST', '!HEAD'], deny: {}}"}},
		"methods for some":                         {Config: "AuthType Basic\nAuthUserFile /p\n<Limit PUT DELETE>\nRequire valid-user\n</Limit>", Want: []string{"- {method: [PUT, DELETE], deny: {}}"}},
		"GET alone":                                {Config: "AuthType Basic\nAuthUserFile /p\n<Limit GET>\nRequire valid-user\n</Limit>", Want: []string{"auth: {file: /p}"}},
		"scripts with more behind":                 {Config: "SetHandler application/x-httpd-php\n<Files admin.php>\nRequire all denied\n</Files>", Want: []string{`- {regex: '/admin\.php(?:/|$)', deny: {}}`}},
		"a name within a name":                     {Config: "<FilesMatch \"^secret\">\nRequire all denied\n</FilesMatch>", Want: []string{"- {regex: '/secret[^/]*$', deny: {}}"}},
		"looking ahead":                            {Config: "<FilesMatch \"^(?!index$)\">\nRequire all denied\n</FilesMatch>", Want: []string{remove}, Left: "looks ahead"},
		"alternatives with anchors":                {Config: "RewriteEngine on\nRewriteRule ^a|b - [F]", Want: []string{"regex: '^/a|b'"}},
		"a slash in the middle":                    {Config: "RewriteEngine on\nRewriteRule \"/\\.|^\\.x\" - [F]", Want: []string{`regex: '^/.*?(?:/\.)|^/\.x'`}},
		"forbidden, not carried over": {
			Config: "RewriteEngine on\nRewriteCond %{TIME_HOUR} >12\nRewriteRule ^late/ - [F]",
			Want:   []string{remove + "/etc/apache2/apache2.conf:3: RewriteRule ^late/ - [F]\n      - {regex: '^/late/', deny: {}}"}, Left: "answers 403 until then",
		},
		"forbidden, and everything": {
			Config: "RewriteEngine on\nRewriteCond %{TIME_HOUR} >12\nRewriteRule .* - [F]",
			Want:   []string{remove + "/etc/apache2/apache2.conf:3: RewriteRule .* - [F]\n      - {deny: {}}"},
		},
		"led away without a cookie": {
			Config: "RewriteEngine on\nRewriteCond %{HTTP_COOKIE} !session=.{10,}\nRewriteRule ^members/ /login [R,L]",
			Want:   []string{"header: {Cookie: '!~session=.{10,}'}", "redirect: {to: /login, status: 302}"},
		},
		"led away by what is not known": {
			Config: "RewriteEngine on\nRewriteCond %{LA-U:REMOTE_USER} ^$\nRewriteRule ^members/ /login [R,L]",
			Want:   []string{"- {regex: '^/members/', deny: {}}"}, Left: "there is no condition on %{LA-U:REMOTE_USER}",
		},
		"a chain":                {Config: "RewriteEngine on\nRewriteRule ^a - [C]\nRewriteRule ^b - [F]", Left: "not skipped, chained or repeated", Want: []string{"{regex: '^/b', deny: {}}"}},
		"a rewrite to a secret":  {Config: "RewriteEngine on\nRewriteRule ^x/(.*) $1 [L]\n<Files a.sql>\nRequire all denied\n</Files>", Want: []string{"the same, for the paths that rewrites have made"}},
		"an engine that is off":  {Config: "RewriteEngine off\nRewriteRule ^ - [F]", Not: []string{"deny"}},
		"folders by expressions": {Config: host + "<DirectoryMatch \"^/r/(a|b)/\">\nRequire all denied\n</DirectoryMatch>\n</VirtualHost>", Want: []string{"- {regex: '^/(a|b)/', deny: {}}"}},
		"a rule that passes on, under its conditions": {
			Config: host + "RewriteEngine on\nRewriteCond %{HTTP:X-App} ^two$\nRewriteRule ^/x/(.*)$ http://h:1/y/$1 [P,L]\n</VirtualHost>",
			Want:   []string{"- {regex: '^/x/(.*)$', header: {X-App: two}, route: '@app'}", "'@app':\n        proxy:\n          to: http://h:1\n          rewrite:\n            - {path: '/x/(.*)', to: '/y/{1}'}"},
		},
		"a rule that passes on what is no file": {
			Config: host + "RewriteEngine on\nRewriteCond %{DOCUMENT_ROOT}/%{REQUEST_FILENAME} !-f\nRewriteRule ^/(.*)$ http://h:1%{REQUEST_URI} [P,L]\n</VirtualHost>",
			Want:   []string{"try: ['{path}', '@app']", "'@app':\n        proxy:\n          to: http://h:1\n"},
		},
		"a rule that passes on, beside a password": {
			Config: host + "RewriteEngine on\nRewriteCond %{HTTP:X-App} ^two$\nRewriteRule ^/x/(.*)$ http://h:1/y/$1 [P,L]\n<Location /x/y>\nRequire ip 10.0.0.1\n</Location>\n</VirtualHost>",
			Want:   []string{remove, "- {regex: '^/x/(.*)$', deny: {}}"},
			Left:   "sections that keep clients out hold for what it passes on, too",
		},
		"an expression that opens, a path that Order closes": {
			Config: "<Directory />\nRequire not ip 127.0.0.1\nRequire all granted\n</Directory>\n" + host + "<Directory /r>\n<RequireAll>\nRequire not ip 127.0.0.1\nRequire all granted\n</RequireAll>\n</Directory>\n<LocationMatch b>\nRequire all granted\n</LocationMatch>\n<Location /ab>\nOrder deny,allow\nDeny from 127.0.0.1\n</Location>\n</VirtualHost>",
			Want:   []string{"- {regex: b, except: [/ab/], route: '@b'}"},
		},
		"an alias before another": {
			Config: host + "Alias /a /s/a\nAlias /a/b /s/b\n</VirtualHost>",
			Want:   []string{"/a/:\n        static: {root: /s/a}"},
			Not:    []string{"/s/b"},
		},
		"folders by expressions, with a dot": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r/a.example\n<DirectoryMatch \"^/r/a.example/up/\">\n<FilesMatch \"\\.php$\">\nRequire all denied\n</FilesMatch>\n</DirectoryMatch>\n</VirtualHost>",
			Want:   []string{"- {regex: '\\.php(?:/|$)', within: ['~^/up/'], deny: {}}"},
		},
		"folders by expressions, of an alias": {
			Config: host + "Alias /cloud /s/cloud\n<DirectoryMatch \"^/s/cloud/(data|config)/\">\nRequire all denied\n</DirectoryMatch>\n</VirtualHost>",
			Want:   []string{"- {regex: '^/cloud/(data|config)/', deny: {}}"},
		},
		"files of folders by expressions, for some": {
			Config: host + "<DirectoryMatch \"^/r/up/\">\n<FilesMatch x>\nRequire ip 10.0.0.1\n</FilesMatch>\n</DirectoryMatch>\n</VirtualHost>",
			Want:   []string{remove},
		},
		"folders elsewhere": {Config: host + "<DirectoryMatch \"^/x/(a|b)/\">\nRequire all denied\n</DirectoryMatch>\n</VirtualHost>", Want: []string{remove}},
		"folders by expressions, below an alias": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r\nAlias /docs /s/b\nAlias /img /s/c\n<DirectoryMatch \"/b/a\">\nRequire all denied\n</DirectoryMatch>\n</VirtualHost>",
			Want:   []string{"- {regex: /b/a, deny: {}}", "- {path: /docs/, deny: {}}"},
			Not:    []string{"path: /img/"},
			Left:   "may be among those",
		},
		"a root that is closed": {Config: "<Directory />\nRequire all denied\n</Directory>\n" + host + "</VirtualHost>", Want: []string{"/: {deny: {}}"}},
		"a folder that is open": {Config: "<Directory />\nRequire all denied\n</Directory>\n" + host + "<Directory /r/open>\nRequire all granted\n</Directory>\n</VirtualHost>", Want: []string{"/: {deny: {}}", "/open/:\n        static: {root: /r/open}"}},
		"a path behind a proxy": {Config: host + "ProxyPass / http://h:1/\n<Location /admin>\nRequire ip 10.1.2.3\n</Location>\n</VirtualHost>", Want: []string{"/admin/:\n        proxy:\n          to: http://h:1\n          redirects: keep\n        access: {allow: ['10.1.2.3']}"}},
		"files behind a proxy": {
			Config: host + "ProxyPass /c/ http://h:1/\n<LocationMatch \"^/c/z\">\nRequire ip 10.1.2.3\n</LocationMatch>\n</VirtualHost>",
			Want:   []string{"'@z':\n        proxy:\n          to: http://h:1\n          rewrite:\n            - {path: '/c/(.*)', to: '/{1}'}\n          redirects: keep"},
		},
		"a path by expression behind a proxy": {
			Config: host + "ProxyPass / http://h:1/\n<LocationMatch \"^/(admin|root)\">\nRequire all denied\n</LocationMatch>\n</VirtualHost>",
			Want:   []string{"- {regex: '^/(admin|root)', deny: {}}"},
		},
		"local": {
			Config: "<VirtualHost 127.0.0.1:8081>\nServerName b.example\nDocumentRoot /r\n</VirtualHost>\n<VirtualHost *:80>\nServerName a.example\nDocumentRoot /r\n</VirtualHost>",
			Want:   []string{"- hosts: [b.example]\n    rules:\n      " + remove}, Left: "served on all addresses",
		},
		"an alias into the site's folder": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r\nAlias /docs /r/private/docs\n<Directory /r/private/docs>\nRequire all denied\n</Directory>\n</VirtualHost>",
			Want:   []string{"/docs/: {deny: {}}", "/private/docs/: {deny: {}}"},
		},
		"files of a folder with two paths": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r\nAlias /docs /r/private\n<Directory /r/private>\n<Files *.sql>\nRequire all denied\n</Files>\n</Directory>\n</VirtualHost>",
			Want:   []string{"'^/docs(?:/.*)?/[^/]*\\.sql$', deny: {}}", "'^/private(?:/.*)?/[^/]*\\.sql$', deny: {}}"},
		},
		"a path's expression below an alias": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r\n<Directory /r>\nRequire ip 10.0.0.1\n</Directory>\nAlias /docs /s\n<LocationMatch /c/>\nAuthType Basic\nAuthUserFile /p\nRequire valid-user\n</LocationMatch>\n</VirtualHost>",
			Want:   []string{"within: [/docs/], route: "},
		},
		"the index of a folder": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r\n<Files index.html>\nRequire all denied\n</Files>\n</VirtualHost>",
			Want:   []string{"- {regex: '^/(?:.*/)?$', deny: {}}"},
		},
		"a path stands over names of files": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r\n<Location /a>\nRequire all denied\n</Location>\n<Files x.jpg>\nRequire all granted\n</Files>\n</VirtualHost>",
			Want:   []string{"/a/: {deny: {}}"},
			Not:    []string{"route: '@"},
		},
		"sources of programs": {
			Config: "<VirtualHost *:80>\nServerName a\nDocumentRoot /r\nScriptAlias /cgi-bin/ /r/programs/\nAddHandler cgi-script .cgi .pl\n</VirtualHost>",
			Want:   []string{"{path: /cgi-bin/, respond: {status: 501", "{path: /programs/, respond: {status: 501", "'(?i)\\.(?:cgi|pl)(?:/|\\.|$)', respond: {status: 501"},
			Left:   "answer 501",
		},
		"certificates of some": {
			Config: "<VirtualHost *:443>\nServerName a.example\nSSLEngine on\nSSLVerifyClient require\nSSLCACertificateFile /ca\nDocumentRoot /r\n</VirtualHost>\n<VirtualHost *:443>\nServerName b.example\nSSLEngine on\nDocumentRoot /r\n</VirtualHost>",
			Want:   []string{remove + "/etc/apache2/apache2.conf:4: Apache asked clients for a certificate"}, Left: "of all sites",
		},
	})
}

// TestLines: what single lines become.
func TestLines(t *testing.T) {
	const on = "RewriteEngine on\n"
	for text, want := range map[string]string{
		on + "RewriteCond %{HTTPS} off\nRewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [L,R=301]":                                "- {protocol: http, redirect: {to: 'https://{host}{path}', status: 301}}",
		on + "RewriteCond %{HTTPS} !=on [OR]\nRewriteCond %{HTTP_HOST} ^www\\.\nRewriteRule ^(.*)$ https://a.example/$1 [L,R=301]": "- {host: [www.a.example], redirect: {to: 'https://a.example{path}', status: 301}}",
		on + "RewriteCond %{HTTP_HOST} ^www\\.(.+)$ [NC]\nRewriteRule ^(.*)$ https://%1/$1 [R=301,L]":                              "- {host: [www.a.example], redirect: {to: 'https://a.example{path}', status: 301}}",
		on + "RewriteCond %{SERVER_PORT} ^80$\nRewriteRule ^(.*)$ https://a.example/$1 [R,L]":                                      "- {protocol: http, redirect: {to: 'https://a.example{path}', status: 302}}",
		on + "RewriteCond %{HTTP:X-Forwarded-Proto} !https\nRewriteRule .* https://%{HTTP_HOST}%{REQUEST_URI} [R=301]":             "header: {X-Forwarded-Proto: '!~https'}",
		on + "RewriteRule ^a/(\\d+)$ /b.php?id=$1 [QSA,L]":                                                                         "rewrite: '/b.php?id={1}&{query}'",
		on + "RewriteRule ^a$ /b [NC]":                                                                                                       "- {regex: '(?i)^/a$', rewrite: /b}",
		on + "RewriteRule ^a$ /b? [R=301]":                                                                                                   "redirect: {to: '/b?', status: 301}",
		on + "RewriteRule !^(css|js)/ /index.php":                                                                                            "- {except: ['~^/(css|js)/'], rewrite: /index.php}",
		on + "RewriteCond %{REQUEST_URI} !^/static/\nRewriteRule ^(.*)$ /app.php?p=$1 [L]":                                                   "- {except: ['~^/static/'], rewrite: '/app.php?p={rest}'}",
		on + "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php":                                                                  "php: /run/php/php-fpm.sock",
		on + "RewriteCond %{REQUEST_FILENAME}.html -f\nRewriteRule ^(.*)$ $1.html":                                                           "clean_urls: true",
		on + "RewriteRule ^api/(.*)$ http://127.0.0.1:3000/$1 [P,L]":                                                                         "/api/:\n        proxy:\n          to: http://127.0.0.1:3000\n          strip_prefix: /api/",
		on + "RewriteCond %{QUERY_STRING} (^|&)p=(\\d+)($|&)\nRewriteRule ^$ /post/%2? [R=301]":                                              "query: {p: '~^(\\d+)$'}, redirect: {to: '/post/{query.p}?', status: 301}",
		on + "RewriteCond %{REQUEST_METHOD} !^(GET|HEAD)$\nRewriteRule ^ - [F]":                                                              "- {method: ['!GET', '!HEAD'], deny: {}}",
		on + "RewriteCond %{REMOTE_ADDR} !^10\\.1\\.\nRewriteRule ^admin/ - [F]":                                                             "address: ['!10.1.0.0/16']",
		on + "RewriteCond %{REMOTE_ADDR} !^192\\.0\\.2\\.7$\nRewriteCond %{REQUEST_URI} !^/down\\.html$\nRewriteRule ^ /down.html [R=302,L]": "address: ['!192.0.2.7']",
		on + "RewriteCond %{HTTP_USER_AGENT} a [NC,OR]\nRewriteCond %{HTTP_USER_AGENT} b [NC]\nRewriteRule ^ - [F]":                          "- {header: {User-Agent: '~(?i)a|b'}, deny: {}}",
		on + "RewriteCond %{THE_REQUEST} \\s/index\\.php[\\s?]\nRewriteRule ^index\\.php$ / [R=301,L]":                                       "- {path: /index.php, redirect: {to: /, status: 301}}",
		"Redirect 301 /a https://b.example/c":                                                                                                "- {regex: '^/a(/.*)?$', redirect: {to: 'https://b.example/c{1}', status: 301}}",
		"RedirectPermanent /a.html /b.html":                                                                                                  "- {path: /a.html, redirect: {to: /b.html, status: 301}}",
		"RedirectMatch 301 \\.asp$ /":                                                                                                        "- {regex: '\\.asp$', redirect: {to: /, status: 301}}",
		"Redirect 410 /gone":                                                                                                                 "- {path: /gone/, deny: {status: 410}}",
		"DirectoryIndex start.html":                                                                                                          "index: start.html",
		"Options +Indexes":                                                                                                                   "listing: true",
		"AddType text/cache-manifest .appcache":                                                                                              "types: {'.appcache': text/cache-manifest}",
		"ErrorDocument 500 /oops.html":                                                                                                       "errors: {'500': /oops.html}",
		"Header always set X-A \"b {c}\"":                                                                                                    "set: {X-A: 'b {{c}'}",
		"Header append Vary Cookie":                                                                                                          "add: {Vary: Cookie}",
		"ExpiresActive on\nExpiresDefault \"access plus 1 year 2 days\"":                                                                     "value: max-age=31708800",
		"<FilesMatch \"\\.(css|js)$\">\nHeader set Cache-Control \"max-age=5\"\n</FilesMatch>":                                               "{match: '*.css', value: max-age=5}",
		"LimitRequestBody 1000\nSetHandler application/x-httpd-php":                                                                          "body_bytes: 1000B",
		"FallbackResource /app.php":                                                                                                          "front: app.php",
		"SetEnv APP_ENV prod\nFallbackResource /index.php":                                                                                   "params: {APP_ENV: prod}",
	} {
		node, report, err := tested().Translate(text)
		if err != nil {
			t.Fatal(err)
		}
		got := node.String()
		if !strings.Contains(got, want) {
			t.Errorf("%s\nbecomes\n%s\nwithout %q\n%s", text, got, want, strings.Join(report.UntranslatedLines(), "\n"))
		}
		for _, fault := range tested().Faults(got) {
			t.Errorf("%s\nbecomes\n%s\n%s", text, got, fault)
		}
	}
}

// TestErrorPages: pages take the place of an application's own where Apache looks at its
// answers, and nowhere else.
func TestErrorPages(t *testing.T) {
	const host, proxy, php = "<VirtualHost *:80>\nServerName a.example\nDocumentRoot /r\nErrorDocument 404 /e.html\nErrorDocument 500 /e.html\n", "ProxyPass / http://h:1/\n", "<FilesMatch \\.php$>\nSetHandler \"proxy:unix:/p.sock|fcgi://localhost\"\n</FilesMatch>\n"
	on := []string{"errors: {'404': /e.html, '500': /e.html}", "intercept_errors: true"}
	tested().Closed(t, map[string]importertest.Case{
		"a proxy":            {Config: host + proxy + "</VirtualHost>", Want: on[:1], Not: on[1:]},
		"a proxy, on":        {Config: host + proxy + "ProxyErrorOverride On\n</VirtualHost>", Want: on},
		"a proxy, off again": {Config: "ProxyErrorOverride On\n" + host + proxy + "ProxyErrorOverride Off\n</VirtualHost>", Want: on[:1], Not: on[1:]},
		"some statuses":      {Config: host + proxy + "ProxyErrorOverride On 404\n</VirtualHost>", Want: on, Left: "name only those in errors"},
		"PHP":                {Config: host + php + "</VirtualHost>", Want: on[:1], Not: on[1:]},
		"PHP, on":            {Config: host + php + "ProxyErrorOverride On\n</VirtualHost>", Want: on},
	})
}
