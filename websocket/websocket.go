// Package websocket is the job that carries WebSockets (RFC 6455): an echo, a
// proxy, and channels with very many quiet subscribers. This package does the
// handshakes; what a connection costs and how it is driven is in package
// websocket/conn, its wire format in websocket/frame, and who gets which
// message in websocket/hub and websocket/channels.
package websocket

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/internal/wire/pages"
	"millrace/proxy"
	"millrace/websocket/centrifuge"
	"millrace/websocket/channels"
	"millrace/websocket/client"
	"millrace/websocket/conn"
	"millrace/websocket/frame"
	"millrace/websocket/page"
)

// Handler answers requests for WebSockets. It must be closed.
type Handler struct {
	options  Options
	engine   *conn.Engine
	settings *conn.Settings
	sdks     []*conn.Settings // of clients that speak Centrifugo's protocol, by its form
	meters   *meter.WebSocket
	page     http.Handler // nil: there is none

	proxy    *proxy.Handler // of a proxy, with
	pool     *upstream.Pool
	channels *channels.Channels // of channels

	errorLog                         *slog.Logger
	originRefusals, upstreamRefusals rate.Sometimes

	warnRoute, warnAll, warnAddress rate.Sometimes // that there is no place

	watch   sync.Once // the drain, by the first client
	watched atomic.Bool
	leaving chan struct{}
	ended   atomic.Bool // nobody can connect any more
	close   sync.Once
	watcher sync.WaitGroup

	watching sync.Mutex      // held while the wait for the drain begins, or leaving is closed
	drain    <-chan struct{} // guarded by watching; nil: no client has come

	own []io.Closer // what New has made of Deps that were nil

	places *Places // of this handler; nil: no limit
	shared *Places // of all handlers, or nil
}

// New returns a handler.
func New(o Options, d Deps) (*Handler, error) {
	own, err := d.complete(o)
	if err != nil {
		return nil, err
	}
	h, err := newHandler(o, d)
	if err != nil {
		return nil, errors.Join(err, closeAll(own))
	}
	h.own = own
	return h, nil
}

func newHandler(o Options, d Deps) (*Handler, error) {
	h := &Handler{options: o, engine: d.Engine, meters: d.Meters, errorLog: cmp.Or(d.ErrorLog, slog.Default()), leaving: make(chan struct{})}
	for _, told := range []*rate.Sometimes{&h.originRefusals, &h.upstreamRefusals, &h.warnRoute, &h.warnAll, &h.warnAddress} {
		told.Interval = refusalLogInterval
	}
	if h.meters == nil {
		h.meters = &meter.WebSocket{}
	}
	h.settings = settings(o, h.meters)
	h.shared = d.Places
	if o.Connections > 0 {
		h.places = NewPlaces(func() int { return o.Connections }, h.open)
	}
	switch {
	case o.Proxy != nil:
		p, err := proxy.New(o.ProxyOptions(), d.Pool, d.ErrorLog)
		if err != nil {
			return nil, err
		}
		h.proxy, h.pool = p, d.Pool
	case o.Channels != nil:
		if o.Channels.Centrifuge {
			h.sdks = sdkSettings(h.settings, o, h.meters)
		}
		c, err := channels.New(*o.Channels, channels.Deps{
			Each: func(f func(k *conn.Conn)) {
				for _, s := range h.all() {
					d.Engine.Each(s, f)
				}
			},
			Bus: d.Bus, Runners: d.Engine.Runners(), Post: d.Engine.Post, Meters: h.meters, ErrorLog: d.ErrorLog, Ping: h.settings.Ping,
			CompressFrom: h.settings.CompressFrom, Queue: h.settings.Queue, QueueLength: h.settings.QueueLength,
		})
		if err != nil {
			return nil, err
		}
		h.channels = c
		for _, s := range h.all() {
			s.App = c
		}
		h.page = page.Handler(page.Channels)
	case o.Echo != nil:
		h.settings.App = echo{}
		h.page = page.Handler(page.Echo)
	default:
		return nil, errors.New("websocket: none of echo, proxy and channels is given")
	}
	if !o.Page {
		h.page = nil
	}
	return h, nil
}

// Defaults of Options.
const (
	defaultMessage   = 64 << 10
	envelope         = 1 << 10 // of a command, around what it publishes
	defaultFrom      = 1 << 10
	defaultPing      = 30 * time.Second
	defaultPong      = 20 * time.Second
	defaultWrite     = 30 * time.Second
	defaultReconnect = 5 * time.Second
)

// settings are the options as a connection has them.
func settings(o Options, m *meter.WebSocket) *conn.Settings {
	s := &conn.Settings{
		MaxMessage:   int64(o.MaxMessage),
		Ping:         max(0, cmp.Or(o.Ping, defaultPing)),
		PongTimeout:  cmp.Or(max(0, o.PongTimeout), defaultPong),
		Idle:         max(0, o.IdleTimeout),
		WriteTimeout: cmp.Or(max(0, o.WriteTimeout), defaultWrite),
		Queue:        int(cmp.Or(max(0, o.Queue), channels.DefaultQueue)),
		QueueLength:  cmp.Or(max(0, o.QueueLength), channels.DefaultQueueLength),
		Budget:       conn.NewBudget(int64(cmp.Or(max(0, o.Memory), defaultMemory))),
		Meters:       m,
	}
	if o.Channels != nil && s.MaxMessage <= 0 {
		s.MaxMessage = max(defaultMessage, int64(o.Channels.MaxPublish)) + envelope
	}
	if !o.Compression.Off {
		s.CompressFrom = int(cmp.Or(max(0, o.Compression.From), defaultFrom))
	}
	if o.SlowConsumer == "drop_oldest" {
		s.Overflow = conn.DropOldest
	}
	return s
}

// sdkSettings are the settings of clients that speak Centrifugo's protocol, in each form:
// they are asked whether they are there by a message of the protocol.
func sdkSettings(of *conn.Settings, o Options, m *meter.WebSocket) []*conn.Settings {
	var all []*conn.Settings
	for form := range centrifuge.Form(centrifuge.Forms) {
		s := settings(o, m)
		s.Budget, s.Idle = of.Budget, 0
		s.Beat = conn.Beat{Op: channels.Opcode(form), Data: form.Append(nil, &centrifuge.Reply{})}
		s.Overflow = conn.Disconnect // nobody there would notice a gap
		if form == centrifuge.Uni {
			s.PongTimeout = 0 // such a client says nothing
		}
		all = append(all, s)
	}
	return all
}

// all are the settings of all clients.
func (h *Handler) all() []*conn.Settings { return append([]*conn.Settings{h.settings}, h.sdks...) }

// open is how many clients are connected.
func (h *Handler) open() (n int) {
	for _, s := range h.all() {
		n += s.Open()
	}
	return n
}

// Channels returns the channels of the route, nil where it has none.
func (h *Handler) Channels() *channels.Channels { return h.channels }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.watch.Do(func() {
		h.begin(lane.Drain(r))
		h.watched.Store(true)
	})
	if o, begun := lane.Take[*opening](r, h); begun {
		h.goOn(w, r, o)
		return
	}
	switch {
	case h.proxy != nil && !wantsWebSocket(r):
		h.passPlain(w, r)
	case h.channels != nil && h.serveChannels(w, r):
	case !wantsWebSocket(r):
		h.plain(w, r)
	default:
		h.handshake(w, r)
	}
}

// handshake answers a request for a WebSocket.
func (h *Handler) handshake(w http.ResponseWriter, r *http.Request) {
	var q message.Request
	if h.proxy != nil {
		proxy.Head(&q, r)
	} else {
		q.Of(r)
	}
	if fault := check(&q); fault != nil {
		h.refuse(w, r, fault)
		return
	}
	if fault := h.admit(&q); fault != nil {
		h.refuse(w, r, fault)
		return
	}
	place, fault := h.place(&q)
	if fault != nil {
		h.refuse(w, r, fault)
		return
	}
	defer place.leave() // of who does not come so far
	switch {
	case h.proxy != nil:
		h.passOn(w, r, &q, place)
	case h.channels != nil:
		h.joinChannels(w, r, place)
	default:
		h.adopt(w, r, h.settings, place.who, place)
	}
}

// joinChannels lets a client of the channels in, in the protocol that its path stands for.
func (h *Handler) joinChannels(w http.ResponseWriter, r *http.Request, place *seat) {
	set, connect := h.settings, h.channels.Connect
	if strings.HasPrefix(r.URL.Path, sdkPath) {
		form := formOf(r)
		set = h.sdks[form]
		connect = func(r *http.Request, end func()) (any, error) { return h.channels.ConnectSDK(r, form, end) }
	}
	state, err := connect(r, place.who.ending())
	if err != nil {
		h.refuse(w, r, asRefusal(err))
		return
	}
	h.adopt(w, r, set, state, place)
}

// Below the route: what is Centrifugo's, and where WebSockets connect that speak its
// protocol, or that only listen.
const (
	sdkPath    = "/connection/"
	sdkSocket  = "/connection/websocket"
	sdkListens = "/connection/uni_websocket"
)

// formOf is the form that the client of such a WebSocket speaks.
func formOf(r *http.Request) centrifuge.Form {
	if r.URL.Path == sdkListens {
		return centrifuge.Uni
	}
	if field.Has(r.Header["Sec-Websocket-Protocol"], centrifuge.Subprotocol) || r.URL.Query().Get("format") == "protobuf" {
		return centrifuge.Protobuf
	}
	return centrifuge.JSON
}

// admit says whether clients may connect now. While the route's clients are being sent
// away, a handshake on its way is still accepted, since its page would only see a
// failure; the client is told to come back as soon as it is connected.
func (h *Handler) admit(q *message.Request) *channels.Refusal {
	switch {
	case !h.accepts(q):
		return h.refusedOrigin(q)
	case h.ended.Load():
		return &channels.Refusal{Status: http.StatusServiceUnavailable, Text: "This server is about to end: come again."}
	}
	return nil
}

func (h *Handler) refusedOrigin(q *message.Request) *channels.Refusal {
	h.logOriginRefused(q)
	return &channels.Refusal{Status: http.StatusForbidden, Text: "Pages of this origin may not connect here."}
}

// place takes a place of this handler, one of all handlers together, and one of the
// client's address.
func (h *Handler) place(q *message.Request) (*seat, *channels.Refusal) {
	own, ok := h.places.take()
	if !ok {
		return nil, h.full(&h.warnRoute, q, "this route has as many WebSockets as it may have", "websocket.connections")
	}
	all, ok := h.shared.take()
	if !ok {
		own(func() {})
		return nil, h.full(&h.warnAll, q, "this server has as many WebSockets as it may have", h.shared.more())
	}
	s := &seat{release: func(over func()) { all(func() { own(over) }) }}
	if s.who, ok = h.shared.admit(q); !ok {
		s.leave()
		return nil, h.full(&h.warnAddress, q, "this address has as many WebSockets as it may have", "limits.websockets_per_address, or limits.trusted_proxies for a proxy that comes for many clients")
	}
	return s, nil
}

// serveChannels serves the other paths of channels: event streams, publishing, the client.
// It reports whether the request was for one of them.
func (h *Handler) serveChannels(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/sse":
		var q message.Request
		if q.Of(r); !h.accepts(&q) {
			h.refuse(w, r, h.refusedOrigin(&q))
			return true
		}
		h.channels.ServeEvents(w, r, h.leaving)
	case "/publish":
		h.channels.ServePublish(w, r)
	case "/client.js":
		serveText(w, r, "text/javascript; charset=utf-8", client.Module)
	case "/client.d.ts":
		serveText(w, r, "text/plain; charset=utf-8", client.Types)
	case "/", "/ws":
		return false
	default:
		return h.serveSDK(w, r)
	}
	return true
}

// serveSDK is serveChannels for the paths of Centrifugo's protocol, and for unknown ones.
func (h *Handler) serveSDK(w http.ResponseWriter, r *http.Request) bool {
	switch path := r.URL.Path; {
	case h.sdks == nil:
	case path == sdkSocket || path == sdkListens:
		return false
	case channels.IsAPI(path):
		h.channels.ServeAPI(w, r)
		return true
	case channels.IsSDKStream(path):
		var q message.Request
		if q.Of(r); !h.accepts(&q) {
			h.refuse(w, r, h.refusedOrigin(&q))
			return true
		}
		h.channels.ServeSDK(w, r, h.leaving)
		return true
	}
	pages.Error(w, r, http.StatusNotFound, "")
	return true
}

func serveText(w http.ResponseWriter, r *http.Request, contentType string, text []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(text)))
}

// plain answers a request that is not for a WebSocket.
func (h *Handler) plain(w http.ResponseWriter, r *http.Request) {
	if h.page != nil {
		h.page.ServeHTTP(w, r)
		return
	}
	h.refuse(w, r, &channels.Refusal{Status: http.StatusUpgradeRequired, Text: "Here is a WebSocket: connect with ws:// or wss://."})
}

// refuse answers with an error.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, what *channels.Refusal) {
	h.meters.Refused.Add(0, 1)
	switch what.Status {
	case http.StatusUpgradeRequired: // RFC 9110, 15.5.22, and RFC 6455, 4.2.2
		if r.ProtoMajor == 1 { // RFC 9113, 8.2.2: there are no such fields in HTTP/2
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
		}
		w.Header().Set("Sec-WebSocket-Version", "13")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	case http.StatusUnauthorized: // RFC 9110, 15.5.2
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	pages.Error(w, r, what.Status, what.Text)
}

func asRefusal(err error) *channels.Refusal {
	if r, ok := errors.AsType[*channels.Refusal](err); ok {
		return r
	}
	return &channels.Refusal{Status: http.StatusInternalServerError, Text: "Something went wrong here."}
}

// Grace is how long clients have for saying goodbye.
const grace = 3 * time.Second

// begin starts the wait for the drain, unless Close has come first.
func (h *Handler) begin(drain <-chan struct{}) {
	h.watching.Lock()
	defer h.watching.Unlock()
	h.drain = drain
	if !h.isLeaving() {
		h.watcher.Go(func() { h.awaitDrain(drain) })
	}
}

// awaitDrain sends all clients away when the server is about to end. It is
// started by the first request and ends with Close.
func (h *Handler) awaitDrain(drain <-chan struct{}) {
	select {
	case <-drain:
		h.leave(frame.GoingAway)
	case <-h.leaving:
	}
}

func (h *Handler) isLeaving() bool {
	select {
	case <-h.leaving:
		return true
	default:
		return false
	}
}

// leave tells all clients to come back, and returns when they are gone.
func (h *Handler) leave(code frame.Code) {
	if code == frame.GoingAway {
		h.ended.Store(true)
	}
	h.close.Do(func() {
		h.watching.Lock()
		close(h.leaving)
		h.watching.Unlock()
		var all sync.WaitGroup
		for _, s := range h.all() {
			all.Go(func() { h.engine.Leave(s, code, cmp.Or(max(0, h.options.Reconnect), defaultReconnect), grace) })
		}
		all.Wait()
	})
}

// Measure sets the gauges.
func (h *Handler) Measure() {
	if h.channels != nil {
		h.channels.Measure()
	}
}

// HasChannels reports whether clients can publish and subscribe here.
func (h *Handler) HasChannels() bool { return h.channels != nil }

// Leave tells all clients to come back (1012), ends their event streams, and returns
// when they are gone. A client that connects later is told the same at once.
func (h *Handler) Leave() { h.leave(frame.ServiceRestart) }

// Close tells all clients to come back (1012; 1001 if the server ends, which the
// goroutine that waits for that may not have noticed yet), and returns when they are
// gone.
func (h *Handler) Close() error {
	h.ended.Store(true)
	h.watching.Lock()
	drain := h.drain
	h.watching.Unlock()
	select {
	case <-drain:
		h.leave(frame.GoingAway)
	default:
		h.Leave()
	}
	h.watcher.Wait()
	if h.channels != nil {
		return errors.Join(h.channels.Close(), closeAll(h.own))
	}
	return closeAll(h.own)
}
