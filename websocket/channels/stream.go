package channels

import (
	"errors"
	"net/http"
	"sync"

	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/hub"
)

// stream is one event stream. The runner of the hub's last shard puts items into its
// queue; the request's goroutine takes them out, and everything else belongs to that
// goroutine.
type stream struct {
	c       *Channels
	grant   *auth.Grant
	refused []string // channels that the grant does not allow
	member  *bus.Member
	shard   uint32 // of the meters
	woken   chan struct{}

	places []*place // by channel, in the order of their names
	marks  cursor   // likewise
	batch  []item   // taken from the queue, not put into text yet

	mu       sync.Mutex
	queue    []item
	bytes    int  // of publications in queue, batch and the text being written
	length   int  // their number
	answered int  // subscriptions that have begun, or failed
	slow     bool // more came than may wait: it is over
	broken   bool // the bus failed: likewise
}

// place is a subscription of a stream. After a reset the channel gets another
// one, and what still came to the old one counts no more.
type place struct {
	s       *stream
	i       int // of the channel
	channel string
	since   bool // it goes on somewhere
	sub     *hub.Subscription
}

// item is a publication, or where a subscription begins.
type item struct {
	at    *place
	p     *hub.Publication
	start *hub.Answer
}

// written is a text being written, and what is to be subtracted from what waits when
// it is.
type written struct {
	text          []byte
	events        int
	bytes, length int
	more          bool // there is more to write
}

func newStream(c *Channels, channels []string, grant *auth.Grant) *stream {
	s := &stream{c: c, grant: grant, shard: c.serial.Add(1), woken: make(chan struct{}, 1)}
	for i, channel := range channels {
		s.places = append(s.places, &place{s: s, i: i, channel: channel})
		s.marks = append(s.marks, newMark(channel))
	}
	s.marks.disambiguate(channels)
	if c.presence {
		s.member = newMember(grant, "")
	}
	return s
}

// subscribe subscribes to all channels, each behind its position in the client's last
// id. If a part of the id could not be read (whole is false), a channel without a
// position may have had one there. It then starts behind an unknown position, so that
// the client gets a reset.
func (s *stream) subscribe(from map[string]bus.Position, whole bool) *Refusal {
	for i, at := range s.places {
		var since *bus.Position
		if p, ok := from[s.marks[i].key]; ok {
			s.marks[i].move(p)
			since = &p
		} else if !whole {
			since = &bus.Position{}
		}
		if err := s.begin(at, since); errors.Is(err, bus.ErrClosed) {
			return refusal(http.StatusServiceUnavailable, "the channels are being closed: come back and try again")
		} else if err != nil {
			return refusal(http.StatusServiceUnavailable, err.Error())
		}
	}
	return nil
}

func (s *stream) begin(at *place, since *bus.Position) (err error) {
	at.since = since != nil
	at.sub, err = s.c.hub.Subscribe(hub.Request{
		Shard: s.c.last, Subscriber: at, Channel: at.channel, Since: since, Member: s.member, Done: at.done,
	})
	return err
}

// close ends all subscriptions.
func (s *stream) close() {
	for _, at := range s.places {
		if at.sub != nil {
			s.c.hub.Unsubscribe(at.sub)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = true // nothing more is taken
	s.count(-s.bytes, -s.length)
	s.queue = nil
}

// count adds to what waits; mu is held.
func (s *stream) count(bytes, length int) {
	s.bytes += bytes
	s.length += length
	s.c.meters.QueuedBytes.Add(int64(bytes))
	s.c.meters.QueuedMessages.Add(int64(length))
}

// done receives the hub's answer. What was missed counts for no bound of the stream:
// the history keeps it anyway.
func (at *place) done(a hub.Answer, err error) {
	s := at.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered++
	if err != nil {
		s.broken = true
	} else if !s.slow {
		s.queue = append(s.queue, item{at: at, start: &a})
	}
	s.wake()
}

// started reports whether nothing that is published from now on is missed: all
// subscriptions have begun, or the stream is over.
func (s *stream) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered >= len(s.places) || s.slow || s.broken
}

// Deliver implements [hub.Subscriber].
func (at *place) Deliver(p *hub.Publication) {
	size := len(eventOf(p))
	s := at.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow {
		return
	}
	// One alone may be larger than the queue: it was allowed to be published.
	if s.length > 0 && (s.length >= s.c.queueLength || s.bytes+size > s.c.queue) {
		s.slow = true
		s.c.meters.Dropped.Add("event stream: slow")
		s.queue = nil
	} else {
		s.queue = append(s.queue, item{at: at, p: p})
		s.count(size, 1)
	}
	s.wake()
}

// eventOf is a publication or note as event streams have it.
func eventOf(p *hub.Publication) []byte { return p.Frame(formEvent).Payload() }

func (s *stream) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // it is awake, or will be
	}
}

// next puts the next batch together. end: the stream is over.
func (s *stream) next(text []byte) (w written, end string) {
	if len(s.batch) == 0 {
		s.mu.Lock()
		s.batch, s.queue = s.queue, nil
		slow, broken := s.slow, s.broken
		s.mu.Unlock()
		switch {
		case broken:
			return written{text: appendRetry(text, jitter())}, endFailed
		case slow:
			return written{text: text}, endSlow
		}
	}
	w.text = text
	n := 0
	for n < len(s.batch) && len(w.text) < batchBytes {
		it := &s.batch[n]
		if it.start != nil && len(it.start.Missed) > 0 {
			if !s.missed(&w, it) {
				break // the rest of it is for the next batch
			}
		} else if it.start != nil {
			s.writeStart(&w, it)
		} else {
			s.published(&w, it)
		}
		*it = item{}
		n++
	}
	if s.batch = s.batch[n:]; len(s.batch) == 0 {
		s.batch = nil
	}
	w.more = true // until there is nothing: more may have come meanwhile
	if len(w.text) == 0 && n == 0 {
		w.more = false
	}
	return w, ""
}

// writeStart writes the position at which a subscription starts when nothing (more)
// was missed. No client shows an event without data, but it keeps its id.
func (s *stream) writeStart(w *written, it *item) {
	at := it.at
	if s.places[at.i] != at || it.start.Down { // there will be a reset when the bus is back
		return
	}
	s.marks[at.i].move(it.start.Top)
	if at.since && !it.start.Recovered {
		s.reset(w, at, it.start.Top)
		at.since = false
		return
	}
	w.text = append(s.appendID(w.text), '\n')
}

// missed writes what was missed, up to the size of a batch, and reports whether that
// was all.
func (s *stream) missed(w *written, it *item) bool {
	at, a := it.at, it.start
	if s.places[at.i] != at {
		return true
	}
	if at.since && !a.Recovered {
		// Whoever comes back after this event has not seen what follows it.
		from := bus.Position{Epoch: a.Top.Epoch}
		if first := a.Missed[0].Offset; first > 0 {
			from.Offset = first - 1
		}
		s.marks[at.i].move(from)
		s.reset(w, at, a.Top)
		at.since = false
	}
	for len(a.Missed) > 0 && len(w.text) < batchBytes {
		m := a.Missed[0]
		a.Missed = a.Missed[1:]
		if m.Offset > 0 {
			s.marks[at.i].move(bus.Position{Epoch: a.Top.Epoch, Offset: m.Offset})
		}
		w.text = append(append(s.appendID(w.text), s.c.event(m)...), '\n')
		w.events++
	}
	if len(a.Missed) > 0 {
		return false
	}
	s.writeStart(w, it)
	return true
}

// reset writes that something is missing.
func (s *stream) reset(w *written, at *place, top bus.Position) {
	data := append(appendPosition(answer(hub.Reset, at.channel, nil), top), '}')
	w.text = append(appendEvent(s.appendID(w.text), hub.Reset, data), '\n')
	w.events++
}

// published writes a publication or a note.
func (s *stream) published(w *written, it *item) {
	at, p := it.at, it.p
	w.bytes += len(eventOf(p))
	w.length++
	if s.places[at.i] != at {
		return
	}
	switch {
	case p.Note == nil:
		if p.Offset > 0 {
			s.marks[at.i].move(bus.Position{Epoch: s.marks[at.i].Epoch, Offset: p.Offset})
		}
		w.text = append(append(s.appendID(w.text), eventOf(p)...), '\n')
		w.events++
	case p.Note.Kind == hub.Reset:
		s.again(at)
	case p.Note.Kind == hub.Placed:
		// The place stays as it is: what other machines published in between
		// may be yet to come.
		w.text = append(appendEvent(s.appendID(w.text), hub.Placed, eventOf(p)), '\n')
		w.events++
	}
}

// appendRefused writes which channels the client does not get.
func (s *stream) appendRefused(b []byte) []byte {
	for _, channel := range s.refused {
		b = append(appendEvent(b, "refused", failure(notAllowed(channel), nil)), '\n')
	}
	return b
}

// again subscribes to a channel again, behind what was written, since something may
// have been missed.
func (s *stream) again(at *place) {
	s.c.hub.Unsubscribe(at.sub)
	fresh := &place{s: s, i: at.i, channel: at.channel}
	s.places[at.i] = fresh
	since := s.marks[at.i].Position
	if s.begin(fresh, &since) != nil {
		s.mu.Lock()
		s.broken = true
		s.mu.Unlock()
		s.wake()
	}
}

func (s *stream) appendID(b []byte) []byte {
	return append(s.marks.appendTo(append(b, "id: "...)), '\n')
}

// written subtracts a batch that was written from what waits.
func (s *stream) written(w written) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.slow {
		s.count(-w.bytes, -w.length)
	}
}
