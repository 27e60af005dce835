package cache

import (
	"net/http"

	"millrace/cache/rfc9111"
)

// forward sends a request on that is none of the cache's business: uploads,
// upgrades, whatever is one user's alone.
func (x *exchange) forward() {
	h := x.h
	x.outcome, x.reason = "bypass", x.private
	h.meters.Reasons.Add(x.private)
	why := "bypass"
	if x.private == "method" {
		why = "method"
	}
	r := x.r
	x.addStatus(x.w.Header(), nil, forward{why: why, detail: x.private}.String()) // of an answer of our own, where there is none
	h.proxy.Serve(x.w, r, func(resp *http.Response) {
		x.status = resp.StatusCode
		if rfc9111.Unsafe(r.Method) {
			h.invalidate(r, resp.StatusCode, resp.Header)
		}
		for _, name := range h.hidden {
			delete(resp.Header, name)
		}
		h.cors.Apply(resp.Header, r)
		x.addStatus(resp.Header, resp.Header["Cache-Status"], forward{why: why, status: resp.StatusCode, detail: x.private}.String())
	})
	if x.status == 0 {
		x.outcome, x.reason = "error", "upstream"
	}
}
