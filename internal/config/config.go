// Package config reads what the operator wrote: one YAML file, strictly. All
// that is wrong with it is reported at once, each finding with its file, line
// and column, the line itself, and what to write instead (see [Findings]).
//
// The options of a job are the job's own type: the decoder walks their fields
// by the yaml tag, so a key added there can be used, is documented
// (docs/config.md) and is in the schema (docs/millrace.schema.json) without a
// line here.
package config

import (
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"millrace/cache"
	"millrace/images"
	"millrace/internal/access/admit"
	"millrace/internal/access/signin"
	"millrace/internal/bytesize"
	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/trace"
	"millrace/internal/ops/admin"
	"millrace/internal/ops/slow"
	"millrace/internal/plugin"
	"millrace/internal/process/confine"
	"millrace/internal/route/headers"
	"millrace/internal/route/match"
	"millrace/internal/server"
	"millrace/internal/server/guard"
	"millrace/internal/upstream/spool"
	"millrace/php"
	"millrace/proxy"
	"millrace/static"
	"millrace/static/packfile"
	"millrace/websocket"
	"millrace/websocket/channels"
)

// FileName is the config that `millrace serve` and `millrace check` look for
// in the current folder, and that `millrace init` writes.
const FileName = "millrace.yaml"

// Off switches something off that takes an address or a format.
const Off = "off"

// DefaultListen is where sites are served when nothing else is said: reachable
// from this machine alone, by any user.
const DefaultListen = "127.0.0.1:8080"

// Config is all that one process does. Relative paths in a file are relative
// to the file's folder. In every value, ${NAME} stands for an environment
// variable, ${NAME:-default} for one that may be missing or empty, and $$ for
// a dollar sign; what a variable holds is never read as YAML. In regular expressions,
// and in the values of a rule's conditions and the hashes of passwords, a dollar sign is itself.
type Config struct {
	// Listen are the addresses for plain HTTP: host:port, :port for every
	// interface, or unix:/path. One, or a list; [] for none. :80 is IPv4 and IPv6,
	// 0.0.0.0:80 is IPv4 alone, [::]:80 is IPv6 alone. Default 127.0.0.1:8080.
	Listen []string `yaml:"listen"`
	// TLS are the addresses for HTTPS and their certificates.
	TLS server.TLSOptions `yaml:"tls"`
	// Log is the access log: one line per request. "log: json" and "log: off" stand for
	// its format alone.
	Log accesslog.Options `yaml:"log"`
	// Tracing continues traces (W3C Trace Context), passes them on to other servers,
	// and sends spans to a collector. What the fast lane answers is not traced.
	Tracing *trace.Options `yaml:"tracing"`
	// RequestID gives each request an id, in its answer, in the log and for other
	// servers: "on", or the name of the field. What the fast lane answers has one in
	// the log alone, and only that of a trusted proxy.
	RequestID *trace.IDOptions `yaml:"request_id"`
	// SlowRequests keeps requests that took far longer than their route's others, with
	// what they waited for: "millrace slow" and the dashboard show them. Default on, where
	// there is an admin listener; "off" for none.
	SlowRequests *slow.Options `yaml:"slow_requests"`
	// Admin is where metrics, health and profiles are. Never a public address.
	Admin admin.Options `yaml:"admin"`
	// Lane is the fast lane, which answers hot requests from finished bytes.
	Lane lane.Options `yaml:"lane"`
	// Limits protect the server from slow, large and many clients.
	Limits server.Options `yaml:"limits"`
	// ProxyProtocol is for load balancers that name the client in front of a
	// connection's first byte.
	ProxyProtocol server.ProxyProtocol `yaml:"proxy_protocol"`
	// Sandbox has the kernel allow this process no other files than those that the
	// config names (Landlock): "sandbox: auto". See docs/sandbox.md.
	Sandbox confine.Options `yaml:"sandbox"`
	// Buffers bound what is kept of the bodies that go through proxies: see
	// "buffer" there.
	Buffers spool.Options `yaml:"buffers"`
	// Sites say who is answered with what. At least one is required.
	Sites []Site `yaml:"sites"`
	// Maintenance says what is sent while all sites are closed.
	Maintenance guard.Maintenance `yaml:"maintenance"`
	// Tables map what a request says to texts, for redirects, rewrites and
	// conditions of rules: {table.NAME} is what the table NAME has.
	Tables map[string]match.TableOptions `yaml:"tables"`
	// Include are further files with sites, tables and snippets, as in
	// conf.d/*.yaml. A pattern that no file is like is fine. Relative paths in
	// them are relative to the folder of this file, as the names here are.
	Include []string `yaml:"include"`
	// Snippets are keys of routes and sites that "use: NAME" puts in, in this file
	// and those that it includes. Maps are put together; of all else the
	// route's or the site's own value counts.
	Snippets map[string]Snippet `yaml:"snippets"`

	doc     *document              // what it was read from; nil before it was checked
	program bool                   // it is of a program that has listeners and handlers of its own
	packed  func(root string) bool // knows folders that need not be on disk; nil for none
}

// Site is what some hosts serve.
type Site struct {
	// Hosts are the names of the site as clients ask for them, without port;
	// *.example.org stands for every name below example.org, and app.* for every
	// name that begins with app. and has no site of its own. Empty: every host that
	// no other site names.
	Hosts []string `yaml:"hosts"`
	// Routes map a path to exactly one job; images and php may stand beside static. A path that ends in "/" covers
	// everything below it, any other only itself. The longest match wins. In a
	// path with stars, one stands for characters of a segment and two for any,
	// as in /users/*/avatar; such a path goes before all that end in "/". A name
	// like @app is no path: rules, try and errors name it.
	Routes map[string]Route `yaml:"routes"`
	// Rules are what requests go through, in their order, before a route is
	// looked for: rewrites, redirects and answers for what their conditions name.
	Rules []guard.Rule `yaml:"rules"`
	// Auth lets in who knows a password, brings a token, or is known to another
	// server, on all routes that do not say otherwise.
	Auth *signin.Options `yaml:"auth"`
	// Access says which addresses may ask, on all routes that do not say otherwise.
	Access *admit.Access `yaml:"access"`
	// RateLimit limits how often a client may ask for anything of the site.
	RateLimit *admit.Rate `yaml:"rate_limit"`
	// Traps turn away for a while who asks for what only attackers do. "traps: on"
	// is enough.
	Traps *admit.Traps `yaml:"traps"`
	// Challenge asks what looks like a crawler for a proof, on all routes that do
	// not say otherwise.
	Challenge *admit.Challenge `yaml:"challenge"`
	// Plugins are WebAssembly modules that see the requests to all routes before the job
	// does, in their order, and the answers behind it. See docs/plugins.md.
	Plugins []plugin.Options `yaml:"plugins"`
	// Errors are pages for answers with a status of 400 or more, by the status
	// or its class: {404: /404.html, 5xx: /down.html}. Each is a path of the site or the
	// name of a route. The status stays as it is.
	Errors map[string]string `yaml:"errors"`
	// InterceptErrors has errors also take the place of what an application answers
	// (proxy, cache, php). Without it, an application's own pages are passed on, and
	// errors are for what the server answers itself: 502 for one that is down, 403, 429.
	InterceptErrors bool `yaml:"intercept_errors"`
	// Headers are rules for the header fields of answers, whatever answers. Values may have
	// variables: {client_ip}, {host}, {scheme}, {method}, {path}, {query}, {uri}
	// and {request_id}.
	Headers *headers.AnswerOptions `yaml:"headers"`
	// CORS says of which other origins scripts may read answers, and answers
	// their preflights. Origins alone are enough: "cors: https://app.example".
	CORS *headers.CORSOptions `yaml:"cors"`
	// Use puts in snippets, in their order; the site's own keys go on top.
	Use []string `yaml:"use"`
}

// Snippet is what "use" puts into a route, or into a site: there only keys that
// a site has.
type Snippet struct {
	Route `yaml:",inline"`
	// Rules are those of a site.
	Rules []guard.Rule `yaml:"rules"`
}

// Route is the one job that answers a path.
type Route struct {
	// Static serves files from a folder.
	Static *static.Options `yaml:"static"`
	// Images converts images to the format that suits the browser: those of
	// the folder that "static" names beside it ("images: on"), or those of
	// another host ("remote").
	Images *images.Options `yaml:"images"`
	// PHP runs the PHP files of the folder that "static" names beside it, by
	// php-fpm. Its socket alone is enough: "php: /run/php/php-fpm.sock".
	PHP *php.Options `yaml:"php"`
	// Cache puts a slow API behind memory. Its upstream alone is enough:
	// "cache: http://127.0.0.1:5000".
	Cache *cache.Options `yaml:"cache"`
	// Proxy passes requests on to another server and keeps nothing. Its
	// upstream alone is enough: "proxy: http://127.0.0.1:5000".
	Proxy *proxy.Options `yaml:"proxy"`
	// WebSocket carries WebSockets: "websocket: echo", "websocket: channels", or
	// the address of the server that they are passed on to, as in
	// "websocket: ws://127.0.0.1:9000".
	WebSocket *websocket.Options `yaml:"websocket"`
	// Redirect sends the client elsewhere.
	Redirect *guard.Redirect `yaml:"redirect"`
	// Deny turns every request away.
	Deny *guard.Deny `yaml:"deny"`
	// Respond answers with a status, a text or a file. A text alone is enough.
	Respond *guard.Respond `yaml:"respond"`

	// Handler is of the program that the server is part of, and Files are what
	// static serves there instead of a folder. No file can name them.
	Handler http.Handler `yaml:"-" json:"-"`
	Files   fs.FS        `yaml:"-" json:"-"`

	// Try are paths that are looked for in the folder of "static", in turn, as
	// in ["{path}", "{path}.html", /index.html]; the first that is there
	// answers, with status 200. The last one is not looked for: it is a path of the site, the
	// name of a route, or a status like =404.
	Try []string `yaml:"try"`
	// Auth says who is let in, instead of the site's auth; {off: true} for everybody.
	Auth *signin.Options `yaml:"auth"`
	// Access says which addresses may ask, instead of the site's access;
	// {off: true} for all.
	Access *admit.Access `yaml:"access"`
	// RateLimit limits how often a client may ask for what is here, beside the
	// site's rate_limit.
	RateLimit *admit.Rate `yaml:"rate_limit"`
	// Challenge says what is asked for a proof, instead of the site's challenge;
	// {off: true} for nobody.
	Challenge *admit.Challenge `yaml:"challenge"`
	// Plugins are modules as the site has them, and see a request after those.
	Plugins []plugin.Options `yaml:"plugins"`
	// Errors are pages as the site has them, and go before those.
	Errors map[string]string `yaml:"errors"`
	// InterceptErrors is for this route what it is for the site.
	InterceptErrors *bool `yaml:"intercept_errors"`
	// BodyBytes is how large a request's body may be, instead of
	// limits.body_bytes.
	BodyBytes bytesize.Size `yaml:"body_bytes"`
	// EarlyHints are links that browsers which go to a page get ahead of it, with
	// status 103 (RFC 8297) over HTTP/2 and HTTP/3, as in
	// ["</app.css>; rel=preload; as=style"]. HTML has them as Link, too.
	EarlyHints []string `yaml:"early_hints"`
	// NoLog keeps requests out of the access log.
	NoLog bool `yaml:"no_log"`
	// Headers are rules as the site has them, and come after those.
	Headers *headers.AnswerOptions `yaml:"headers"`
	// CORS is as the site has it, and holds instead of that; "" for none.
	CORS *headers.CORSOptions `yaml:"cors"`
	// Use puts in snippets, in their order; the route's own keys go on top.
	Use []string `yaml:"use"`
}

// nonJobKeys are the keys of a route that are no jobs: they go with any job.
var nonJobKeys = []string{"try", "auth", "access", "rate_limit", "challenge", "plugins", "errors", "intercept_errors", "body_bytes", "early_hints", "no_log", "headers", "cors", "use"}

// TrustedProxies are the addresses and networks of proxies in front that the
// limits or any route name.
func (c *Config) TrustedProxies() []string {
	all := slices.Clone(c.Limits.TrustedProxies)
	for _, s := range c.Sites {
		for _, r := range s.Routes {
			if p := r.proxied(); p != nil {
				all = append(all, p.TrustForwarded...)
			}
			if r.PHP != nil {
				all = append(all, r.PHP.TrustForwarded...)
			}
		}
	}
	return all
}

// proxied are the options with which a route forwards requests; nil if it does not.
func (r Route) proxied() *proxy.Options {
	switch {
	case r.Cache != nil:
		return &r.Cache.Options
	case r.WebSocket != nil:
		return r.WebSocket.Proxy
	}
	return r.Proxy
}

// Default is the config of an empty file: it listens and logs, and has no site.
func Default() *Config {
	return &Config{
		Listen: []string{DefaultListen},
		Log:    accesslog.Options{Format: "combined"},
	}
}

// ForDir is the config that serves one folder to every host. It is not
// checked: see [Config.Check].
func ForDir(dir string) *Config {
	c := Default()
	c.Sites = []Site{{Routes: map[string]Route{"/": {Static: &static.Options{Root: dir}}}}}
	return c
}

// ForImages is ForDir with images converted. It is not checked.
func ForImages(dir string) *Config {
	c := ForDir(dir)
	r := c.Sites[0].Routes["/"]
	r.Images = &images.Options{}
	c.Sites[0].Routes["/"] = r
	return c
}

// ForCache is the config that puts a cache in front of one upstream, or of
// several that share the load, for every host. It is not checked.
func ForCache(upstreams ...string) *Config {
	c := Default()
	o := &cache.Options{}
	o.To = upstreams
	c.Sites = []Site{{Routes: map[string]Route{"/": {Cache: o}}}}
	return c
}

// ForEcho is the config that sends every message of a WebSocket back, under
// every path and for every host, and shows browsers a page that does so. It is
// not checked.
func ForEcho() *Config {
	return forWebSocket(websocket.Options{Echo: &websocket.Echo{}, Page: true})
}

// ForChannels is the config with channels at the root of every host, and a page
// for trying them out. Everybody may subscribe, and see who else has, as far as
// presence is on. It is not checked.
func ForChannels() *Config {
	o := &channels.Options{Centrifuge: true}
	o.Auth.Presence = []string{"*"}
	return forWebSocket(websocket.Options{Channels: o, Page: true})
}

// ForWebSocketProxy is the config that passes the WebSockets of every host on
// to one upstream, or to several that share them. It is not checked.
func ForWebSocketProxy(upstreams ...string) *Config {
	o := &proxy.Options{}
	o.To = upstreams
	return forWebSocket(websocket.Options{Proxy: o})
}

func forWebSocket(o websocket.Options) *Config {
	c := Default()
	c.Sites = []Site{{Routes: map[string]Route{"/": {WebSocket: &o}}}}
	return c
}

// A Setting sets one key to a value from outside the file: a flag, or the
// flag's environment variable. It wins over the file.
type Setting struct {
	// Key is dotted, as in tls.cert. One that begins with a job, as in
	// cache.ttl, is set for every route that has the job.
	Key    string
	Values []string // one, or several for a list
	From   string   // what the user wrote it in, for messages: --tls-cert
}

// Parse is Load for a file that was read already. name stands in messages, and
// its folder is what relative paths start from.
func Parse(name string, data []byte, settings ...Setting) (*Config, error) {
	return ParsePacked(name, data, nil, settings...)
}

// ParsePacked is Parse for the config of a packed site, with the files that it
// includes behind it (packfile.JoinConfig): of the folders that packed knows
// nothing has to be on disk.
func ParsePacked(name string, data []byte, packed func(root string) bool, settings ...Setting) (*Config, error) {
	var files []packfile.ConfigFile
	if packed != nil {
		data, files = packfile.SplitConfig(data)
	}
	doc, body := parse(name, data)
	cfg := Default()
	cfg.packed = packed
	if body != nil {
		d := newDecoder(doc)
		if packed == nil {
			d.gather(body, filepath.Dir(name))
		} else {
			d.gatherPacked(body, files)
		}
		d.document(body, cfg)
		d.decodeIncluded(cfg)
		cfg.Include = d.includes
	}
	cfg.resolve(filepath.Dir(name))
	if err := cfg.finish(doc, settings); err != nil {
		return nil, err
	}
	return cfg, nil
}

// ForProgram is the config of a program that has the server in it: what data
// says in YAML, with what add puts on top. It may have neither an address nor a
// site of its own, logs nothing and has no admin listener unless data says so.
func ForProgram(name string, data []byte, add func(*Config)) (*Config, error) {
	doc, body := parse(name, data)
	cfg := Default()
	cfg.Listen, cfg.Log.Format, cfg.Admin.Listen, cfg.program = nil, Off, Off, true
	if body != nil {
		newDecoder(doc).document(body, cfg)
	}
	cfg.resolve(filepath.Dir(name))
	add(cfg)
	if err := cfg.finish(doc, nil); err != nil {
		return nil, err
	}
	return cfg, nil
}

// Check puts settings on top of a config that comes from no file and checks
// the whole. The error is of type [Findings].
func (c *Config) Check(settings ...Setting) error {
	return c.finish(newDocument(""), settings)
}

// finish applies the settings, checks everything and returns the findings, if
// any. After a syntax error only that is reported: what follows from half a
// file misleads.
func (c *Config) finish(doc *document, settings []Setting) error {
	c.doc = doc
	if !doc.broken {
		d := newDecoder(doc)
		for _, s := range settings {
			d.setting(c, s)
		}
		c.automatic(doc)
		check(c, doc)
	}
	if len(doc.found) == 0 {
		return nil
	}
	doc.found.sort()
	return doc.found.once()
}

// resolve makes the file's relative paths relative to its folder, and hosts
// lower-case.
func (c *Config) resolve(dir string) {
	from := func(p *string) {
		if !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	c.paths(from)
	for _, s := range c.Sites {
		for i, h := range s.Hosts {
			s.Hosts[i] = strings.ToLower(h) // RFC 9110, 4.2.3
		}
	}
}

// About is a finding at the value of a key, such as listen[0]: for what shows
// only when the config is used. None where the file does not have the key, or
// something outside of it set it.
func (c *Config) About(path, message, hint string) Findings {
	if c.doc == nil {
		return nil
	}
	if at := c.doc.value(path); at.line == 0 || at.from != "" {
		return nil
	}
	doc := *c.doc
	doc.found = nil
	doc.at(doc.value(path), message, hint)
	return doc.found
}

// Forget frees the positions of all values, which take kilobytes for each site. After it
// About returns nothing.
func (c *Config) Forget() { c.doc = nil }

// Routes is the number of routes of all sites.
func (c *Config) Routes() int {
	n := 0
	for _, s := range c.Sites {
		n += len(s.Routes)
	}
	return n
}
