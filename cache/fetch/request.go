package fetch

import (
	"context"
	"net/http"
	"slices"

	"millrace/cache/rfc9111"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/proxy"
)

// send sends the request to the upstream, or goes on with what an event loop has started,
// and collects its interim answers.
func (t *Fetch) send(ctx context.Context, out *upstream.Request) (*upstream.Answer, error) {
	if started := t.started; started != nil {
		t.started = nil
		return started.Continue(ctx, out, t.hint)
	}
	return t.c.Upstream.Do(ctx, out, t.hint)
}

// hint keeps an interim answer for the leader, or drops it if too many wait.
func (t *Fetch) hint(status int, fields field.Lines) error {
	select {
	case t.hints <- Hint{status, slices.Clone(fields)}:
	default: // nobody must wait for interim answers
	}
	return nil
}

// request makes the request for the upstream, in room; nil: in memory of its own.
func (t *Fetch) request(validate bool, room *proxy.Room) *upstream.Request {
	out := t.c.Proxy.Shared(t.Head, t.Settings.ByHost, room)
	out.Key, out.OnSuspect = t.Key, t.c.Purges.OnSuspect(t.URL())
	if out.Asks {
		out.Query, out.Asks = t.Settings.Key.Query(out.Query)
	}
	fields := &out.Fields
	t.Settings.Scrub(fields)
	t.c.Proxy.Constant(fields)
	if t.c.CORS {
		fields.Delete("Origin")
	}
	fields.Set("Surrogate-Capability", t.c.Name+`="Surrogate/1.0"`) // no client is one
	if len(t.c.Languages) > 0 {
		// What is compared is what is asked for, or the first client's wishes
		// would decide for all who count as the same.
		fields.Delete("Accept-Language")
		if l := rfc9111.Normal("Accept-Language", t.Head.Fields, t.c.Languages); l != "" {
			fields.Add("Accept-Language", l)
		}
	}
	for _, mark := range t.marks() {
		if fields.Delete(mark.Name); mark.Value != "" {
			*fields = append(*fields, mark)
		}
	}
	if t.pass {
		return out
	}
	out.Method = http.MethodGet
	t.plain(fields)
	for _, name := range []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		fields.Delete(name) // decided here, from the whole answer
	}
	if validate {
		rfc9111.Conditional(fields, headersOf(t.stored))
	}
	return out
}

// marks are the fields by which a trace is followed.
func (t *Fetch) marks() []field.Line {
	if t.Trace != nil {
		return t.Trace.Fields(nil)
	}
	return t.Marks
}

// byClient reports whether an answer depends on who asked: the upstream sees
// these fields as they are made here, of the client's address, and not as the
// client sent them.
func byClient(header http.Header) bool {
	names, _ := rfc9111.Vary(header)
	return slices.Contains(names, "X-Forwarded-For") || slices.Contains(names, "Forwarded")
}
