package headers

import (
	"net/http"
	"slices"
	"strings"

	"millrace/internal/wire/field"
	"millrace/internal/wire/pages"
)

const (
	// longestEcho is how many bytes of Access-Control-Request-Headers are sent
	// back under headers: "*". Browsers ask for a few names.
	longestEcho = 4 << 10

	preflightVary = "Origin, " + requestMethod + ", " + requestHeaders
)

// Preflight answers an OPTIONS request that is a preflight (Fetch Standard,
// 3.2.2: with Origin and Access-Control-Request-Method), and reports whether it
// was one; it is for no one else then.
//
// An origin that is allowed gets 204 with what it may do; whether that covers
// what it asked for, the browser finds out. Another one gets 403 without any
// field of CORS: the browser would refuse after a 204 just as well, but the
// status tells whoever looks at the network panel or the log where it was
// decided, and that asking again is no use. Access to private networks is not
// granted, whoever asks.
func (p *CORS) Preflight(w http.ResponseWriter, r *http.Request) bool {
	if p == nil || !IsPreflight(r) {
		return false
	}
	origin, _ := requestOrigin(r)
	method := r.Header.Get(requestMethod)
	h := w.Header()
	h["Vary"] = append(slices.Clip(h["Vary"]), preflightVary) // also where the answer is constant: it costs nothing here
	if p.rule(origin) < 0 {
		pages.Error(w, r, http.StatusForbidden, "This origin may not read here.")
		return true
	}
	h[allowOrigin] = p.constant
	if p.constant == nil {
		h[allowOrigin] = []string{origin}
	}
	if p.credentials {
		h[allowCredentials] = []string{"true"}
	}
	if methods := granted(p.methods, method, field.Token); methods != "" {
		h[allowMethods] = []string{methods}
	}
	asked := strings.Join(r.Header[requestHeaders], ", ")
	if headers := granted(p.headers, asked, tokens); headers != "" {
		h[allowHeaders] = []string{headers}
	}
	h[maxAge] = p.age
	w.WriteHeader(http.StatusNoContent)
	return true
}

// granted is what the options list, or, where they say any, what was asked for,
// if it can stand in an answer. The "*" of the standard will not do: it does
// not hold with credentials, nor ever for Authorization.
func granted(listed, asked string, valid func(string) bool) string {
	switch {
	case listed != wildcard:
		return listed
	case len(asked) > longestEcho || !valid(asked):
		return ""
	}
	return asked
}

// tokens reports whether s is a list of tokens.
func tokens(s string) bool {
	for name := range strings.SplitSeq(s, ",") {
		if !field.Token(strings.Trim(name, " \t")) {
			return false
		}
	}
	return true
}
