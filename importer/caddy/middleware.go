package caddy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
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
		w.apply = func(*plan.Route, *answer) {} // proxies look for it
		t.im.Used(d)
		if len(alts) != 1 || !alts[0].covers(sc.alts[0]) {
			t.im.Leave(d, "write it into proxy.request_headers of the routes that it is for")
			return
		}
	case "basic_auth", "basicauth":
		t.signIn(d, w, t.passwords, args)
	case "forward_auth":
		t.signIn(d, w, t.forward, args)
	case "request_body":
		t.body(d, w)
	case "skip_log", "log_skip":
		t.im.Used(d)
		w.apply = func(r *plan.Route, _ *answer) { r.NoLog = true }
	default:
		t.other(d)
		return
	}
	if w.apply != nil {
		sc.middlewares = append(sc.middlewares, w)
	}
}

// signIn makes a middleware of what a directive asks of clients.
func (t *site) signIn(d *draft.Directive, w *middleware, read func(*draft.Directive, []string) (plan.Auth, error), args []string) {
	auth, err := read(d, args)
	if err != nil {
		t.Close(d, err.Error())
		return
	}
	w.guard, w.apply = true, func(r *plan.Route, _ *answer) { r.Auth = auth }
}

// other reports a directive that has no counterpart here.
func (t *site) other(d *draft.Directive) {
	if t.im.reported("site", d) {
		return
	}
	note := tables()["guard"].Note(d, d.Name, "this directive is no part of Caddy itself and may keep clients out: look for a counterpart in docs/routes.md and docs/protection.md")
	t.Close(d, note.Why)
}

// fields translates header.
func (t *site) fields(d *draft.Directive, sc *scope, alts []conds, args []string, w *middleware) {
	t.im.Used(d)
	fields := t.Fields()
	add := func(line *draft.Directive, field string, values []string) {
		t.field(line, &fields, field, values, inHeader)
	}
	if len(args) > 0 {
		add(d, args[0], args[1:])
	}
	for _, b := range d.Block {
		if !t.im.reported("header", b) {
			add(b, b.Name, b.Args)
		}
	}
	if fields.Empty() {
		return
	}
	if len(alts) == 1 && alts[0].file != nil && !alts[0].file.absent {
		alts[0].file = nil // a missing file's answer has it as well
	}
	w.apply = func(r *plan.Route, _ *answer) { r.Headers.Join(fields) }
	if sc.top && len(alts) == 1 && alts[0].any() {
		t.Headers.Join(fields)
		return
	}
	w.alts = alts
	sc.middlewares = append(sc.middlewares, w)
}

// passwords translates basic_auth: the same hashes.
func (t *site) passwords(d *draft.Directive, args []string) (auth plan.Auth, err error) {
	switch {
	case len(args) > 0 && args[0] != "bcrypt" && args[0] != "argon2id":
		return auth, fmt.Errorf("hashes are bcrypt or argon2id: millrace hash-password makes them")
	case len(args) > 1:
		auth.Realm = args[1]
	}
	auth.Passwords = map[string]string{}
	for _, b := range d.Block {
		hash := b.Arg(0)
		if draft.HasEnvironment(hash) {
			auth.Passwords[b.Name] = hash
			t.im.Used(b)
			continue
		}
		if !strings.HasPrefix(hash, "$") {
			plain, err := base64.StdEncoding.DecodeString(hash)
			if err != nil || len(b.Args) != 1 {
				return auth, fmt.Errorf("the password of %s: millrace hash-password makes the hash", b.Name)
			}
			hash = string(plain)
		}
		if !regexp.MustCompile(`^\$(2[aby]\$\d\d\$.{53}|argon2id\$.+)$`).MatchString(hash) {
			return auth, fmt.Errorf("the hash of %s is neither bcrypt nor argon2id: millrace hash-password makes one", b.Name)
		}
		auth.Passwords[b.Name] = hash
		t.im.Used(b)
	}
	if len(auth.Passwords) == 0 {
		return auth, errors.New("it has no users")
	}
	t.im.Used(d)
	return auth, nil
}

// forward translates forward_auth.
func (t *site) forward(d *draft.Directive, args []string) (auth plan.Auth, err error) {
	to, err := upstreams(args, false, false)
	if err != nil || len(to) != 1 || strings.HasPrefix(to[0], "unix:") {
		return auth, errors.New("write auth.url, one address (docs/protection.md)")
	}
	uri := ""
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
					return auth, fmt.Errorf("fields that get another name on the way: %s", n)
				}
				auth.Copy = append(auth.Copy, n)
			}
		case "header_up", "transport":
			return auth, fmt.Errorf("%s in it: write auth.url (docs/protection.md)", b.Name)
		default:
			t.im.Leave(b, "no option of auth")
			continue
		}
		t.im.Used(b)
	}
	if strings.Contains(uri, "{") || !strings.HasPrefix(uri, "/") {
		return auth, errors.New("write auth.url, which has no variables (docs/protection.md)")
	}
	t.im.Used(d)
	auth.URL = to[0] + uri
	return auth, nil
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
		w.apply = func(r *plan.Route, a *answer) {
			if a.proxies {
				r.Body = size
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
