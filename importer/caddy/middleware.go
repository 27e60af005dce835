package caddy

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"millrace/importer/draft"
)

// addMiddleware translates a directive that changes what other directives answer: header,
// basic_auth, request_body.
func (t *site) addMiddleware(d *draft.Directive, sc *scope, alts []conds, args []string) {
	w := &middleware{line: d, alts: alts}
	switch d.Name {
	case "header":
		t.fields(d, sc, alts, args, w)
		return
	case "request_header":
		w.apply = func(*draft.Node, *answer) {} // proxies look for it
		t.im.Used(d)
		if len(alts) != 1 || !alts[0].covers(sc.alts[0]) {
			t.im.Leave(d, "write it into proxy.request_headers of the routes that it is for")
			return
		}
	case "basic_auth", "basicauth":
		node, err := t.passwords(d, args)
		if err != nil {
			t.Close(d, err.Error())
			return
		}
		w.guard, w.apply = true, func(n *draft.Node, _ *answer) { n.Set("auth", node.Clone()) }
	case "forward_auth":
		node, err := t.forward(d, args)
		if err != nil {
			t.Close(d, err.Error())
			return
		}
		w.guard, w.apply = true, func(n *draft.Node, _ *answer) { n.Set("auth", node.Clone()) }
	case "request_body":
		t.body(d, w)
	case "skip_log", "log_skip":
		t.im.Used(d)
		w.apply = func(n *draft.Node, _ *answer) { n.Set("no_log", draft.Number(true)) }
	default:
		t.other(d)
		return
	}
	if w.apply != nil {
		sc.middlewares = append(sc.middlewares, w)
	}
}

// other reports a directive that has no counterpart here.
func (t *site) other(d *draft.Directive) {
	switch do, guards := adviceFor(d.Name); {
	case strings.HasPrefix(do, "="):
		t.im.Whole(d, draft.Defaulted, do[1:])
	case guards:
		t.Close(d, do)
	default:
		t.im.Leave(d, do)
	}
}

// adviceFor says what is to be done about a directive; "=" begins the reason of
// one that is a default. guards: it may keep clients out.
func adviceFor(name string) (do string, guards bool) {
	switch name {
	case "encode":
		return "=br, zstd and gzip are on", false
	case "log":
		return "=there is one access log for all sites: log", false
	case "tls", "bind":
		return "=see the top of this config", false
	case "vars", "map":
		return "variables are tables here: see docs/routes.md", false
	case "templates":
		return "pages are sent as they are: make them when the site is built", false
	case "rate_limit":
		return "write rate_limit of the site or route, as in 10/s (docs/protection.md)", false
	case "cache":
		return "write the route as cache instead of proxy (docs/cache.md)", false
	case "tracing", "log_append", "log_name", "push", "fs", "intercept", "invoke", "copy_response", "copy_response_headers", "webdav", "cgi", "exec", "mercure", "vulcain", "frankenphp", "php", "php_server":
		return cmp.Or(map[string]string{
			"php_server": "php: with php-fpm's socket beside static (docs/php.md)", "php": "php: with php-fpm's socket beside static (docs/php.md)",
			"mercure": "websocket: channels does it (docs/websocket.md)", "invoke": "a named route: write it at the places that name it",
			"intercept": "errors has pages for an upstream's statuses (docs/routes.md)",
		}[name], "it has no counterpart"), name == "invoke"
	case "authorize", "authenticate", "authp", "jwt", "jwtauth", "crowdsec", "appsec", "coraza_waf", "ipfilter", "geoip", "maxmind_geolocation", "security", "abort", "error":
		return "it may keep clients out: write access or auth (docs/protection.md)", true
	}
	return "this directive is no part of Caddy itself and may keep clients out: look for a counterpart in docs/routes.md and docs/protection.md", true
}

// fields translates header.
func (t *site) fields(d *draft.Directive, sc *scope, alts []conds, args []string, w *middleware) {
	t.im.Used(d)
	fields := t.Fields()
	add := func(line *draft.Directive, field string, values []string) {
		t.field(line, fields, field, values, inHeader)
	}
	if len(args) > 0 {
		add(d, args[0], args[1:])
	}
	for _, b := range d.Block {
		switch b.Name {
		case "defer":
			t.im.Standard(b, "rules hold for the answer as the job gave it")
		case "match":
			t.im.Leave(b, "write it as headers.when, by status and type")
		default:
			add(b, b.Name, b.Args)
		}
	}
	rules := fields.Node()
	if rules.Len() == 0 {
		return
	}
	if len(alts) == 1 && alts[0].file != nil && !alts[0].file.absent {
		alts[0].file = nil // a missing file's answer has it as well
	}
	w.apply = func(n *draft.Node, _ *answer) { merge(n.Child("headers"), rules) }
	if sc.top && len(alts) == 1 && alts[0].any() {
		merge(t.Keys.Child("headers"), rules)
		return
	}
	w.alts = alts
	sc.middlewares = append(sc.middlewares, w)
}

// merge adds rules on header fields to others.
func merge(to, rules *draft.Node) {
	for _, key := range []string{"set", "add", "default"} {
		if from := rules.Get(key); from != nil {
			from.CopyTo(to.Child(key))
		}
	}
	for _, key := range []string{"remove", "when"} {
		from := rules.Get(key)
		if from == nil {
			continue
		}
		if to.Get(key) == nil {
			to.Set(key, draft.List().Flow())
		}
		from.Each(func(v *draft.Node, _ []string) { to.Get(key).Add(v) })
	}
}

// passwords translates basic_auth: the same hashes.
func (t *site) passwords(d *draft.Directive, args []string) (*draft.Node, error) {
	node := draft.Map()
	switch {
	case len(args) > 0 && args[0] != "bcrypt" && args[0] != "argon2id":
		return nil, fmt.Errorf("hashes are bcrypt or argon2id: millrace hash-password makes them")
	case len(args) > 1:
		node.Set("realm", draft.Text(args[1]))
	}
	users := draft.Map()
	for _, b := range d.Block {
		hash := b.Arg(0)
		if draft.HasEnvironment(hash) {
			users.Set(b.Name, draft.Text(hash))
			t.im.Used(b)
			continue
		}
		if !strings.HasPrefix(hash, "$") {
			plain, err := base64.StdEncoding.DecodeString(hash)
			if err != nil || len(b.Args) != 1 {
				return nil, fmt.Errorf("the password of %s: millrace hash-password makes the hash", b.Name)
			}
			hash = string(plain)
		}
		if !regexp.MustCompile(`^\$(2[aby]\$\d\d\$.{53}|argon2id\$.+)$`).MatchString(hash) {
			return nil, fmt.Errorf("the hash of %s is neither bcrypt nor argon2id: millrace hash-password makes one", b.Name)
		}
		users.Set(b.Name, draft.Verbatim(hash))
		t.im.Used(b)
	}
	if users.Len() == 0 {
		return nil, errors.New("it has no users")
	}
	t.im.Used(d)
	return node.Set("passwords", users).Flow(), nil
}

// forward translates forward_auth.
func (t *site) forward(d *draft.Directive, args []string) (*draft.Node, error) {
	to, err := upstreams(args, false, false)
	if err != nil || len(to) != 1 || strings.HasPrefix(to[0], "unix:") {
		return nil, errors.New("write auth.url, one address (docs/protection.md)")
	}
	uri := ""
	copied := draft.List().Flow()
	for _, b := range d.Block {
		switch b.Name {
		case "uri":
			uri = b.Arg(0)
		case "copy_headers":
			names := b.Args
			for _, e := range b.Block {
				names = append(names, e.String())
				t.im.Used(e)
			}
			for _, n := range names {
				if strings.Contains(n, ">") {
					return nil, fmt.Errorf("fields that get another name on the way: %s", n)
				}
				copied.Add(draft.Text(n))
			}
		case "header_up", "transport":
			return nil, fmt.Errorf("%s in it: write auth.url (docs/protection.md)", b.Name)
		default:
			t.im.Leave(b, "no option of auth")
			continue
		}
		t.im.Used(b)
	}
	if strings.Contains(uri, "{") || !strings.HasPrefix(uri, "/") {
		return nil, errors.New("write auth.url, which has no variables (docs/protection.md)")
	}
	t.im.Used(d)
	node := draft.Map().Set("url", draft.Text(to[0]+uri))
	node.Fill("copy", copied)
	return node.Flow(), nil
}

// body translates the size of a request's body.
func (t *site) body(d *draft.Directive, w *middleware) {
	t.im.Used(d)
	for _, b := range d.Block {
		size, ok := bytes(b.Arg(0))
		if b.Name != "max_size" || !ok {
			t.im.Leave(b, "write body_bytes, as in 10MiB")
			continue
		}
		t.im.Used(b)
		w.apply = func(n *draft.Node, a *answer) {
			if a.proxies {
				n.Set("body_bytes", draft.Number(size))
			}
		}
	}
}

// bytes is a size of Caddy's (10MB, 1GiB) as one of ours.
func bytes(s string) (string, bool) {
	m := regexp.MustCompile(`(?i)^(\d+)\s*(b|kb|mb|gb|kib|mib|gib|)$`).FindStringSubmatch(s)
	if m == nil {
		return "", false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n <= 0 {
		return "", false
	}
	switch strings.ToLower(m[2]) {
	case "kib":
		return m[1] + "KiB", true
	case "mib":
		return m[1] + "MiB", true
	case "gib":
		return m[1] + "GiB", true
	case "kb":
		n *= 1000
	case "mb":
		n *= 1000_000
	case "gb":
		n *= 1000_000_000
	}
	return strconv.FormatInt(n, 10) + "B", n > 0
}
