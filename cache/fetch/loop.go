package fetch

import (
	"net/http"
	"time"

	"millrace/cache/fill"
	"millrace/internal/upstream"
)

// A loop may drive a fetch instead of a goroutine, where nothing is stored for the
// key and there is no tier but memory: it calls Lead, sends what Ask returns, and calls
// Arrived with the answer. What that does not take, and whatever goes wrong, is for
// the goroutine: GoOn, and then [Fetch.Start]. None of the methods waits.

// Lead begins such a fetch.
func (t *Fetch) Lead() { t.c.Meters.Fills.Add(1) }

// Ask is the request, and what is to be called if its answer is put in doubt.
func (t *Fetch) Ask() (out *http.Request, doubt func()) {
	t.sent = time.Now()
	return t.request(t.R.Context(), false), t.c.Purges.OnSuspect(t.c.urlOf(t.R))
}

// Arrived stores a whole answer for whose body there is room in memory, and gives
// it to all who wait: the fetch has ended. It reports false, and has done nothing,
// where it is for nobody else or means something else.
func (t *Fetch) Arrived(resp *http.Response, content []byte) (out Outcome, ok bool) {
	if resp.StatusCode == http.StatusNotModified {
		return out, false
	}
	received := time.Now()
	t.c.Proxy.Restore(resp.Header, t.R)
	o, reason := t.judge(resp, t.sent, received)
	if o == nil || reason != "" && t.Personal {
		return out, false
	}
	t.c.Meters.Upstream.Observe(0, received.Sub(t.sent))
	if reason != "" || o.Stale(received) {
		t.fill.Detach()
	}
	body := fill.NewBody(fill.BodyOptions{Expected: resp.ContentLength, Memory: t.c.Tiers.InMemory()})
	n, err := body.Write(content)
	body.Close(err)
	t.c.Meters.FromUpstream.Add(0, uint64(n))
	out = Outcome{
		Object: o, Body: body, How: "miss", Status: resp.StatusCode, Reason: reason,
		Aged: resp.Header["Age"] != nil, Withheld: t.withheld(resp.Header, o),
	}
	t.commit(o, body, reason == "")
	t.fill.Settle(out)
	t.fill.Finish()
	t.c.Meters.Fills.Add(-1)
	return out, true
}

// GoOn prepares the goroutine of a fetch that a loop has begun, for r, the same
// request as a handler has it; begun is the request to the upstream if it was sent.
func (t *Fetch) GoOn(r *http.Request, begun *upstream.Passage) {
	t.R, t.gone, t.sentEarlier = r, r.Context().Done(), begun
	t.c.Meters.Fills.Add(-1)
}

// GiveUp ends a fetch that a loop has begun and nobody goes on with. If others wait
// for it, the goroutine fetches for them.
func (t *Fetch) GiveUp() {
	t.c.Meters.Fills.Add(-1)
	if !t.fill.Abandon() {
		gone := make(chan struct{})
		close(gone)
		t.gone = gone
		t.Take()
		t.Start()
	}
}
