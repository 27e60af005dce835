package fetch

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"

	"millrace/cache/rfc9111"
	"millrace/internal/upstream"
)

// send sends the request to the upstream, and collects its interim answers.
func (t *Fetch) send(out *http.Request) (*http.Response, error) {
	if pool, ok := t.c.Transport.(*upstream.Pool); ok {
		if earlier := t.sentEarlier; earlier != nil {
			t.sentEarlier = nil
			return pool.Resume(out, earlier, t.hint)
		}
		return pool.Ask(out, t.hint)
	}
	return t.c.Transport.RoundTrip(out.WithContext(httptrace.WithClientTrace(out.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error { return t.hint(code, http.Header(h)) },
	})))
}

// hint keeps an interim answer for the leader, or drops it if too many wait.
func (t *Fetch) hint(code int, h http.Header) error {
	select {
	case t.hints <- Hint{code, h.Clone()}:
	default: // nobody must wait for interim answers
	}
	return nil
}

// request makes the request for the upstream.
func (t *Fetch) request(ctx context.Context, validate bool) *http.Request {
	// The request's own context says which fields name its user: they must not go.
	out := t.c.Proxy.SharedHTTP(t.R, t.Settings.ByHost).WithContext(ctx)
	out.Body = nil
	if u := out.URL; u.RawQuery != "" || u.ForceQuery {
		var found bool
		u.RawQuery, found = t.Settings.Key.Query(u.RawQuery)
		u.ForceQuery = found && u.RawQuery == ""
	}
	h := out.Header
	t.Settings.Scrub(h)
	t.c.Proxy.ConstantHTTP(h)
	if t.c.CORS {
		delete(h, "Origin")
	}
	h["Surrogate-Capability"] = []string{t.c.Name + `="Surrogate/1.0"`} // no client is one
	if len(t.c.Languages) > 0 {
		// What is compared is what is asked for, or the first client's wishes
		// would decide for all who count as the same.
		delete(h, "Accept-Language")
		if l := rfc9111.Normal("Accept-Language", t.Head.Fields, t.c.Languages); l != "" {
			h["Accept-Language"] = []string{l}
		}
	}
	if t.pass {
		return out
	}
	out.Method = http.MethodGet
	t.plain(h)
	for _, name := range []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		delete(h, name) // decided here, from the whole answer
	}
	if validate {
		headers := make([]http.Header, len(t.stored))
		for i, o := range t.stored {
			headers[i] = o.Header()
		}
		rfc9111.Conditional(h, headers)
	}
	return out
}

// byClient reports whether an answer depends on who asked: the upstream sees
// these fields as they are made here, of the client's address, and not as the
// client sent them.
func byClient(header http.Header) bool {
	names, _ := rfc9111.Vary(header)
	return slices.Contains(names, "X-Forwarded-For") || slices.Contains(names, "Forwarded")
}
