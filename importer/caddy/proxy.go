package caddy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// upstreams writes Caddy's addresses as ours.
func upstreams(list []string, tls bool, h2c bool) (out []string, err error) {
	for _, u := range list {
		scheme, rest, has := strings.Cut(u, "://")
		if !has {
			scheme, rest = "http", u
			if tls {
				scheme = "https"
			}
		}
		if h2c && scheme == "http" {
			scheme = "h2c"
		}
		if socket, is := strings.CutPrefix(rest, "unix/"); is {
			out = append(out, "unix:/"+strings.TrimLeft(socket, "/"))
			continue
		}
		if strings.HasPrefix(scheme, "unix") || strings.HasPrefix(scheme, "srv") {
			return nil, fmt.Errorf("%s: name the servers as http://host:port", u)
		}
		if strings.HasPrefix(rest, ":") {
			rest = "127.0.0.1" + rest
		}
		host, ports, isRange := rest, "", false
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			host, ports = rest[:i], rest[i+1:]
			_, _, isRange = strings.Cut(ports, "-")
		}
		if !isRange || draft.HasEnvironment(ports) || strings.Contains(ports, "{") {
			if strings.Contains(rest, "{") {
				return nil, fmt.Errorf("%s: an upstream's address has no variables", u)
			}
			out = append(out, scheme+"://"+rest)
			continue
		}
		from, to, _ := strings.Cut(ports, "-")
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		const most = 64
		if errA != nil || errB != nil || b < a || b-a >= most {
			return nil, fmt.Errorf("%s: list the ports", u)
		}
		for p := a; p <= b; p++ {
			out = append(out, fmt.Sprintf("%s://%s:%d", scheme, host, p))
		}
	}
	return out, nil
}

// proxyDraft is a reverse_proxy on its way.
type proxyDraft struct {
	t       *site
	o       *plan.Proxy
	headers plan.Fields // of answers
	secure  bool
	h2c     bool
}

// proxy translates reverse_proxy.
func (t *site) proxy(d *draft.Directive, sc *scope, args []string, a *answer) error {
	p := &proxyDraft{t: t, headers: t.Fields()}
	// Caddy passes Location and cookies on as they are.
	p.o = &plan.Proxy{To: args, Host: "client", Redirects: "keep", Fields: plan.Fields{Requests: true}}
	for _, b := range d.Block {
		if !t.im.reported("reverse_proxy", b) {
			t.im.Used(b)
			p.option(b)
		}
	}
	for _, u := range p.o.To {
		p.secure = p.secure || strings.HasPrefix(u, "https://")
	}
	to, err := upstreams(p.o.To, p.secure, p.h2c)
	if err != nil {
		return err
	}
	if len(to) == 0 {
		return errors.New("name the servers in proxy.to, as http://host:port")
	}
	p.o.To = to
	if n := len(p.o.Weights); n > 0 && n != len(to) {
		t.im.Leave(d, "write proxy.weights: there is not one for each address")
		p.o.Weights = nil
	}
	if p.o.TLS.Insecure {
		p.o.TLS.CA = ""
	}
	if sc.broken != nil {
		return fmt.Errorf("%s: write it as proxy.rewrite: %s", sc.broken.At(), sc.broken.String())
	}
	if err := p.paths(sc); err != nil {
		return err
	}
	for _, e := range sc.middlewares {
		if e.line.Name == "request_header" {
			p.header(e.line, e.line.Args, &p.o.Fields, inProxy)
		}
	}
	p.o.StripPrefix = sc.strip
	a.proxies = true
	a.build = func(string) (*plan.Route, error) {
		r := &plan.Route{Proxy: *p.o}
		r.Headers.Join(p.headers)
		return r, nil
	}
	return nil
}

// paths puts what changes the path into the addresses, or into rewrite.
func (p *proxyDraft) paths(sc *scope) error {
	if sc.to == "" {
		return nil
	}
	target := strings.TrimSuffix(strings.TrimSuffix(sc.to, "?{query}"), "{uri}")
	target = strings.TrimSuffix(target, "{path}")
	if target != sc.to && !strings.Contains(target, "{") && strings.HasPrefix(target, "/") {
		for i := range p.o.To {
			if strings.HasPrefix(p.o.To[i], "unix:") {
				return errors.New("write the path before that of the request as proxy.rewrite")
			}
			p.o.To[i] += target
		}
		return nil
	}
	if strings.Contains(sc.to, "{") || !strings.HasPrefix(sc.to, "/") {
		return fmt.Errorf("write %s as proxy.rewrite", sc.to)
	}
	p.o.Rewrites(".*", sc.to)
	return nil
}

// option translates a line of the block.
func (p *proxyDraft) option(b *draft.Directive) {
	t := p.t
	switch b.Name {
	case "to":
		p.o.To = append(slices.Clone(p.o.To), b.Args...)
	case "header_up":
		p.header(b, b.Args, &p.o.Fields, inProxy)
	case "header_down":
		p.header(b, b.Args, &p.headers, inHeader)
	case "transport":
		p.transport(b)
	case "trusted_proxies":
		list, err := networks(b.Args)
		if err != nil {
			t.im.Leave(b, "list them in proxy.trust_forwarded")
			return
		}
		p.o.TrustForwarded = list
	case "flush_interval":
		if b.Arg(0) == "-1" {
			p.o.Stream = true
			return
		}
		t.im.Standard(b, "what has come of an answer is sent at once")
	case "lb_policy":
		p.policy(b)
	default:
		p.health1(b)
	}
}

// health1 translates lines on retries and health.
func (p *proxyDraft) health1(b *draft.Directive) {
	t := p.t
	number := func(to *string, key string) {
		if _, err := strconv.Atoi(b.Arg(0)); err != nil {
			t.im.Leave(b, "write a number into "+key)
			return
		}
		*to = b.Arg(0)
	}
	health := &p.o.Health
	switch b.Name {
	case "health_uri", "health_path":
		path, _, _ := strings.Cut(b.Arg(0), "?")
		health.Path = path
	case "health_interval":
		t.setDuration(b, &health.Interval, "interval")
	case "health_timeout":
		t.setDuration(b, &health.Timeout, "timeout")
	case "health_status":
		health.Status = b.Args
	case "health_body":
		health.Body = b.Arg(0)
	case "health_passes":
		number(&health.HealthyAfter, "healthy_after")
	case "health_fails":
		number(&health.UnhealthyAfter, "unhealthy_after")
	case "max_fails":
		number(&health.Failures, "failures")
	case "fail_duration":
		t.setDuration(b, &health.Eject, "eject")
	case "lb_retries":
		if n, err := strconv.Atoi(b.Arg(0)); err == nil && n >= 0 {
			p.o.Retries.Attempts = strconv.Itoa(n + 1)
			return
		}
		t.im.Leave(b, "write a number into retries.attempts")
	case "unhealthy_request_count":
		number(&p.o.Concurrency, "concurrency")
	default:
		t.im.Leave(b, "no option of proxy: see docs/proxy.md")
	}
}

// policy translates lb_policy.
func (p *proxyDraft) policy(b *draft.Directive) {
	set := func(balance, by string) { p.o.Balance, p.o.HashBy = balance, by }
	switch b.Arg(0) {
	case "random", "random_choose":
		p.t.im.Used(b) // the better of two random ones is the default
	case "least_conn":
		set("least_connections", "")
	case "first":
		p.t.im.Leave(b, "servers take turns: there is none that stands by")
	case "round_robin":
		set("round_robin", "")
	case "weighted_round_robin":
		set("round_robin", "")
		for _, w := range b.Args[1:] {
			if _, err := strconv.Atoi(w); err != nil {
				p.t.im.Leave(b, "write the weights into proxy.weights")
				return
			}
		}
		p.o.Weights = b.Args[1:]
	case "ip_hash", "client_ip_hash":
		set("hash", "client")
	case "uri_hash":
		set("hash", "url")
	case "header":
		set("hash", "header:"+b.Arg(1))
	case "cookie":
		p.o.Sticky = cmp.Or(b.Arg(1), "lb")
	default:
		p.t.im.Leave(b, "write proxy.balance")
	}
}

// transport translates its block.
func (p *proxyDraft) transport(b *draft.Directive) {
	t := p.t
	if b.Arg(0) != "http" {
		t.im.Leave(b, "a transport of HTTP alone: php-fpm has a route of its own (docs/php.md)")
		return
	}
	for _, e := range b.Block {
		if t.im.reported("transport", e) {
			continue
		}
		t.im.Used(e)
		switch e.Name {
		case "tls":
			p.secure = true
		case "tls_insecure_skip_verify":
			p.secure = true
			p.o.TLS.Insecure = true
		case "tls_server_name":
			p.secure = true
			p.o.TLS.ServerName = e.Arg(0)
		case "tls_client_auth":
			if len(e.Args) != 2 {
				t.im.Leave(e, "name the files in proxy.tls.cert and key")
				continue
			}
			p.secure = true
			p.o.TLS.Cert, p.o.TLS.Key = t.im.path(e.Arg(0)), t.im.path(e.Arg(1))
		case "tls_trusted_ca_certs", "tls_trust_pool":
			p.trust(e)
		case "dial_timeout":
			t.setDuration(e, &p.o.ConnectTimeout, "connect_timeout")
		case "response_header_timeout":
			t.setDuration(e, &p.o.HeaderTimeout, "header_timeout")
		case "read_timeout", "write_timeout":
			t.setDuration(e, &p.o.BodyTimeout, "body_timeout")
		case "keepalive":
			t.setDuration(e, &p.o.IdleTimeout, "idle_timeout")
		case "keepalive_idle_conns", "keepalive_idle_conns_per_host":
			p.o.IdleConnections = e.Arg(0)
		case "max_conns_per_host":
			p.o.Concurrency = e.Arg(0)
		case "versions":
			p.h2c = slices.Contains(e.Args, "h2c")
		default:
			t.im.Leave(e, "no option of proxy: see docs/proxy.md")
		}
	}
}

func (p *proxyDraft) trust(e *draft.Directive) {
	p.secure = true
	file := e.Arg(0)
	if e.Name == "tls_trust_pool" {
		file = e.Arg(1)
		if e.Arg(0) != "file" {
			p.t.im.Leave(e, "name a PEM file in proxy.tls.ca")
			return
		}
		for _, b := range e.Block {
			p.t.im.Used(b)
			if b.Name == "pem_file" {
				file = b.Arg(0)
			}
		}
	}
	if file == "" {
		p.t.im.Leave(e, "name a PEM file in proxy.tls.ca")
		return
	}
	p.o.TLS.CA = p.t.im.path(file)
}

// header translates header_up, header_down and request_header.
func (p *proxyDraft) header(d *draft.Directive, args []string, to *plan.Fields, in where) {
	t := p.t
	if len(args) == 0 {
		t.im.Leave(d, "a field is missing")
		return
	}
	field := args[0]
	name := strings.ToLower(strings.TrimLeft(field, "+-?>"))
	if in == inProxy {
		value := strings.Join(args[1:], " ")
		switch {
		case name == "host" && !strings.HasPrefix(field, "-"):
			switch value {
			case "{host}", "{http.request.host}", "{hostport}", "{http.request.hostport}":
				p.o.Host = "client"
			case "{upstream_hostport}", "{http.reverse_proxy.upstream.hostport}", "{http.reverse_proxy.upstream.host}":
				p.o.Host = "upstream"
			default:
				if strings.Contains(value, "{") {
					t.im.Leave(d, "write proxy.host: client, upstream, or a name")
					return
				}
				p.o.Host = value
			}
			t.im.Used(d)
			return
		case strings.HasPrefix(name, "x-forwarded-") || name == "forwarded" || name == "via" || name == "connection" || name == "upgrade":
			t.im.Standard(d, "upstreams are told who the client is, and connections are upgraded, by themselves")
			return
		}
	}
	t.field(d, to, field, args[1:], in)
}

// field adds a rule on a header field: +name adds, -name removes, ?name is for where there
// is none.
func (t *site) field(d *draft.Directive, to *plan.Fields, field string, args []string, in where) {
	name, bare := strings.TrimLeft(field, "+-?>"), strings.TrimPrefix(field, ">")
	op, value, err := headers.Set, "", error(nil)
	switch {
	case name == "" || strings.ContainsAny(name, "*{} "):
		err = fmt.Errorf("%s is no name of a field: write them one by one", field)
	case bare[0] == '-':
		op = headers.Remove
	case len(args) != 1:
		err = errors.New("a field has one value, which is not searched and replaced: set the whole one")
	default:
		if value, err = template(args[0], in, ""); err != nil {
			err = fmt.Errorf("write the value by hand: %w", err)
		}
		op = map[byte]headers.Op{'+': headers.Add, '?': headers.Default}[bare[0]]
		op = cmp.Or(op, headers.Set)
	}
	if err != nil {
		t.im.Leave(d, err.Error())
		return
	}
	if why := to.Put(plan.Answers{}, op, name, value); why != "" {
		t.im.Standard(d, why)
		return
	}
	t.im.Used(d)
}
