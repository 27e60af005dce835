package fetch

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"millrace/cache/fill"
	"millrace/cache/tier"
	"millrace/internal/upstream"
)

const (
	// windowSize is how far the upstream may be ahead of the slowest client
	// when an answer is too large to be kept anywhere.
	windowSize = 512 << 10
	// LookAhead is how much of an answer is read before any client gets a part of
	// it: an answer that is no longer is read as a whole, and so is the beginning of
	// one that would replace a stored answer which may be served if it fails. It is
	// about what comes in one round trip of a connection in use.
	LookAhead = 32 << 10
	// LookAheadTime ends that for an answer which would replace another and comes
	// slowly: those who wait get what there is.
	LookAheadTime = time.Second
	// atOnceTime ends it for others: it is about an answer that an application sends in
	// one go, but not in one piece.
	atOnceTime = 10 * time.Millisecond
)

// begin makes the outcome of an answer that is to be kept, with an empty body.
func (t *Fetch) begin(ctx context.Context, a *upstream.Answer, v verdict) Outcome {
	o := v.object
	if v.reason != "" || o.Stale(time.Now()) {
		t.fill.Detach() // who comes now has to ask again (RFC 9111, 4)
		t.release(noteNone)
	}
	t.tooLarge(a.Length)
	body := fill.NewBody(fill.BodyOptions{
		Expected: a.Length,
		Memory:   t.c.Tiers.InMemory(),
		Overflow: t.c.Tiers.Overflow(t.Key, o, a.Length),
		Window:   windowSize,
		Context:  ctx,
	})
	return Outcome{
		Object: o, Body: body, How: "miss", Status: a.Status, Reason: v.reason,
		Aged: a.Fields.Has("Age"), Withheld: t.withheld(a.Fields, o),
	}
}

// grow streams an answer into a body that everyone who waits reads, and stores
// it when it is whole.
func (t *Fetch) grow(ctx context.Context, a *upstream.Answer, d verdict) {
	defer a.Body.Close()
	out := t.begin(ctx, a, d)
	body, o := out.Body, out.Object
	v := t.preview(body, out)
	buf := fill.Buffers.Get().(*[fill.BufferSize]byte)
	defer fill.Buffers.Put(buf)
	n, err := io.CopyBuffer(v, onlyReader{a.Body}, buf[:])
	if err != nil {
		t.fill.Detach() // who comes from now on is not to be cut off with the others
	}
	body.Close(err)
	t.c.Meters.FromUpstream.Add(0, uint64(n))
	if body.Overflowed() != nil && (err == nil || v.shown.Load()) { // what was written may be withdrawn: not before the leader holds it
		v.show()
		select {
		case <-t.taken:
		case <-t.Gone:
		case <-ctx.Done():
		}
	}
	if err != nil {
		v.stop()
		t.c.ErrorLog.Warn("an answer broke off and was not stored", "url", o.Owner.URL, "err", err)
		tier.Discard(body)
		t.fill.Settle(Outcome{Err: err, Object: t.fallback()}) // of no effect once the answer was shown
		return
	}
	t.commit(o, body, out.Reason == "", false)
	v.show()
}

// onlyReader hides that a body may have a WriteTo.
type onlyReader struct{ io.Reader }

// preview writes to a body, and holds it back from the waiting clients for a short
// time. An answer that says that it is small, and comes in one go, is stored before
// anyone gets it, so that a client which has it may rely on its being stored. An answer that breaks
// off in that time is a failure, for which a stored answer can be served instead.
type preview struct {
	of       *Fetch
	body     *fill.Body
	whole    bool // nobody gets any of it before all of it is there, unless that is late
	show     func()
	shown    atomic.Bool
	timer    *time.Timer // nil without one
	received int
}

func (t *Fetch) preview(body *fill.Body, out Outcome) *preview {
	v := &preview{of: t, body: body, whole: 0 <= body.Expected() && body.Expected() <= LookAhead}
	v.show = sync.OnceFunc(func() {
		v.stop()
		v.shown.Store(true)
		t.fill.Settle(out)
	})
	late := func() { v.shown.Store(true); t.fill.Settle(out) }
	switch {
	case t.hides():
		v.timer = time.AfterFunc(LookAheadTime, late)
	case v.whole:
		v.timer = time.AfterFunc(atOnceTime, late)
	default:
		v.show()
	}
	return v
}

// Write implements io.Writer.
func (v *preview) Write(p []byte) (int, error) {
	n, err := v.body.Write(p)
	if v.received += n; err == nil && !v.whole && v.received > LookAhead {
		v.show()
	}
	v.of.tooLarge(int64(v.received))
	return n, err
}

// stop ends the timer.
func (v *preview) stop() {
	if v.timer != nil {
		v.timer.Stop()
	}
}
