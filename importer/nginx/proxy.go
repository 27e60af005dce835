package nginx

import (
	"fmt"
	"net"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// upstream is a group of servers.
type upstream struct {
	servers []string   // without a scheme
	proxy   plan.Proxy // what it says of them
}

// upstream reads a group.
func (im *importer) upstream(d *draft.Directive) {
	u := &upstream{}
	im.upstreams[d.Arg(0)] = u
	im.Used(d)
	balance := ""
	for _, e := range d.Block {
		switch e.Name {
		case "server":
			im.upstreamServer(u, e)
		case "least_conn":
			balance = "least_connections"
			im.Used(e)
		case "ip_hash":
			balance, u.proxy.HashBy = "hash", "client"
			im.Used(e)
		case "hash":
			im.hash(u, e)
			balance = "hash"
		case "keepalive":
			if _, err := strconv.Atoi(e.Arg(0)); err == nil {
				u.proxy.IdleConnections = e.Arg(0)
				im.Used(e)
			}
		case "keepalive_timeout":
			if v, ok := duration(e.Arg(0)); ok {
				u.proxy.IdleTimeout = v
				im.Used(e)
			}
		case "keepalive_requests", "keepalive_time", "zone":
		case "sticky":
			im.Leave(e, "write balance: hash with hash_by: client, or cookie:NAME for a cookie that the application sets")
		default:
		}
	}
	if len(u.servers) < 2 {
		balance, u.proxy.HashBy = "", ""
	}
	u.proxy.Balance = balance
}

func (im *importer) hash(u *upstream, d *draft.Directive) {
	im.Used(d)
	switch v := d.Arg(0); {
	case v == "$request_uri":
		u.proxy.HashBy = "url"
	case v == "$uri":
		u.proxy.HashBy = "path"
	case v == "$remote_addr" || v == "$binary_remote_addr":
		u.proxy.HashBy = "client"
	case strings.HasPrefix(v, "$http_"):
		u.proxy.HashBy = "header:" + headerName(v[6:])
	case strings.HasPrefix(v, "$cookie_"):
		u.proxy.HashBy = "cookie:" + v[8:]
	default:
		im.Leave(d, "hash_by goes by url, path, client, header:NAME or cookie:NAME")
	}
}

func (im *importer) upstreamServer(u *upstream, d *draft.Directive) {
	im.Used(d)
	for _, o := range d.Words()[min(1, len(d.Args)):] {
		name, value, _ := strings.Cut(o, "=")
		switch name {
		case "down":
			im.Partly(d, "a server that is down is left out")
			return
		case "backup":
			im.Leave(d, "servers have no second rank: this one is left out. Servers that fail are not asked anyway")
			return
		case "weight":
			if value != "1" {
				im.Leave(d, "servers have no weights: balance: two_choices (the default) gives the faster ones more")
			}
		case "max_fails":
			if n, err := strconv.Atoi(value); err == nil && n > 0 {
				u.proxy.Health.Failures = strconv.Itoa(n)
			}
		case "fail_timeout":
			if v, ok := duration(value); ok && v != "0s" {
				u.proxy.Health.Eject = v
			}
		case "max_conns":
			if n, err := strconv.Atoi(value); err == nil && n > 0 {
				u.proxy.Concurrency = strconv.Itoa(n)
			}
		case "resolve", "slow_start":
		default:
			im.Leave(d, fmt.Sprintf("%s has no counterpart: see proxy in docs/config.md", o))
		}
	}
	u.servers = append(u.servers, d.Arg(0))
}

// target is where a proxy_pass goes.
type target struct {
	to       []string
	path     string // in the place of the location's
	hasPath  bool
	prepend  bool       // before the whole path of the request
	hostName string     // what nginx sends as Host
	proxy    plan.Proxy // what a group of servers says
}

func (t *site) proxyTarget(l *location, d *draft.Directive) (*target, error) {
	text := d.Arg(0)
	for name, v := range t.server.values {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "${"+name+"}", v), "$"+name, v)
	}
	behind := false
	for _, same := range []string{"$request_uri", "$uri$is_args$args", "$uri"} {
		if rest, is := strings.CutSuffix(text, same); is {
			text, behind = rest, true // that is what the upstream gets anyway
		}
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "http", text
	}
	scheme = map[string]string{"grpc": "h2c", "grpcs": "https"}[scheme] + map[string]string{"http": "http", "https": "https"}[scheme]
	if scheme == "" {
		return nil, fmt.Errorf("%q is neither http nor https", text)
	}
	out := &target{prepend: behind}
	if socket, is := strings.CutPrefix(rest, "unix:"); is {
		socket, out.path, out.hasPath = strings.Cut(socket, ":")
		out.to, out.hostName = []string{"unix:" + socket}, "localhost"
		return out, nil
	}
	host, path, hasPath := strings.Cut(rest, "/")
	if strings.Contains(host, "$") {
		return nil, fmt.Errorf("an upstream's address has no variables: name it, or several in a list")
	}
	if hasPath {
		out.path, out.hasPath = "/"+path, true
	}
	out.hostName = host
	u := t.im.upstreams[host]
	if u == nil {
		out.to = []string{scheme + "://" + host}
		out.hostName = ""
		return out, nil
	}
	out.proxy = u.proxy
	for _, s := range u.servers {
		if strings.HasPrefix(s, "unix:") {
			out.to = draft.AppendNew(out.to, s)
			continue
		}
		if _, _, err := net.SplitHostPort(s); err != nil {
			s += map[string]string{"https": ":443"}[scheme]
			if scheme != "https" {
				s += ":80"
			}
		}
		out.to = draft.AppendNew(out.to, scheme+"://"+s)
	}
	if len(out.to) == 0 {
		return nil, fmt.Errorf("upstream %s has no server", host)
	}
	return out, nil
}

// proxy translates a location that passes requests on.
func (t *site) proxy(l *location, d *draft.Directive) *plan.Route {
	to, err := t.proxyTarget(l, d)
	if err != nil {
		t.im.Leave(d, err.Error())
		return nil
	}
	for _, name := range []string{"proxy_pass_request_headers", "proxy_pass_request_body"} {
		if off := l.last(name); off != nil && off.Arg(0) == "off" {
			t.im.Leave(off, "requests are passed on with their header and body, and the other server must not get them: write the route with request_headers: {remove: [Cookie, Authorization, …]}, which lists what it must not get")
			t.im.Leave(d, "it is not passed on, since "+name+" is off")
			return nil
		}
	}
	t.im.Used(d)
	o := &to.proxy
	o.To = to.to
	if err := t.proxyPath(l, to, o); err != nil {
		t.im.Leave(d, err.Error())
		return nil
	}
	t.proxyTimes(l, o)
	t.proxyHeaders(l, o, to)
	t.proxyTLS(l, o)
	for _, name := range []string{"proxy_buffering", "proxy_request_buffering"} {
		if b := t.im.Take(l.last(name)); b != nil && b.Arg(0) == "off" {
			o.Stream = true
		}
	}
	t.proxyRewrites(l, o)
	t.proxyRedirects(l, o)
	t.proxyRetries(l, o)
	r := &plan.Route{}
	if t.cache(l, o) {
		r.Cache = *o
	} else {
		r.Proxy = *o
	}
	if d := l.own("try_files"); d != nil {
		t.im.Leave(d, "a route with files passes on what is no file by a named route: write static and try here, and this proxy as a route like @app")
	}
	return r
}

// proxyPath translates the path of a proxy_pass, which comes in the place of the
// location's.
func (t *site) proxyPath(l *location, to *target, o *plan.Proxy) error {
	if !to.hasPath || to.path == "" {
		return nil
	}
	switch {
	case l.kind == regexLocation || l.kind == namedLocation:
		path, err := t.text(to.path, l.expr)
		if err == nil {
			path, err = numbered(path, l.expr)
		}
		if err != nil {
			return fmt.Errorf("write the upstream's path by hand: %w", err)
		}
		o.Rewrites(plan.Whole(l.expr), path)
	case l.kind == exactLocation:
		o.Rewrites(regexp.QuoteMeta(l.path), to.path)
	case strings.Contains(to.path, "$"): // then it is the whole path, whatever the request's
		path, err := t.text(to.path, "")
		if err == nil {
			path, err = numbered(path, "")
		}
		if err != nil {
			return fmt.Errorf("write the upstream's path with rewrite of the proxy: %w", err)
		}
		o.Rewrites(".*", path)
	case strings.Contains(to.path, "?"):
		return fmt.Errorf("write the upstream's path with rewrite of the proxy: %s has a query", to.path)
	default:
		if p := strings.TrimSuffix(to.path, "/"); p != "" {
			o.Below(p)
		}
		if p := strings.TrimSuffix(to.path, "/"); p != "" && strings.HasSuffix(to.path, "/") != strings.HasSuffix(l.path, "/") && !to.prepend {
			t.im.Partly(l.block, fmt.Sprintf("the rest of the path goes behind a slash: nginx makes %s of %s", to.path+"x", l.path+"x"))
		}
		if l.path != "/" && !to.prepend {
			o.StripPrefix = strings.TrimSuffix(l.path, "/") + "/"
		}
	}
	return nil
}

// numbered has groups by their numbers, as the proxy's rewrite does, and leaves out the
// request's query at the end, which comes unasked.
func numbered(text, expr string) (string, error) {
	for _, query := range []string{"&{query}", "?{query}"} {
		text = strings.TrimSuffix(text, query)
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return "", err //nolint:wrapcheck // it says which
	}
	for i, name := range re.SubexpNames() {
		if name != "" {
			text = strings.ReplaceAll(text, "{"+name+"}", "{"+strconv.Itoa(i)+"}")
		}
	}
	if v := regexp.MustCompile(`\{[^}0-9][^}]*\}`).FindString(text); v != "" {
		return "", fmt.Errorf("%s cannot stand in it", v)
	}
	return text, nil
}

// proxyRewrites translates rewrites that stay in the location (break).
func (t *site) proxyRewrites(l *location, o *plan.Proxy) {
	var list plan.Proxy
	for _, d := range l.each("rewrite") {
		if t.im.Outcome(d) != 0 {
			continue
		}
		expr, err := plan.Expression(d.Arg(0), false)
		if err == nil {
			var to string
			if to, err = t.text(strings.TrimSuffix(d.Arg(1), "?"), expr); err == nil {
				to, err = numbered(to, expr)
			}
			if strings.HasPrefix(to, "{1}") { // the slash in front goes before the group
				expr, to = strings.Replace(strings.Replace(expr, "^(.*)$", "^/(.*)$", 1), "(/", "/(", 1), "/"+to
			}
			if err == nil && (expr != "^/(.*)$" || to != "/{1}") {
				list.Rewrites(plan.Whole(expr), to)
			}
			if err == nil {
				t.im.Used(d)
			}
		}
		if err != nil {
			t.im.Leave(d, fmt.Sprintf("write it as rewrite of the proxy: %v", err))
		}
	}
	if list.Rewrite != nil {
		o.Rewrite, o.StripPrefix = list.Rewrite, ""
	}
}

// value takes over what a directive says that holds in a location, as far as read takes it;
// do says what is to be done where it does not.
func (t *site) value(l *location, name string, read func(string) (string, bool), do string, to ...*string) {
	d := l.last(name)
	if d == nil {
		return
	}
	v, ok := read(d.Arg(0))
	if !ok {
		t.im.Leave(d, do)
		return
	}
	t.im.Used(d)
	for _, p := range to {
		*p = v
	}
}

func (t *site) proxyTimes(l *location, o *plan.Proxy) {
	for _, kind := range []string{"proxy", "grpc"} {
		t.value(l, kind+"_connect_timeout", duration, "set connect_timeout", &o.ConnectTimeout)
		t.value(l, kind+"_read_timeout", duration, "set header_timeout and body_timeout", &o.HeaderTimeout, &o.BodyTimeout)
		t.im.Standard(l.last(kind+"_send_timeout"), "body_timeout is for both directions")
	}
}

// proxyHeaders translates what upstreams are told.
func (t *site) proxyHeaders(l *location, o *plan.Proxy, to *target) {
	o.Host, o.Fields = to.hostName, plan.Fields{Requests: true}
	for _, d := range l.all("proxy_set_header", "grpc_set_header") {
		name, value := d.Arg(0), d.Arg(1)
		switch strings.ToLower(name) {
		case "host":
			t.im.Used(d)
			o.Host = t.hostFor(d, value)
			continue
		case "upgrade", "connection":
			t.im.Standard(d, "connections are kept, and upgraded (WebSockets) when both sides want")
			continue
		case "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "x-forwarded-scheme", "x-forwarded-ssl":
			if strings.HasPrefix(value, "$") {
				t.im.Standard(d, "Forwarded and X-Forwarded-For, -Host and -Proto are sent to every upstream")
				if n := strings.ToLower(name); n != "x-forwarded-scheme" && n != "x-forwarded-ssl" {
					continue
				}
			}
		}
		op, text := headers.Set, ""
		var err error
		switch {
		case value == "":
			op = headers.Remove
		case value == "$http_"+strings.ToLower(strings.ReplaceAll(name, "-", "_")):
			t.im.Standard(d, "fields of the request are passed on")
			continue
		case t.copied(l, d):
			continue
		case value == "$remote_user" && t.passwordNeeded(l):
			t.im.Used(d)
			l.userField = name
			continue
		default:
			if text, err = t.headerText(value); err != nil {
				t.im.Leave(d, fmt.Sprintf("write it into request_headers, %v: the upstream does not get the field, nor a client's own", err))
				op = headers.Remove // whatever the upstream takes it for
			}
		}
		if why := o.Fields.Put(plan.Answers{}, op, name, text); why != "" {
			t.im.Standard(d, why)
			continue
		}
		t.im.Used(d)
	}
	for _, d := range l.all("proxy_pass_header") {
		if why := headers.MayAnswer(textproto.CanonicalMIMEHeaderKey(d.Arg(0)), headers.Set); why != "" {
			t.im.Standard(d, d.Arg(0)+": "+why)
		}
	}
}

// hostFor is what the upstream is told as Host.
func (t *site) hostFor(d *draft.Directive, value string) string {
	switch value {
	case "$host", "$http_host", "$host:$server_port", "$http_host:$server_port", "$server_name", "$host:$proxy_port":
		return "client"
	case "$proxy_host":
		return ""
	}
	if text, err := template(value, nil, t.captures("")); err == nil {
		return text
	}
	t.im.Leave(d, "host is client, upstream or a name")
	return "client"
}

// headerText is a value for a field of answers or requests with our variables.
func (t *site) headerText(value string) (string, error) {
	bare := variable().ReplaceAllString(value, "\x00")
	if strings.Contains(bare, "{") {
		return "", fmt.Errorf("%q has braces", value)
	}
	return template(value, headerVariables(), t.captures(""))
}

func (t *site) proxyTLS(l *location, o *plan.Proxy) {
	file := func(name string) (string, bool) { return t.im.path(name), true }
	t.value(l, "proxy_ssl_trusted_certificate", file, "", &o.TLS.CA)
	t.value(l, "proxy_ssl_certificate", file, "", &o.TLS.Cert)
	t.value(l, "proxy_ssl_certificate_key", file, "", &o.TLS.Key)
	plainName := func(name string) (string, bool) { return name, !strings.Contains(name, "$") }
	t.value(l, "proxy_ssl_name", plainName, "set tls.server_name of the proxy", &o.TLS.ServerName)
	for _, name := range []string{"proxy_ssl_server_name", "proxy_ssl_session_reuse", "proxy_ssl_protocols", "proxy_ssl_ciphers", "proxy_ssl_verify_depth"} {
		t.im.Standard(l.last(name), "upstreams are told the name (SNI), over TLS 1.2 or 1.3")
	}
	verify := l.last("proxy_ssl_verify")
	t.im.Used(verify)
	if d := l.own("proxy_pass"); d != nil && strings.HasPrefix(d.Arg(0), "https://") && (verify == nil || verify.Arg(0) != "on") && o.TLS.CA == "" {
		t.im.Standard(d, "certificates of upstreams are checked, which nginx does not unless told: tls: {insecure: true} if this one has none that is trusted")
		// Upstreams with addresses for names go on: no authority has signed a certificate
		// for those.
		u, err := url.Parse(variable().ReplaceAllString(d.Arg(0), "x"))
		o.TLS.Insecure = err == nil && (net.ParseIP(u.Hostname()) != nil || u.Hostname() == "localhost" || t.im.upstreams[u.Host] != nil)
	}
}

// proxyRedirects says what becomes of the upstream's addresses. nginx changes those
// that begin with the address it asks; an upstream that is told the client's host
// names itself by that.
func (t *site) proxyRedirects(l *location, o *plan.Proxy) {
	d := l.last("proxy_redirect")
	if d != nil {
		t.proxyRedirect(d, o)
	}
	if (d == nil || d.Arg(0) == "default") && l.last("proxy_cookie_path") == nil && o.StripPrefix != "" && o.Host == "client" {
		o.Redirects = "keep"
	} else if o.StripPrefix != "" && o.Redirects == "" && l.last("proxy_cookie_path") == nil {
		t.im.Partly(l.own("proxy_pass"), "with the prefix that Location gets, paths of cookies get it, too, which nginx leaves alone: redirects: keep leaves both")
	}
}

func (t *site) proxyRedirect(d *draft.Directive, o *plan.Proxy) {
	switch {
	case d.Arg(0) == "off":
		o.Redirects = "keep"
		t.im.Used(d)
	case d.Arg(0) == "default":
		t.im.Used(d)
	default:
		t.im.Standard(d, "the upstream's own addresses in Location become those of the site")
	}
}

func (t *site) proxyRetries(l *location, o *plan.Proxy) {
	if d := t.im.Take(l.last("proxy_next_upstream")); d != nil {
		for _, w := range d.Words() {
			switch {
			case w == "off":
				o.Retries.Attempts = "1"
			case strings.HasPrefix(w, "http_5"):
				o.Retries.Status = append(o.Retries.Status, w[5:])
			case w == "non_idempotent":
				t.im.Leave(d, "requests that are not idempotent are repeated only if nothing of them was sent")
			case strings.HasPrefix(w, "http_"):
				t.im.Leave(d, "retries are for statuses of 500 and more: "+w)
			}
		}
	}
	if d := l.last("proxy_next_upstream_tries"); d != nil {
		if n, err := strconv.Atoi(d.Arg(0)); err == nil && n > 0 {
			o.Retries.Attempts = strconv.Itoa(n)
		}
		t.im.Used(d)
	}
	t.im.Standard(l.last("proxy_next_upstream_timeout"), "retries have a budget instead of a time")
}
