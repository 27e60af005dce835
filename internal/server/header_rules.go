package server

import (
	"net/http"
	"slices"
	"strings"

	"millrace/internal/lane"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/wire/field"
	"millrace/internal/wire/send"
)

// hasPolicy reports whether the lane must know anything in order to repeat the answer.
func (v *visit) hasPolicy() bool {
	o := v.route
	return o.Headers != nil || o.CORS != nil || len(v.found.Vary) > 0 || len(o.Pages) > 0 || o.NoLog
}

// policy is what the lane must know in order to repeat the answer.
func (v *visit) policy() lane.Policy {
	o := v.route
	n := lane.Policy{Vary: v.found.Vary, SuccessOnly: len(o.Pages) > 0, NoLog: o.NoLog}
	if o.Headers == nil && o.CORS == nil {
		return n
	}
	n.HeaderRules = v.kept
	n.Vary = slices.Concat(n.Vary, o.Headers.Vary())
	if o.CORS.Varies() {
		n.Vary = append(n.Vary, "Origin")
	}
	if o.Headers.Removes("Cache-Status") {
		n.DropLine = func(name string) bool { return name == "Cache-Status" }
	}
	return n
}

// ruled is what rules for the header of an answer look at where the answer is one for many
// requests.
type ruled struct {
	route      *site.Route
	origin     headers.Origin
	host, path string
	secure     bool
}

// kept returns the rules for an answer that the lane keeps. They hold on to nothing else of
// the request: its strings are parts of its head.
func (r *ruled) kept() func(h http.Header, status int, contentType []string) {
	own := *r
	own.host, own.path, own.origin.Text = strings.Clone(r.host), strings.Clone(r.path), strings.Clone(r.origin.Text)
	return func(h http.Header, status int, contentType []string) {
		of := headers.Of(h)
		own.route.CORS.ApplyTo(of, own.origin)
		own.applyHeaders(of, status, first(contentType), own.value)
	}
}

// applyHeaders applies the rules of the route, but for CORS.
func (r *ruled) applyHeaders(h field.Fields, status int, contentType string, value func(variable string) string) {
	if r.route.Headers == nil {
		return
	}
	m := headers.Moment{Status: status, Type: contentType, Secure: r.secure, Value: value}
	if status == http.StatusNotModified {
		m.Kept = send.KeptIn304
	}
	r.route.Headers.Apply(h, &m)
}

// value returns the value of a variable in a rule.
func (r *ruled) value(variable string) string {
	switch variable {
	case "host":
		return r.host
	case "path":
		return r.path
	case "scheme":
		return r.scheme()
	}
	return ""
}

func (r *ruled) scheme() string {
	if r.secure {
		return "https"
	}
	return "http"
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
