package server

import (
	"net/http"
	"slices"

	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/route/headers"
	"millrace/internal/wire/send"
	"millrace/internal/wire/urlpath"
)

// headerRules are the operator's rules for the header of one answer, such as "set
// X-Frame-Options" or those of CORS. nil: there are none.
type headerRules struct {
	rules     *headers.AnswerRules
	cors      *headers.CORS
	r         *http.Request // as the client sent it, with the client's target
	now       *current
	preflight bool // this is the answer to a preflight, which has all its CORS fields
}

// prepareRules returns the header rules for a request, nil for none. Where a rule uses
// the request's id, it gives the request one.
func (a *routed) prepareRules(now *current, came *http.Request, t *trace.Request) *headerRules {
	if a.headers == nil && a.cors == nil {
		return nil
	}
	if a.headers.NeedsID() {
		ctx := headers.WithID(a.request.Context(), t, a.id)
		a.request, came = a.request.WithContext(ctx), came.WithContext(ctx)
	}
	if a.headers.Private() || a.cors != nil && !a.cors.Allows(came) { // the lane cannot keep an answer for each of any number of origins
		a.siteID = 0
	}
	return &headerRules{rules: a.headers, cors: a.cors, r: came, now: now}
}

// policy is what the lane must know in order to repeat the answer.
func (a *headerRules) policy(found *routed) lane.Policy {
	n := lane.Policy{Vary: found.vary, SuccessOnly: len(found.pages) > 0, NoLog: found.noLog}
	if a == nil {
		return n
	}
	n.ApplyHeaders = a.apply
	n.Vary = slices.Concat(n.Vary, a.rules.Vary())
	if a.cors.Varies() {
		n.Vary = append(n.Vary, "Origin")
	}
	if a.rules.Removes("Cache-Status") {
		n.DropLine = func(name string) bool { return name == "Cache-Status" }
	}
	return n
}

// withPreflight answers a CORS preflight, in which a browser asks what scripts may do. It
// returns h for other requests.
func (a *headerRules) withPreflight(h http.Handler) http.Handler {
	if a == nil || a.cors == nil || !headers.IsPreflight(a.r) {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.preflight = true
		a.cors.Preflight(w, r)
	})
}

// apply changes the header of an answer whose content is of a type.
func (a *headerRules) apply(h http.Header, status int, contentType []string) {
	if a.r.Method == http.MethodConnect { // a tunnel begins
		return
	}
	if !a.preflight {
		a.cors.Apply(h, a.r)
	}
	m := headers.Moment{Status: status, Secure: a.r.TLS != nil, Value: a.value}
	if len(contentType) > 0 {
		m.Type = contentType[0]
	}
	if status == http.StatusNotModified {
		m.Kept = send.KeptIn304
	}
	a.rules.Apply(h, m)
}

// value returns the value of a variable for this request.
func (a *headerRules) value(variable string) string {
	switch r := a.r; variable {
	case "client_ip":
		return a.now.sender(r)
	case "host":
		return r.Host
	case "scheme":
		return urlpath.Scheme(r)
	case "method":
		return r.Method
	case "path":
		return r.URL.EscapedPath()
	case "query":
		return r.URL.RawQuery
	case "uri":
		return r.URL.RequestURI()
	}
	return headers.ID(a.r.Context())
}
