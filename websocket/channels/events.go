package channels

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/wire/pages"
	"millrace/websocket/auth"
)

const (
	// eventChannels is the most channels of one stream: with more of them the id
	// of its events, which the client sends back in a header, is longer than the
	// 8 KiB that proxies take.
	eventChannels = 500
	// heartbeat is after how much silence a stream gets a comment, so that
	// proxies do not take it for dead, and we notice who is gone.
	heartbeat = 15 * time.Second
	// eventTimeout is how long a client may take no byte of a batch.
	eventTimeout = 30 * time.Second
	// batchBytes is from which size on a batch is written; it ends with the
	// event that reaches it.
	batchBytes = 64 << 10
	// keptBatch is the largest buffer that is used again.
	keptBatch = 256 << 10
	// retryLeast and retrySpread are when clients come back after an
	// interruption: not all at once.
	retryLeast  = time.Second
	retrySpread = 4 * time.Second
)

// Why event streams end, for the meters.
const (
	endGone    = "event stream: client gone"
	endLeaving = "event stream: leaving"
	endExpired = "event stream: grant expired"
	endSlow    = "event stream: slow"
	endFailed  = "event stream: bus failed"
	endWrite   = "event stream: write failed"
)

// batches are buffers that events are put together in. A quiet stream has none.
var batches = sync.Pool{New: func() any { return new(make([]byte, 0, 4<<10)) }}

// ServeEvents is GET …/sse?channel=NAME&channel=…: a stream of events (WHATWG
// HTML, 9.2). A token is in the query (token=…) or where else [auth.Checker]
// looks for it. Events of type message have the same data as the messages of
// the protocol, and an id with the place in all channels: with Last-Event-ID, or
// last_event_id=… in the query, the stream goes on behind it. A channel where
// that is not possible gets an event of type reset, one whose publication got
// its offset later an event of type placed. One that the client may not subscribe
// to gets an event of type refused, with an error of the protocol as its data, and
// the others go on without it.
//
// The stream ends when the client goes, is too slow, or its grant expires, or
// when leaving is closed.
func (c *Channels) ServeEvents(w http.ResponseWriter, r *http.Request, leaving <-chan struct{}) {
	h := w.Header()
	// Whoever calls this lets pages of the origin in: they may read, too.
	if origin := r.Header.Get("Origin"); origin != "" && h.Get("Access-Control-Allow-Origin") == "" {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Add("Vary", "Origin")
	}
	channels, refused, grant, no := c.admit(r)
	if no != nil {
		c.meters.Refused.Add(0, 1)
		refuse(w, r, no, http.MethodGet)
		return
	}
	s := newStream(c, channels, grant)
	defer s.close()
	last := r.URL.Query().Get("last_event_id")
	if id := r.Header.Get("Last-Event-ID"); id != "" { // the later one: the query stays as it was
		last = id
	}
	s.refused = refused
	if no := s.subscribe(parseCursor(last)); no != nil {
		c.meters.Refused.Add(0, 1)
		refuse(w, r, no, http.MethodGet)
		return
	}
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)

	c.meters.Opened.Add(s.shard, 1)
	c.meters.Open.Add(1)
	defer c.meters.Open.Add(-1)
	out := &eventWriter{w: w, control: http.NewResponseController(w), meters: c.meters, shard: s.shard}
	c.meters.Closed.Add(s.run(out, r.Context().Done(), leaving))
}

// admit returns the channels of a stream, and those that the client may not subscribe
// to. The grant is checked first: a client whose token has ended gets 401, whatever
// else it asks for.
func (c *Channels) admit(r *http.Request) (channels, refused []string, _ *auth.Grant, _ *Refusal) {
	if r.Method != http.MethodGet {
		return nil, nil, nil, refusal(http.StatusMethodNotAllowed, "an event stream is read with GET")
	}
	grant, no := c.grant(r)
	if no != nil {
		return nil, nil, nil, no
	}
	if channels, no = c.channelsOf(r); no != nil {
		return nil, nil, nil, no
	}
	channels = slices.DeleteFunc(channels, func(channel string) bool {
		may := grant.MaySubscribe(channel)
		if !may {
			refused = append(refused, channel)
		}
		return !may
	})
	if len(channels) == 0 {
		return nil, nil, nil, refusal(http.StatusForbidden, fmt.Sprintf("you may not subscribe to %q", refused[0]))
	}
	return channels, refused, grant, nil
}

// channelsOf are those that a request names, each once.
func (c *Channels) channelsOf(r *http.Request) ([]string, *Refusal) {
	channels := slices.Clone(r.URL.Query()["channel"])
	slices.Sort(channels)
	channels = slices.Compact(channels)
	switch {
	case len(channels) == 0:
		return nil, refusal(http.StatusBadRequest, "name a channel, or several: ?channel=news&channel=chat")
	case len(channels) > eventChannels && c.perClient > eventChannels:
		return nil, refusal(http.StatusBadRequest, fmt.Sprintf("%d channels are too many for an event stream: at most %d, a WebSocket takes more", len(channels), eventChannels))
	case len(channels) > c.perClient:
		return nil, refusal(http.StatusBadRequest, fmt.Sprintf("%d channels are too many: at most %d", len(channels), c.perClient))
	}
	for _, channel := range channels {
		if err := checkChannel(channel); err != nil {
			return nil, refusal(http.StatusBadRequest, err.Error())
		}
	}
	return channels, nil
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, r *http.Request, f *Refusal, allow string) {
	w.Header().Set("Cache-Control", "no-store")
	switch f.Status {
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", allow)
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	pages.Error(w, r, f.Status, f.Text)
}

// run writes events until something ends the stream, and returns what. Its first bytes
// tell the client that it will get everything that is published from now on.
func (s *stream) run(out *eventWriter, gone, leaving <-chan struct{}) (why string) {
	if s.awaitStart(gone, leaving) {
		return endGone
	}
	if !out.write(s.appendRefused(appendRetry(nil, jitter())), 0) {
		return endWrite
	}
	if why := s.drain(out, gone); why != "" {
		return why
	}
	beat := time.NewTimer(heartbeat)
	defer beat.Stop()
	var expired <-chan time.Time
	if !s.grant.Expires.IsZero() {
		t := time.NewTimer(time.Until(s.grant.Expires))
		defer t.Stop()
		expired = t.C
	}
	for {
		select {
		case <-gone:
			return endGone
		case <-expired:
			return endExpired
		case <-leaving:
			out.write(appendRetry(nil, jitter()), 0)
			return endLeaving
		case <-s.c.end:
			out.write(appendRetry(nil, jitter()), 0)
			return endLeaving
		case <-beat.C:
			if !out.write([]byte(":\n\n"), 0) {
				return endWrite
			}
		case <-s.woken:
			if why := s.drain(out, gone); why != "" {
				return why
			}
		}
		beat.Reset(heartbeat)
	}
}

// awaitStart waits until all subscriptions have begun, but not longer than a
// client should wait for a first sign. It reports whether the client has gone.
func (s *stream) awaitStart(gone, leaving <-chan struct{}) bool {
	late := time.NewTimer(heartbeat)
	defer late.Stop()
	for !s.started() {
		select {
		case <-s.woken:
		case <-gone:
			return true
		case <-leaving:
			return false
		case <-s.c.end:
			return false
		case <-late.C:
			return false
		}
	}
	return false
}

// drain writes all events that wait.
func (s *stream) drain(out *eventWriter, gone <-chan struct{}) (why string) {
	buffer := batches.Get().(*[]byte)
	defer func() {
		if cap(*buffer) <= keptBatch {
			batches.Put(buffer)
		}
	}()
	for {
		batch, end := s.next((*buffer)[:0])
		*buffer = batch.text
		if len(batch.text) > 0 && !out.write(batch.text, batch.events) {
			return endWrite
		}
		s.written(batch)
		if end != "" {
			return end
		}
		select {
		case <-gone:
			return endGone
		default:
		}
		if !batch.more {
			return ""
		}
	}
}

// jitter is when a client comes back.
func jitter() time.Duration { return retryLeast + rand.N(retrySpread) }

func appendRetry(b []byte, d time.Duration) []byte {
	return append(strconv.AppendInt(append(b, "retry: "...), d.Milliseconds(), 10), "\n\n"...)
}

// eventWriter sends batches: each in one write, and at once.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	meters  *meter.WebSocket
	shard   uint32
}

// write reports whether the client can still be reached.
func (o *eventWriter) write(b []byte, events int) bool {
	// A writer that knows no deadlines (of HTTP/2 in tests) has others.
	_ = o.control.SetWriteDeadline(time.Now().Add(eventTimeout))
	if _, err := o.w.Write(b); err != nil {
		return false
	}
	if err := o.control.Flush(); err != nil {
		return false
	}
	o.meters.BytesOut.Add(o.shard, uint64(len(b)))
	o.meters.MessagesOut.Add(o.shard, uint64(events))
	return true
}

// appendEvent adds an event of another type than message.
func appendEvent(b []byte, kind string, data []byte) []byte {
	b = append(append(b, "event: "...), kind...)
	return append(append(append(b, "\ndata: "...), data...), '\n')
}
