package server

import (
	"net/http"
	"slices"

	"millrace/internal/lane"
	"millrace/internal/route/headers"
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
	n.ApplyHeaders = func(h http.Header, status int, contentType []string) {
		v.applyRules(headers.Of(h), status, first(contentType))
	}
	n.Vary = slices.Concat(n.Vary, o.Headers.Vary())
	if o.CORS.Varies() {
		n.Vary = append(n.Vary, "Origin")
	}
	if o.Headers.Removes("Cache-Status") {
		n.DropLine = func(name string) bool { return name == "Cache-Status" }
	}
	return n
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
