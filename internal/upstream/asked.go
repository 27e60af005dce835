package upstream

import (
	"iter"
	"net/netip"
	"strings"

	"millrace/internal/wire/field"
)

// Asked holds what of a request that an event loop forwards may decide which server it
// goes to: what the pool reads from an http.Request otherwise.
type Asked struct {
	// Client is who asks, the zero address on a UNIX socket.
	Client netip.Addr
	// Secure: over TLS.
	Secure bool
	// Path and Query are as the server gets them, see Lines; Asks says that there is a
	// question mark between them. Nothing in Path is encoded.
	Path, Query string
	Asks        bool
	// Key is the one of WithHashKey; "": none.
	Key string
	// Fields are what the server gets; nil: they are not known yet. Then loops do not
	// pass the request on where the choice goes by one of them.
	Fields *field.Lines
}

// picks is what the choice of a server goes by in a pool.
type picks struct {
	hash     bool // by hashBy
	byFields bool // by fields of the request: by hash, or by a cookie
}

func picksOf(o Options) picks {
	if len(o.To) == 1 {
		return picks{}
	}
	kind, _, _ := strings.Cut(o.HashBy, ":")
	hash := o.Balance == "hash"
	return picks{hash, o.Sticky.Cookie != "" || hash && (kind == "header" || kind == "cookie")}
}

// demandOfAsked is demandOf for a request that an event loop forwards. It reports
// false where the choice goes by a field that is not known yet.
func (p *Pool) demandOfAsked(a *Asked) (what demand, ok bool) {
	if p.picks.byFields && a.Fields == nil {
		return what, false
	}
	if p.picks.hash {
		what.key = p.hashFor(a)
	}
	if p.picks.byFields && p.options.Sticky.Cookie != "" {
		for i := range *a.Fields {
			if l := &(*a.Fields)[i]; l.Name == "Cookie" {
				for value := range cookiesNamed(l.Value, p.options.Sticky.Cookie) {
					if s := p.named(value); s != nil {
						what.stuck = what.stuck.with(s)
						return what, true
					}
				}
			}
		}
	}
	return what, true
}

// hashFor is hashOf for a request that an event loop forwards.
func (p *Pool) hashFor(a *Asked) uint64 {
	key := ""
	switch by := &p.hashBy; by.kind {
	case "path":
		key = a.Path
	case "client":
		if a.Client.IsValid() {
			var room [64]byte
			return fnv1a(a.Client.AppendTo(room[:0]))
		}
	case "header":
		key = a.Fields.First(by.name)
	case "cookie":
		key = firstCookie(*a.Fields, by.name)
	default:
		key = a.Key
	}
	if key != "" {
		return fnv1a(key)
	}
	h := fnv1a(a.Path)
	if a.Asks || a.Query != "" {
		h = fnv1aOn(fnv1aOn(h, "?"), a.Query)
	}
	return h
}

// firstCookie is the value of the first cookie of a name; "": none.
func firstCookie(fields field.Lines, name string) string {
	for i := range fields {
		if l := &fields[i]; l.Name == "Cookie" {
			for value := range cookiesNamed(l.Value, name) {
				return value
			}
		}
	}
	return ""
}

// cookiesNamed are the values of the cookies of a name in a Cookie field, as
// http.Request.CookiesNamed has them: without quotes, and without those that have a
// byte no value may have (RFC 6265, 4.1.1, and a space or a comma).
func cookiesNamed(line, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line != "" {
			var one string
			one, line, _ = strings.Cut(line, ";")
			key, value, _ := strings.Cut(strings.Trim(one, " \t\r\n"), "=")
			if strings.Trim(key, " \t\r\n") != name {
				continue
			}
			if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
				value = value[1 : n-1]
			}
			if cookieValue(value) && !yield(value) {
				return
			}
		}
	}
}

func cookieValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == ';' || c == '\\' {
			return false
		}
	}
	return true
}

// sticks is the cookie that stick sets, as a field's value; "": none.
func (x *Passage) sticks() string {
	p := x.pool
	if p.options.Sticky.Cookie == "" || !p.needsCookie(x.what, x.place.server) {
		return ""
	}
	return p.cookie(x.place.server, x.secure)
}
