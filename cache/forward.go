package cache

import (
	"context"
	"net/http"

	"millrace/cache/rfc9111"
)

// copySize is the buffer for bodies on their way.
const copySize = 32 << 10

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

// refreshLater starts a journey in the background for an answer that is stale,
// unless one is under way.
func (h *Handler) refreshLater(x *exchange, o *object) {
	if h.refresh.Add(1) > maxRefreshes {
		h.refresh.Add(-1)
		return
	}
	f, leader := h.fills.Join(x.fillKey())
	if !leader || !f.Enter() {
		h.refresh.Add(-1)
		return
	}
	h.meters.Refreshed.Add(0, 1)
	quiet := *x
	quiet.r = x.r.Clone(context.WithoutCancel(x.r.Context()))
	quiet.r.Method = http.MethodGet
	j := h.journey(f, &quiet, o)
	gone := make(chan struct{})
	close(gone)
	j.gone = gone // an answer for one alone is for nobody
	h.running.Go(func() {
		defer h.refresh.Add(-1)
		defer f.Leave()
		j.run()
	})
}
