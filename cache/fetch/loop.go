package fetch

import (
	"net/http"
	"time"

	"millrace/cache/fill"
	"millrace/internal/upstream"
)

// An event loop may drive a fetch instead of a goroutine, where nothing is stored for
// the key and there is no tier but memory. It calls Lead, sends what Ask returns, and
// calls Arrived with the answer. If Arrived refuses that, or anything goes wrong, the
// loop hands the fetch over to a goroutine: GoOn, and then [Fetch.Start]. None of
// these methods waits.

// Lead begins a fetch that an event loop drives.
func (t *Fetch) Lead() { t.c.Meters.Fills.Add(1) }

// Ask returns the request, and the function to call if its answer turns out to be
// suspect; see [upstream.OnSuspect].
func (t *Fetch) Ask() (out *http.Request, onSuspect func()) {
	t.sent = time.Now()
	return t.request(t.R.Context(), false), t.c.Purges.OnSuspect(t.URL())
}

// Arrived stores a whole answer, if there is room for its body in memory, and gives it
// to all who wait; the fetch has ended then. It reports false, and has done nothing,
// if the answer is for this client alone, or a 304, or a failure.
func (t *Fetch) Arrived(resp *http.Response, content []byte) (out Outcome, ok bool) {
	if resp.StatusCode == http.StatusNotModified {
		return out, false
	}
	received := time.Now()
	t.c.Proxy.RestoreHTTP(resp.Header, t.R)
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

// GoOn prepares the goroutine that continues a fetch which an event loop has begun. r
// is the request as a handler has it; earlier is the request to the upstream, nil if it
// was not sent.
func (t *Fetch) GoOn(r *http.Request, earlier *upstream.Passage) {
	t.R, t.gone, t.sentEarlier = r, r.Context().Done(), earlier
	t.c.Meters.Fills.Add(-1)
}

// GiveUp ends a fetch that an event loop has begun and that its client no longer
// wants. If others wait for it, a goroutine fetches for them.
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
