package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/store/bus"
)

// flushWindow is how many publications of the outbox are on their way to the
// server at a time: enough to hide the way there and back.
const flushWindow = 256

// pending is a publication whose place is not known yet. What may change is
// under its worker's mu.
type pending struct {
	token   string
	key     string
	message bus.Message // with no offset
	users   int         // calls of Publish
	queued  bool        // in the outbox
	local   *channel    // to whose listeners it was delivered here without an offset
	placed  bool        // and the listener knows its offset
	echoed  uint64      // the offset with which it came from the server
	// Where and when it was sent for the first time.
	sentAt time.Time
	epoch  string
	after  uint64 // the highest number then
}

// Publish implements [bus.Bus]. It returns when the server has confirmed the
// publication, after two seconds at the latest; then, or if the server cannot
// be reached, it is in the outbox, and has no offset.
func (b *Bus) Publish(ctx context.Context, m bus.Message) (bus.Message, error) {
	if err := ctx.Err(); err != nil {
		return bus.Message{}, err
	}
	if err := bus.CheckChannel(m.Channel); err != nil {
		return bus.Message{}, err
	}
	if err := b.ended(); err != nil {
		return bus.Message{}, err
	}
	if m.ID == "" {
		m.ID = b.id + "-" + strconv.FormatUint(b.seq.Add(1), 36)
	}
	if err := b.tooBig(m); err != nil {
		return bus.Message{}, err
	}
	m.Offset = 0
	m.Time = time.UnixMilli(time.Now().UnixMilli()) // as others will see it
	token := encode(m.Channel)
	w := b.worker(token)
	p := w.enter(token, m)
	defer w.leave(p)
	if w.waits(p) {
		return p.message, nil
	}
	if b.link.wait(ctx, syncWait) == up {
		seq, err := b.send(ctx, p)
		if err == nil {
			m.Offset = seq
			return m, nil
		}
		if !errors.Is(err, bus.ErrDown) {
			return bus.Message{}, err
		}
		b.link.note(func() { b.link.suspect = true })
	}
	if err := ctx.Err(); err != nil {
		return bus.Message{}, err
	}
	return w.keep(p)
}

// send sends a publication and waits until it is confirmed. ErrDown says that
// this did not happen, and that it may be tried again.
func (b *Bus) send(ctx context.Context, p *pending) (uint64, error) {
	began := time.Now()
	f, err := b.dispatch(p)
	if err != nil {
		return 0, err
	}
	seq, err := b.confirmed(ctx, f)
	b.meters.Call(began, err != nil && !errors.Is(err, context.Canceled))
	return seq, err
}

// dispatch sends a publication.
func (b *Bus) dispatch(p *pending) (jetstream.PubAckFuture, error) {
	b.worker(p.token).sent(p)
	f, err := b.js.PublishMsgAsync(b.wire(p), jetstream.WithRetryAttempts(0))
	if err != nil {
		return nil, fmt.Errorf("%w: publishing: %w", bus.ErrDown, err)
	}
	b.meters.Written.Add(0, uint64(len(p.message.Data)))
	return f, nil
}

// confirmed waits for the server's word, which comes, or fails to, within
// ackTimeout.
func (b *Bus) confirmed(ctx context.Context, f jetstream.PubAckFuture) (uint64, error) {
	select {
	case ack := <-f.Ok():
		b.order.saw(ack.Sequence)
		return ack.Sequence, nil
	case err := <-f.Err():
		if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.Code != 503 {
			return 0, fmt.Errorf("the stream %s refuses the publication: %w", b.o.Name, err)
		}
		return 0, fmt.Errorf("%w: publishing: %w", bus.ErrDown, err)
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-b.ctx.Done():
		return 0, bus.ErrClosed
	}
}

// enter notes a publication before it is sent, so that it is recognised if it comes
// back before its confirmation.
func (w *worker) enter(token string, m bus.Message) *pending {
	key := keyOf(token, m.ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[key]
	if p == nil {
		p = &pending{token: token, key: key, message: m}
		w.pending[key] = p
	}
	p.users++
	return p
}

func (w *worker) leave(p *pending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.users--
	w.forget(p)
}

// forget removes a publication that nobody needs any more. It is called under mu.
func (w *worker) forget(p *pending) {
	if p.users == 0 && !p.queued && w.pending[p.key] == p {
		delete(w.pending, p.key)
	}
}

// waits reports whether a publication with the same ID is in the outbox.
func (w *worker) waits(p *pending) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.queued
}

// sent notes the number behind which a publication can be in the stream.
func (w *worker) sent(p *pending) {
	epoch, after := w.b.order.current(), w.b.order.highest()
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.sentAt.IsZero() {
		p.sentAt, p.epoch, p.after = time.Now(), epoch, after
	}
}

// keep delivers a publication here that the server did not confirm, and puts it into
// the outbox; unless it has come back from the server meanwhile.
func (w *worker) keep(p *pending) (bus.Message, error) {
	m, queue, ok := w.deliverHere(p)
	if !ok {
		return bus.Message{}, bus.ErrClosed
	}
	if queue {
		w.b.lose(w.b.outbox.add(p))
		w.b.link.note(func() {})
	}
	return m, nil
}

// deliverHere is keep without the outbox: queue says that it belongs there. It is not ok
// when the bus closes.
func (w *worker) deliverHere(p *pending) (m bus.Message, queue, ok bool) {
	m = p.message
	ok = w.await(func() {
		w.mu.Lock()
		m.Offset = p.echoed
		c := w.channels[p.token]
		if queue = p.echoed == 0 && !p.queued; queue {
			p.queued = true
			if p.local = c; c != nil {
				c.local++
			}
		}
		w.mu.Unlock()
		if queue && c != nil {
			w.b.listener.Deliver(m)
		}
	})
	return m, queue, ok
}

// lose drops publications for which the outbox has no room.
func (b *Bus) lose(all []*pending) {
	if len(all) == 0 {
		return
	}
	b.log.Warn("publications are lost for other machines: there were more than the history holds", "messages", len(all))
	for _, p := range all {
		w := b.worker(p.token)
		w.mu.Lock()
		p.queued = false
		asked := p.local != nil && !p.placed && p.local.settle()
		w.forget(p)
		w.mu.Unlock()
		if asked {
			w.do(func() { b.listener.Reset(p.message.Channel) })
		}
	}
}

// flush sends what is in the outbox, in order.
func (b *Bus) flush(ctx context.Context) error {
	for {
		batch, expired := b.outbox.batch(flushWindow)
		b.lose(expired)
		if len(batch) == 0 {
			return nil
		}
		futures := make([]jetstream.PubAckFuture, 0, len(batch))
		var failed error
		for _, p := range batch {
			seq, err := b.recall(ctx, p)
			if err != nil {
				failed = err
				break
			}
			if seq > 0 {
				futures = append(futures, nil)
				b.arrived(p, seq)
				continue
			}
			f, err := b.dispatch(p)
			if err != nil {
				failed = err
				break
			}
			futures = append(futures, f)
		}
		for i, f := range futures {
			if f == nil {
				continue
			}
			seq, err := b.confirmed(ctx, f)
			switch {
			case err == nil:
				b.arrived(batch[i], seq)
			case errors.Is(err, bus.ErrDown) || ctx.Err() != nil || b.ctx.Err() != nil:
				failed = err
			default:
				b.log.Warn("a publication from the outbox", "channel", batch[i].message.Channel, "error", err)
				b.outbox.remove(batch[i])
				b.lose(batch[i : i+1])
			}
		}
		if failed != nil {
			return failed
		}
	}
}

// recall searches the stream for a publication that was sent so long ago that the
// server may not recognise its ID. It returns its number there, or 0.
func (b *Bus) recall(ctx context.Context, p *pending) (uint64, error) {
	w := b.worker(p.token)
	w.mu.Lock()
	at, epoch, after := p.sentAt, p.epoch, p.after
	w.mu.Unlock()
	if at.IsZero() || time.Since(at) < b.window/2 || epoch != b.order.current() {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := b.read(ctx, p.token, after)
	if err != nil {
		return 0, fmt.Errorf("%w: looking for what was sent before: %w", bus.ErrDown, err)
	}
	for _, s := range all.messages {
		if s.message("").ID == p.message.ID {
			return s.seq, nil
		}
	}
	return 0, nil
}

// arrived removes a publication from the outbox that has its offset.
func (b *Bus) arrived(p *pending, seq uint64) {
	b.outbox.remove(p)
	w := b.worker(p.token)
	w.do(func() {
		w.mu.Lock()
		p.queued = false
		placed := p.local != nil && !p.placed
		p.placed = true
		asked := placed && p.local.settle()
		if c := w.channels[p.token]; c != nil && p.local == c && c.seen < seq {
			if c.owed == nil {
				c.owed = map[string]*pending{}
			}
			c.owed[p.key] = p // it will come by
		}
		w.forget(p)
		w.mu.Unlock()
		if placed {
			w.b.listener.Placed(p.message.Channel, p.message.ID, seq)
		}
		if asked {
			w.b.listener.Reset(p.message.Channel)
		}
	})
}
