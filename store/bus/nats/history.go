package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/store/bus"
)

const (
	// singly is how many messages are asked for one by one, before a consumer is
	// made, which takes the server as long as a few of them.
	singly = 4
	// fetchMost is how many are asked of a consumer at a time: of the largest
	// that servers take by default, 32 MiB.
	fetchMost = 32
	// consumerIdle is when the server removes a consumer that we could not.
	consumerIdle = 30 * time.Second
	// skew is how much clocks of machines may differ at the very first
	// catching up, where no number is known to begin at.
	skew = 2 * time.Second
	// noMessage is the server's code for a message that is not there.
	noMessage = 10037
)

var errNoMessage = errors.New("no such message in the stream")

// reading is what was read of a channel.
type reading struct {
	messages []stored
	last     uint64 // the number of its last message, 0 if it has none
}

// get asks for one message. The question has seq, next_by_subj or both, or
// last_by_subj.
func (b *Bus) get(ctx context.Context, question getRequest) (stored, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := b.request(ctx, "STREAM.MSG.GET."+b.o.Name, question, &answer); err != nil {
		return stored{}, err
	}
	if answer.Error != nil {
		if answer.Error.ErrorCode == noMessage {
			return stored{}, errNoMessage
		}
		return stored{}, fmt.Errorf("reading a message of the stream %s: %w", b.o.Name, answer.Error)
	}
	m := answer.Message
	s := stored{token: b.tokenOf(m.Subject), seq: m.Seq, data: m.Data, time: m.Time}
	if len(m.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			return stored{}, fmt.Errorf("reading the headers of message %d of the stream %s: %w", m.Seq, b.o.Name, err)
		}
		s.header = h
	}
	return s, nil
}

type getRequest struct {
	Seq  uint64 `json:"seq,omitempty"`
	Next string `json:"next_by_subj,omitempty"`
	Last string `json:"last_by_subj,omitempty"`
}

func (b *Bus) tokenOf(subject string) string {
	if len(subject) <= len(b.o.Name)+4 {
		return ""
	}
	return subject[len(b.o.Name)+4:] // NAME.in.
}

// read reads what the stream has of a channel after a number.
func (b *Bus) read(ctx context.Context, token string, after uint64) (reading, error) {
	last, err := b.get(ctx, getRequest{Last: b.in(token)})
	if errors.Is(err, errNoMessage) {
		return reading{}, nil
	}
	if err != nil {
		return reading{}, err
	}
	r := reading{last: last.seq}
	at := after
	for range singly {
		if at >= last.seq {
			return r, nil
		}
		s, err := b.get(ctx, getRequest{Seq: at + 1, Next: b.in(token)})
		if errors.Is(err, errNoMessage) {
			return r, nil // it has expired meanwhile
		}
		if err != nil {
			return reading{}, err
		}
		r.messages = append(r.messages, s)
		at = s.seq
	}
	err = b.consume(ctx, source{token: token, after: at, until: last.seq}, func(found []stored) error {
		r.messages = append(r.messages, found...)
		return nil
	})
	return r, err
}

// source is a part of the stream to read.
type source struct {
	token string // ">" is all channels
	after uint64
	since time.Time // begin there, not behind after; if it is not zero
	until uint64
}

// consume reads many messages, in order, a batch at a time.
func (b *Bus) consume(ctx context.Context, s source, take func([]stored) error) error {
	if s.after >= s.until {
		return nil
	}
	config := jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       s.after + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubject:     b.in(s.token),
		MemoryStorage:     true,
		InactiveThreshold: consumerIdle,
		Replicas:          1,
	}
	if !s.since.IsZero() {
		config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &s.since
	}
	consumer, err := b.js.CreateConsumer(ctx, b.o.Name, config)
	if err != nil {
		return fmt.Errorf("reading the stream %s: %w", b.o.Name, err)
	}
	defer func() {
		_ = b.js.DeleteConsumer(ctx, b.o.Name, consumer.CachedInfo().Name) // else the server does so later
	}()
	at, left, number := s.after, consumer.CachedInfo().NumPending, uint64(0)
	for left > 0 && at < s.until {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch, err := consumer.FetchNoWait(int(min(left, fetchMost)))
		if err != nil {
			return fmt.Errorf("reading the stream %s: %w", b.o.Name, err)
		}
		var found []stored
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return fmt.Errorf("reading the stream %s: %w", b.o.Name, err)
			}
			if number++; meta.Sequence.Consumer != number {
				return fmt.Errorf("reading the stream %s: message %d came where %d was due", b.o.Name, meta.Sequence.Consumer, number)
			}
			at, left = meta.Sequence.Stream, meta.NumPending
			found = append(found, stored{b.tokenOf(m.Subject()), at, m.Headers(), m.Data(), meta.Timestamp})
		}
		if err := batch.Error(); err != nil {
			return fmt.Errorf("reading the stream %s: %w", b.o.Name, err)
		}
		if len(found) == 0 {
			return nil // what was left has expired meanwhile
		}
		if err := take(found); err != nil {
			return err
		}
	}
	return nil
}

// reaches reports whether a channel of which count messages came after a
// number has lost none of those, as far as the stream's bounds tell: what is
// dropped for age or for the stream's size is its oldest, and what is dropped
// for the channel's size leaves it full.
func (i info) reaches(after uint64, count int64) bool {
	return i.first <= after+1 && count < i.perChannel && i.limits <= after
}

// whole reports whether a reading has all that came after a number. It must be
// called behind it: what is dropped meanwhile counts.
func (b *Bus) whole(ctx context.Context, token string, after uint64, r reading) (bool, error) {
	if r.last > 0 && r.last <= after {
		return true, nil // the last one is older, and the oldest go first
	}
	if r.last > 0 && after > 0 {
		oldest, err := b.get(ctx, getRequest{Seq: 1, Next: b.in(token)})
		if err == nil && oldest.seq <= after {
			return true, nil // an older one is still there, and the oldest go first
		}
		if err != nil && !errors.Is(err, errNoMessage) {
			return false, err
		}
	}
	now, err := b.info(ctx, token)
	if err != nil {
		return false, err
	}
	return now.reaches(after, int64(now.kept)), nil
}

// History implements [bus.Bus].
func (b *Bus) History(name string, since *bus.Position, limit int, done func(bus.History, error)) {
	if err := bus.CheckChannel(name); err != nil {
		done(bus.History{}, err)
		return
	}
	if err := b.ended(); err != nil {
		done(bus.History{}, err)
		return
	}
	if p, _ := b.link.now(); p == down {
		done(bus.History{}, bus.ErrDown)
		return
	}
	if since != nil {
		copied := *since
		since = &copied
	}
	token := encode(name)
	err := b.ask(func(ctx context.Context) {
		if b.link.wait(ctx, syncWait) != up {
			done(bus.History{}, b.unless(bus.ErrDown))
			return
		}
		b.worker(token).asks(token)
		h, err := b.history(ctx, name, since, limit)
		if err != nil {
			b.link.note(func() { b.link.suspect = true })
			done(bus.History{}, b.unless(fmt.Errorf("%w: the history of a channel: %w", bus.ErrDown, err)))
			return
		}
		done(h, nil)
	})
	if err != nil {
		done(bus.History{}, err)
	}
}

// unless returns ErrClosed once the bus closes, else err.
func (b *Bus) unless(err error) error {
	if closed := b.ended(); closed != nil {
		return closed
	}
	return err
}

func (b *Bus) history(ctx context.Context, name string, since *bus.Position, limit int) (bus.History, error) {
	token := encode(name)
	now, err := b.share(ctx)
	if err != nil {
		return bus.History{}, err
	}
	b.order.saw(now.last)
	b.worker(token).based(token, now.last)
	h := bus.History{Top: bus.Position{Epoch: now.epoch, Offset: now.last}}
	after := uint64(0)
	known := since != nil && since.Epoch == now.epoch && since.Offset <= now.last
	if known {
		after = since.Offset
	}
	all, err := b.read(ctx, token, after)
	if err != nil {
		return bus.History{}, err
	}
	if known {
		if h.Complete, err = b.whole(ctx, token, after, all); err != nil {
			return bus.History{}, err
		}
	}
	for _, s := range all.messages {
		if s.seq <= now.last {
			h.Messages = append(h.Messages, s.message(name))
		}
	}
	if b.o.Keep.Messages == 0 && len(h.Messages) > 0 {
		h.Messages, h.Complete = nil, false
	}
	if limit > 0 && len(h.Messages) > limit {
		h.Messages, h.Complete = h.Messages[len(h.Messages)-limit:], false
	}
	return h, nil
}

// catchUp delivers what the channels that are listened to have missed before a
// connection, and on it.
func (b *Bus) catchUp(ctx context.Context, now info, dials uint64) error {
	id := b.fills.Add(1)
	known := b.order.inStep()
	n, from := 0, now.last
	for _, w := range b.workers {
		w.await(func() {
			count, lowest := w.begin(id)
			n += count
			from = min(from, lowest)
		})
	}
	src := source{token: ">", after: from, until: now.last}
	if !known {
		src.since = b.startedAt.Add(-skew)
	}
	if n > 0 {
		if err := b.consume(ctx, src, func(found []stored) error { return b.distribute(id, found) }); err != nil {
			return fmt.Errorf("%w: catching up: %w", bus.ErrDown, err)
		}
	}
	after, err := b.within(ctx, now, n)
	if err != nil {
		return err
	}
	b.link.caughtUp.Store(dials) // what is held back goes through take again
	for _, w := range b.workers {
		w.await(func() { w.end(id, now.last, after, !known) })
	}
	b.order.caughtUp(now.last)
	return nil
}

// within returns what the stream is after a reading for n channels.
func (b *Bus) within(ctx context.Context, now info, n int) (info, error) {
	if n == 0 {
		return now, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	after, err := b.info(ctx, "")
	if err != nil {
		return info{}, fmt.Errorf("%w: catching up: %w", bus.ErrDown, err)
	}
	return after, nil
}

// distribute gives messages to the workers of their channels.
func (b *Bus) distribute(id uint64, found []stored) error {
	var parts [workers][]stored
	for _, s := range found {
		for i, w := range b.workers {
			if b.worker(s.token) == w {
				parts[i] = append(parts[i], s)
			}
		}
	}
	for i, part := range parts {
		if len(part) > 0 && !b.workers[i].do(func() { b.workers[i].read(id, part) }) {
			return bus.ErrClosed
		}
	}
	return nil
}
