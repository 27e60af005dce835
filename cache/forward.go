package cache

import (
	"context"
	"net/http"

	"millrace/cache/rfc9111"
	"millrace/internal/lane"
)

// forward forwards a request that bypasses the cache: uploads, upgrades, requests with
// a user's own credentials.
func (x *exchange) forward() {
	h := x.h
	x.outcome, x.reason = "bypass", x.private
	h.meters.Reasons.Add(x.private)
	r := x.r
	if p, started := lane.Take[*passing](r, h); started {
		p.release()
	}
	x.addStatus(x.w.Header(), nil, bypassed(x.private, 0)) // of an answer of our own, where there is none
	h.proxy.ServeHooked(x.w, r, func(resp *http.Response) {
		x.status = resp.StatusCode
		if rfc9111.Unsafe(r.Method) {
			target := *r.URL
			target.Scheme, target.Host = h.proxy.AskedHTTP(r)
			h.invalidate(context.WithoutCancel(r.Context()), r.Method, target, resp.StatusCode, resp.Header)
		}
		for _, name := range h.hidden {
			delete(resp.Header, name)
		}
		h.cors.Apply(resp.Header, r)
		x.addStatus(resp.Header, resp.Header["Cache-Status"], bypassed(x.private, resp.StatusCode))
	})
	if x.status == 0 {
		x.outcome, x.reason = "error", "upstream"
	}
}

// bypassed is the member of Cache-Status for a request that bypassed the cache for
// a reason, and the status of its answer, 0 for none.
func bypassed(reason string, status int) string {
	why := "bypass"
	if reason == "method" {
		why = reason
	}
	return forward{why: why, status: status, detail: reason}.String()
}
