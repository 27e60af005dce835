package cache

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"

	"millrace/cache/rfc9111"
)

// request is what goes to the upstream.
func (j *journey) request(ctx context.Context, validate bool) *http.Request {
	out := j.h.proxy.Outgoing(j.r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			select {
			case j.hints <- hint{code, http.Header(h).Clone()}:
			default: // nobody must wait for interim answers
			}
			return nil
		},
	})))
	out.Body = nil
	h := out.Header
	j.set.scrub(h)
	if j.h.cors != nil {
		delete(h, "Origin")
	}
	h["Surrogate-Capability"] = append(slices.Clip(h["Surrogate-Capability"]), statusName+`="Surrogate/1.0"`)
	if len(j.h.languages) > 0 {
		// What is compared is what is asked for, or the first client's wishes
		// would decide for all who count as the same.
		delete(h, "Accept-Language")
		if l := rfc9111.Normal("Accept-Language", j.r.Header, j.h.languages); l != "" {
			h["Accept-Language"] = []string{l}
		}
	}
	if j.pass {
		return out
	}
	out.Method = http.MethodGet
	for _, name := range []string{"Range", "If-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		delete(h, name) // decided here, from the whole answer
	}
	if validate {
		headers := make([]http.Header, len(j.stored))
		for i, o := range j.stored {
			headers[i] = o.header()
		}
		rfc9111.Conditional(h, headers)
	}
	return out
}

// overrides are request headers by which some frameworks answer for another
// URL, host or method than the one in the key: poison for a cache.
var overrides = []string{
	"X-Original-Url", "X-Rewrite-Url", "X-Original-Host", "X-Host", "X-Forwarded-Server", "X-Forwarded-Scheme",
	"X-Forwarded-Prefix", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Method",
}

// scrub takes out of a request's header what the key does not know, so that it
// cannot have a say in an answer that others get.
func (s *settings) scrub(h http.Header) {
	for _, name := range overrides {
		delete(h, name)
	}
	if s.auth == dropped {
		delete(h, "Authorization")
	}
	switch {
	case s.cookies == dropped:
		delete(h, "Cookie")
	case s.cookies == keyed && len(s.listed) > 0:
		keepCookies(h, s.listed)
	}
}

// keepCookies leaves only the cookies of these names.
func keepCookies(h http.Header, names []string) {
	var kept []string
	for _, line := range h["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.TrimSpace(pair)
			name, _, _ := strings.Cut(pair, "=")
			for _, n := range names {
				if n == name {
					kept = append(kept, pair)
					break
				}
			}
		}
	}
	delete(h, "Cookie")
	if len(kept) > 0 {
		h["Cookie"] = []string{strings.Join(kept, "; ")}
	}
}

// hopFields reports whether a request's Connection names fields of its own, and
// not just what concerns the connection.
func hopFields(lines []string) bool {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			switch strings.ToLower(strings.Trim(name, " \t")) {
			case "", "close", "keep-alive", "te", "upgrade":
			default:
				return true
			}
		}
	}
	return false
}

// byClient reports whether an answer depends on who asked: the upstream sees
// these fields as they are made here, of the client's address, and not as the
// client sent them.
func byClient(header http.Header) bool {
	names, _ := rfc9111.Vary(header)
	return slices.Contains(names, "X-Forwarded-For") || slices.Contains(names, "Forwarded")
}
