package fetch

import (
	"context"
	"time"

	"millrace/internal/observe/trace"
	"millrace/internal/upstream"
	"millrace/proxy"
)

// An event loop may drive a fetch instead of a goroutine, where there is no tier but
// memory and nothing there that the request selects. It calls Lead, sends that request and
// calls Sent, and calls Arrived with the answer. If Arrived refuses that, or anything goes
// wrong, a goroutine goes on: GoOn, and then [Fetch.Start]. None of these methods waits.

// Lead begins a fetch that an event loop drives, and returns the request to send, which
// is made in room. The loop may use that again, and what t.Head points to, after Arrived
// or GiveUp.
func (t *Fetch) Lead(room *proxy.Room) *upstream.Request {
	t.c.Meters.Fills.Add(1)
	t.out = t.request(true, room)
	return t.out
}

// Out is the request to send.
func (t *Fetch) Out() *upstream.Request { return t.out }

// Sent notes that the request is being sent.
func (t *Fetch) Sent() { t.sent = time.Now() }

// Arrived ends the fetch with a whole answer: it is stored, if there is room for its body
// in memory, and all who wait get it. If it is for the leader alone, the outcome says so,
// and the answer is the caller's. Arrived reports false for what a goroutine has to see to:
// a 304, or a failure that something stored may hide.
func (t *Fetch) Arrived(a *upstream.Answer, content []byte) (out Outcome, ok bool) {
	received := time.Now()
	v := t.arrived(a, received)
	switch v.step {
	case keep:
		out = t.begin(context.Background(), a, v) // nothing of it waits
		_, err := out.Body.Write(content)
		out.Body.Close(err)
		t.commit(out.Object, out.Body, out.Reason == "", true)
		t.fill.Settle(out)
	case handOver:
		out = t.makePrivate(v.reason)
	default:
		return out, false
	}
	t.c.Meters.Upstream.Observe(0, received.Sub(t.sent))
	t.c.Meters.FromUpstream.Add(0, uint64(len(content)))
	t.fill.Finish()
	t.c.Meters.Fills.Add(-1)
	return out, true
}

// GoOn prepares the goroutine that continues a fetch which an event loop has started. ctx is
// that of the request as a handler has it; started is the request to the upstream.
func (t *Fetch) GoOn(ctx context.Context, started *proxy.RoundTrip) {
	t.Gone, t.Trace, t.started = ctx.Done(), trace.From(ctx), started
	t.c.Meters.Fills.Add(-1)
}

// GiveUp ends a fetch that an event loop has started and that its client no longer
// wants. If others wait for it, a goroutine fetches for them.
func (t *Fetch) GiveUp() {
	t.c.Meters.Fills.Add(-1)
	if !t.fill.Abandon() {
		t.Head, t.out = t.Head.Clone(), nil
		t.Gone = gone()
		t.Start()
		t.Take()
	}
}

// gone is the client of a fetch that has none.
func gone() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
