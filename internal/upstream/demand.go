package upstream

import (
	"net/url"
	"strings"
)

// demandOf is what a request demands of its server: by hash key, cookie, and whether it
// becomes a stream.
func (p *Pool) demandOf(q *Request, stream bool) demand {
	what := demand{stream: stream, client: q.client()}
	if p.options.Balance == "hash" && len(p.servers) > 1 {
		what.key = p.hashOf(q)
	}
	if cookie := p.options.Sticky.Cookie; cookie != "" && len(p.servers) > 1 {
		for value := range q.Fields.Cookies(cookie) {
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
		for key = range q.Fields.Cookies(by.name) {
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
