package upstream

import (
	"iter"
	"net/url"
	"strings"

	"millrace/internal/wire/field"
)

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

// demandOf is what a request demands of its server: by hash key, cookie, and whether it
// becomes a stream.
func (p *Pool) demandOf(q *Request, stream bool) demand {
	what := demand{stream: stream, client: q.client()}
	if p.picks.hash {
		what.key = p.hashOf(q)
	}
	if cookie := p.options.Sticky.Cookie; cookie != "" && len(p.servers) > 1 {
		for value := range cookies(q.Fields, cookie) {
			if s := p.named(value); s != nil {
				what.stuck = what.stuck.with(s)
				break
			}
		}
	}
	return what
}

// hashOf is the hash to balance a request by, as Options.HashBy says.
func (p *Pool) hashOf(q *Request) uint64 {
	key := ""
	switch by := &p.hashBy; by.kind {
	case "path":
		if key = q.Path; strings.IndexByte(key, '%') >= 0 {
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain // however it is spelled
			}
		}
	case "client":
		if client := q.client(); client.IsValid() {
			var room [64]byte
			return fnv1a(client.AppendTo(room[:0]))
		}
	case "header":
		key = q.Fields.First(by.name)
	case "cookie":
		for key = range cookies(q.Fields, by.name) {
			break
		}
	default:
		key = q.Key
	}
	if key != "" {
		return fnv1a(key)
	}
	h := fnv1a(q.Path)
	if q.Asks || q.Query != "" {
		h = fnv1aOn(fnv1aOn(h, "?"), q.Query)
	}
	return h
}

// cookies are the values of the cookies of a name, in their order.
func cookies(fields field.Lines, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range fields {
			if fields[i].Name != "Cookie" {
				continue
			}
			for value := range cookiesNamed(fields[i].Value, name) {
				if !yield(value) {
					return
				}
			}
		}
	}
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
