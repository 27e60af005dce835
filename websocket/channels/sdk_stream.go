package channels

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
)

// sdkStream is the connection of an SDK's client that has no WebSocket: the answer to a
// request brings what the server says, and each thing that the client says comes in a
// request of its own (ServeEmulation). The session's turns run in the goroutine of the
// first request.
type sdkStream struct {
	c       *Channels
	session string
	node    string
	form    centrifuge.Form
	woken   chan struct{}
	gone    chan struct{} // closed at the end

	mu      sync.Mutex
	out     []spoken
	bytes   int // of messages in out
	own     int // of these, what only this client gets: for that there is room
	length  int // the number of those that others have sent
	tasks   []func()
	saying  int // bytes that the client has said, in tasks
	closing *centrifuge.Disconnect
	over    bool
}

// spoken is a message on its way to the client; shared: others have sent it.
type spoken struct {
	text   []byte
	shared bool
}

func (c *Channels) newSDKStream(form centrifuge.Form) *sdkStream {
	return &sdkStream{
		c: c, session: rand.Text(), node: c.node, form: form,
		woken: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// Send implements port.
func (s *sdkStream) Send(_ frame.Opcode, data []byte) { s.put(spoken{text: data}) }

// Answer implements port.
func (s *sdkStream) Answer(p *frame.Prepared) { s.put(spoken{text: p.Payload()}) }

// Deliver implements port.
func (s *sdkStream) Deliver(p *frame.Prepared) { s.put(spoken{p.Payload(), true}) }

func (s *sdkStream) put(m spoken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	switch size := len(m.text); {
	case s.over || s.closing != nil:
		return
	case m.shared && s.length > 0 && (s.length >= s.c.queueLength || s.bytes-s.own+size > s.c.queue):
		s.c.meters.Dropped.Add("event stream: slow")
		s.forget()
		s.closing = &centrifuge.Disconnect{Code: centrifuge.CloseSlow, Reason: "slow", Reconnect: true}
		return
	}
	s.count(m, 1)
	s.out = append(s.out, m)
}

// count adds a message to what waits, or with -1 takes it out; mu is held. All of it is
// in the meters: what clients may still be sent of what they have missed depends on it.
func (s *sdkStream) count(m spoken, n int) {
	size := n * len(m.text)
	s.bytes += size
	if m.shared {
		s.length += n
		s.c.meters.QueuedMessages.Add(int64(n))
	} else {
		s.own += size
	}
	s.c.meters.QueuedBytes.Add(int64(size))
}

// forget lets go what waits; mu is held.
func (s *sdkStream) forget() {
	s.c.meters.QueuedBytes.Add(-int64(s.bytes))
	s.c.meters.QueuedMessages.Add(-int64(s.length))
	s.out, s.bytes, s.own, s.length = nil, 0, 0, 0
}

// Close implements port.
func (s *sdkStream) Close(code frame.Code, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing == nil {
		s.closing = &centrifuge.Disconnect{Code: uint32(code), Reason: reason, Reconnect: centrifuge.ComesBack(uint32(code))}
	}
	s.wake()
}

// Runner implements port.
func (s *sdkStream) Runner() int { return s.c.last }

// Later implements port.
func (s *sdkStream) Later() func(f func()) { return func(f func()) { s.task(f) } }

// enqueue has f called in a turn, for so many bytes that the client has said. full: the
// stream is not read, and what the client has said before waits for that.
func (s *sdkStream) enqueue(size int, f func()) (taken, full bool) {
	s.mu.Lock()
	full = s.saying > 0 && s.saying+size > waitingEach
	if !full {
		s.saying += size
	}
	s.mu.Unlock()
	if full {
		return false, true
	}
	return s.task(func() {
		f()
		s.mu.Lock()
		s.saying -= size
		s.mu.Unlock()
	}), false
}

// task has a function called in a turn; false: the stream is over.
func (s *sdkStream) task(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.tasks = append(s.tasks, f)
	s.wake()
	return true
}

func (s *sdkStream) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // it is awake, or will be
	}
}

// sendConnect adds to the answer to connect what such a client needs. It is not asked to
// answer pings: that it is gone is noticed when nothing can be written any more.
func (s *sdkStream) sendConnect(r *centrifuge.Connect) {
	r.Session, r.Pong = s.session, false
	if s.form != centrifuge.Uni {
		r.Node = s.node
	}
}

// turn runs what is to be run, and takes what is to be written.
func (s *sdkStream) turn() (out []spoken, closing *centrifuge.Disconnect) {
	for {
		s.mu.Lock()
		tasks := s.tasks
		s.tasks = nil
		if len(tasks) == 0 {
			out, s.out = s.out, nil
			closing = s.closing
			s.mu.Unlock()
			return out, closing
		}
		s.mu.Unlock()
		for _, f := range tasks {
			f()
		}
	}
}

// written subtracts what was written from what waits.
func (s *sdkStream) written(out []spoken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range out {
		if s.bytes > 0 { // it was not forgotten meanwhile
			s.count(m, -1)
		}
	}
}

// end forgets what waits. The session is closed behind it.
func (s *sdkStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.forget()
	s.tasks = nil
	close(s.gone)
}

// streamKind is one of the ways to connect without a WebSocket.
type streamKind struct {
	events bool // an event stream; else one message after the other
	uni    bool
}

// streamKinds are those ways, by their paths below the route.
func streamKindOf(path string) (k streamKind, ok bool) {
	switch path {
	case "/connection/http_stream":
		return streamKind{}, true
	case "/connection/sse":
		return streamKind{events: true}, true
	case "/connection/uni_http_stream":
		return streamKind{uni: true}, true
	case "/connection/uni_sse":
		return streamKind{events: true, uni: true}, true
	}
	return k, false
}

// appendTo adds a message as the client gets it.
func (k streamKind) appendTo(b, message []byte, form centrifuge.Form) []byte {
	switch {
	case k.events:
		return append(append(append(b, "data: "...), message...), "\n\n"...)
	case form == centrifuge.Protobuf: // its length is before it
		return append(b, message...)
	}
	return append(append(b, message...), '\n')
}

// IsSDKStream reports whether a path below the route is one at which an SDK's client
// connects without a WebSocket, or says something to such a connection.
func IsSDKStream(path string) bool {
	_, ok := streamKindOf(path)
	return ok || path == emulationPath
}

const emulationPath = "/emulation"

// ServeSDK answers the requests of SDKs' clients that have no WebSocket. Whoever calls it
// lets pages of the origin in. The stream ends as ServeEvents does.
func (c *Channels) ServeSDK(w http.ResponseWriter, r *http.Request, leaving <-chan struct{}) {
	if origin := r.Header.Get("Origin"); origin != "" && w.Header().Get("Access-Control-Allow-Origin") == "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Add("Vary", "Origin")
	}
	if r.Method == http.MethodOptions { // a page of another site asks first
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
		w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Authorization")
		w.Header().Set("Access-Control-Max-Age", "300")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	kind, ok := streamKindOf(r.URL.Path)
	if !ok {
		c.serveEmulation(w, r)
		return
	}
	c.serveStream(w, r, kind, leaving)
}

// formOfBody is the form that a request's body has.
func formOfBody(r *http.Request) centrifuge.Form {
	if r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), "application/octet-stream") {
		return centrifuge.Protobuf
	}
	return centrifuge.JSON
}

// readCommands is what a client says with a request: in its body, or in the query of one that
// can have none.
func (c *Channels) readCommands(w http.ResponseWriter, r *http.Request) ([]byte, *Refusal) {
	switch r.Method {
	case http.MethodGet:
		if first := r.URL.Query().Get("cf_connect"); first != "" || streamIsUni(r) {
			return []byte(first), nil
		}
		return nil, refusal(http.StatusBadRequest, "the query has no cf_connect")
	case http.MethodPost:
	default:
		return nil, refusal(http.StatusMethodNotAllowed, "connect with GET or POST")
	}
	most := int64(c.maxPublish + sdkEnvelope)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a writer that knows no deadlines has others
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refusal(http.StatusRequestEntityTooLarge, fmt.Sprintf("what is said has at most %d bytes", most))
	} else if err != nil {
		return nil, refusal(http.StatusBadRequest, "the body did not come whole")
	}
	return body, nil
}

// sdkEnvelope is the most that commands have around a publication, with a token.
const sdkEnvelope = 16 << 10

func streamIsUni(r *http.Request) bool {
	k, _ := streamKindOf(r.URL.Path)
	return k.uni
}

// changes reports whether one of the commands does more than read. A page of any site
// can have a browser ask for a URL with its user's cookies and without an Origin.
func changes(commands []byte) (found bool) {
	_ = centrifuge.JSON.Commands(commands, func(cmd *centrifuge.Command) bool { // what is wrong with them is said later
		found = cmd.Publish != nil || cmd.Send != nil || cmd.RPC != nil
		return !found
	})
	return found
}

func (c *Channels) serveStream(w http.ResponseWriter, r *http.Request, kind streamKind, leaving <-chan struct{}) {
	first, no := c.readCommands(w, r)
	form := formOfBody(r)
	if no == nil && r.Method == http.MethodGet && !kind.uni && changes(first) {
		no = refusal(http.StatusBadRequest, "a query may connect and subscribe: say the rest with POST")
	}
	if no == nil && form == centrifuge.Protobuf && (kind.events || kind.uni) {
		no = refusal(http.StatusUnsupportedMediaType, "this is read in JSON only")
	}
	if kind.uni {
		form = centrifuge.Uni
	}
	var k *sdkClient
	if no == nil {
		grant, err := c.auth.Handshake(r.Context(), r)
		if err != nil {
			no = c.refused(r, err)
		} else {
			k = newSDKClient(form, grant, nil)
		}
	}
	if no != nil {
		c.meters.Refused.Add(0, 1)
		refuse(w, r, no, "GET, POST")
		return
	}
	s := c.newSDKStream(form)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	switch {
	case kind.events:
		h.Set("Content-Type", "text/event-stream")
	case form == centrifuge.Protobuf:
		h.Set("Content-Type", "application/octet-stream")
	default:
		h.Set("Content-Type", "application/json")
	}
	w.WriteHeader(http.StatusOK)

	shard := c.serial.Add(1)
	c.meters.Opened.Add(shard, 1)
	c.meters.Open.Add(1)
	defer c.meters.Open.Add(-1)
	out := &eventWriter{w: w, control: http.NewResponseController(w), meters: c.meters, shard: shard}
	c.streams.add(s, k)
	c.openSDK(k, s)
	defer func() {
		c.streams.remove(s)
		s.end()
		c.closedSDK(k)
	}()
	c.frame(k, frame.Binary, first)
	c.meters.Closed.Add(s.run(out, kind, r.Context().Done(), leaving))
}

// run writes until something ends the stream, and returns what.
func (s *sdkStream) run(out *eventWriter, kind streamKind, gone, leaving <-chan struct{}) (why string) {
	every := s.c.ping
	if every <= 0 {
		every = heartbeat
	}
	beat := time.NewTimer(every)
	defer beat.Stop()
	ping := kind.appendTo(nil, s.form.Append(nil, &centrifuge.Reply{}), s.form)
	for {
		if why := s.write(out, kind); why != "" {
			return why
		}
		select {
		case <-gone:
			return endGone
		case <-leaving:
			s.Close(centrifuge.CloseShutdown, "shutdown")
			leaving = nil
		case <-s.c.end:
			return endLeaving
		case <-beat.C:
			if !out.write(ping, 0) {
				return endWrite
			}
			beat.Reset(every)
		case <-s.woken:
		}
	}
}

// write writes what waits, and the end if there is one.
func (s *sdkStream) write(out *eventWriter, kind streamKind) (why string) {
	for {
		messages, closing := s.turn()
		var text []byte
		for _, m := range messages {
			if text = kind.appendTo(text, m.text, s.form); len(text) >= batchBytes {
				if !out.write(text, 1) {
					return endWrite
				}
				text = text[:0]
			}
		}
		if closing != nil {
			text = kind.appendTo(text, s.form.Append(nil, &centrifuge.Reply{Push: &centrifuge.Push{Disconnect: closing}}), s.form)
		}
		if len(text) > 0 && !out.write(text, len(messages)) {
			return endWrite
		}
		s.written(messages)
		switch {
		case closing != nil:
			return fmt.Sprintf("event stream: server %d", closing.Code)
		case len(messages) == 0:
			return ""
		}
	}
}

// serveEmulation takes what a client says to its stream. It answers when that was
// heard: so who says one thing after the other is heard in that order.
func (c *Channels) serveEmulation(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		refuse(w, r, refusal(http.StatusMethodNotAllowed, "say it with POST"), http.MethodPost)
		return
	}
	body, no := c.readCommands(w, r)
	if no != nil {
		refuse(w, r, no, http.MethodPost)
		return
	}
	req, err := formOfBody(r).Emulation(body)
	switch {
	case err != nil:
		refuse(w, r, refusal(http.StatusBadRequest, err.Error()), http.MethodPost)
		return
	case req.Node != c.node:
		// An SDK closes its stream then, and connects anew.
		refuse(w, r, refusal(http.StatusNotFound, "this stream is another server's"), http.MethodPost)
		return
	}
	if s, k := c.streams.find(req.Session); s != nil && s.form != centrifuge.Uni {
		heard := make(chan struct{})
		taken, full := s.enqueue(len(req.Data), func() {
			c.frame(k, frame.Binary, req.Data)
			close(heard)
		})
		switch {
		case full:
			refuse(w, r, refusal(http.StatusTooManyRequests, "read the stream: what was said before waits for that"), http.MethodPost)
			return
		case taken:
			select {
			case <-heard:
			case <-s.gone:
			case <-r.Context().Done():
			}
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent) // also of a stream that has ended: the client sees it
}

// sdkStreams are those that are open, by their sessions.
type sdkStreams struct {
	mu   sync.Mutex
	open map[string]openStream
}

type openStream struct {
	s *sdkStream
	k *sdkClient
}

func (l *sdkStreams) add(s *sdkStream, k *sdkClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[string]openStream{}
	}
	l.open[s.session] = openStream{s, k}
}

func (l *sdkStreams) remove(s *sdkStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, s.session)
}

func (l *sdkStreams) find(session string) (*sdkStream, *sdkClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.open[session]
	return o.s, o.k
}

func (l *sdkStreams) all() []openStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.open))
}
