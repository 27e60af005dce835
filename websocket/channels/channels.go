// Package channels is publish and subscribe for browsers: a JSON protocol over
// WebSockets, event streams for who cannot have them, and publishing over
// HTTP.
//
// # Protocol
//
// Every message is one JSON object. A client sends commands:
//
//	{"subscribe":CH}     {"subscribed":CH,"epoch":E,"offset":N}
//	{"unsubscribe":CH}   {"unsubscribed":CH}
//	{"publish":CH,"data":…}  {"published":CH,"offset":N}
//	{"presence":CH}      {"presence":CH,"members":[{"client","user","info"}]}
//	{"history":CH}       {"history":CH,"epoch":E,"offset":N,"complete":…,"messages":[{"offset","data","time"}]}
//	{"token":T}          {"token":"ok","expires":seconds since 1970}
//	{"ping":true}        {"pong":true}
//
// A command may have an "id", a string or a number that comes back with its
// answer. What goes wrong is answered with {"error":"text","code":CODE} and the
// id and the channel if there are any; see the constants of type code. Once
// subscribed, publications come as {"message":CH,"offset":N,"data":…}, in the
// order of their offsets. Who publishes behind a subscription of its own, without
// waiting for the answer, gets that publication too.
//
// subscribe with "epoch" and "offset", those of the latest message that the
// client has, goes on behind it: the answer has "recovered":true if nothing is
// missing, and what was missed follows as ordinary messages. {"reset":CH} says
// that something may be missing after all: subscribe again, with the same, and
// until that is answered take no notice of messages of CH: they come again,
// behind what is missing. With "joins":true come {"join":CH,"member":{…}} and
// {"leave":CH,"member":{…}}, of clients of the same server. {"reconnect":seconds}
// before the end says when to come back.
//
// # Several machines
//
// Where machines share channels by a bus, messages have an "id" besides the
// offset. One that is published while the machines cannot reach each other has
// only the id (in the answer to publish it is "message_id"), and comes on that
// machine alone; {"placed":CH,"id":…,"offset":N} says its offset later. It is the
// same as one with an offset and that id: a client shows whichever comes first.
//
// Who subscribes meanwhile is told "down":true: only what is published on this
// machine comes, and when the others are back a reset. The epoch and offset of
// that answer are those that were sent, or "" and 0.
//
// # Who does what
//
// A session (session.go) belongs to one WebSocket, and is used in its turn
// only, but for Deliver. Whatever may wait is done elsewhere: publishing by a
// few goroutines (publisher.go), the ends of grants by one (expiry.go).
package channels

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/access/token"
	"millrace/internal/observe/meter"
	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/conn"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// Deps are what the channels work with.
type Deps struct {
	Bus      bus.Bus // not started; closed by Close
	Runners  int
	Post     func(i int, f func())
	Meters   *meter.WebSocket
	ErrorLog *slog.Logger
	// CompressFrom is from how many bytes on publications are compressed.
	CompressFrom int
	// Each calls f in the turn of every WebSocket of the channels, soon. nil: orders of
	// the server API reach none.
	Each func(f func(k *conn.Conn))
	// Ping is how often an SDK's clients get a ping of their protocol, which the
	// connection sends; 0: never. They are told, and asked to answer.
	Ping time.Duration
	// Queue and QueueLength bound what waits for one event stream: bytes and
	// messages. An answer to history or presence has at most half of Queue.
	Queue, QueueLength int
}

// Channels implements [conn.App] and [conn.Leaver].
type Channels struct {
	hub       *hub.Hub
	auth      *auth.Checker
	publisher *publisher
	expiry    *expiry

	keys       [][sha256.Size]byte
	presence   bool
	keeps      bool // a history
	shared     bool // by several machines
	ping       time.Duration
	node       string     // this server, to SDKs' clients without a WebSocket
	streams    sdkStreams // theirs
	walk       func(f func(k *conn.Conn))
	ordered    bool // orders are heard
	perClient  int
	maxPublish int
	commands   int
	interval   time.Duration // between two commands, on the average
	started    time.Time     // what sessions count their time from

	last         int // the runner of those that have goroutines
	meters       *meter.WebSocket
	serial       atomic.Uint32 // spreads event streams over the meters' shards
	errorLog     *slog.Logger
	compressFrom int
	queue        int
	queueLength  int

	end      chan struct{} // closed by Close: event streams end
	closing  sync.Once
	closeErr error
}

var (
	_ conn.App    = (*Channels)(nil)
	_ conn.Leaver = (*Channels)(nil)
)

const (
	// DefaultQueue bounds what waits for one client, in bytes, unless the options
	// of its route say otherwise.
	DefaultQueue = 256 << 10
	// DefaultQueueLength is the same in messages.
	DefaultQueueLength = 256
)

// New starts the hub. It must be closed.
func New(o Options, d Deps) (*Channels, error) {
	for key, fault := range o.Check() { // any of them
		return nil, errors.Join(fmt.Errorf("channels: %s: %w", key, fault), d.Bus.Close())
	}
	c := &Channels{
		presence:     o.Presence,
		keeps:        !o.History.Off,
		ping:         d.Ping,
		node:         rand.Text()[:12],
		walk:         d.Each,
		ordered:      o.Centrifuge,
		shared:       o.Bus != "",
		perClient:    or(o.PerClient, defaultPerClient),
		maxPublish:   int(or(o.MaxPublish, defaultMaxPublish)),
		commands:     or(o.Commands, defaultCommands),
		started:      time.Now(),
		last:         d.Runners - 1,
		meters:       or(d.Meters, new(meter.WebSocket)),
		errorLog:     or(d.ErrorLog, slog.Default()),
		compressFrom: d.CompressFrom,
		queue:        or(d.Queue, DefaultQueue),
		queueLength:  or(d.QueueLength, DefaultQueueLength),
		end:          make(chan struct{}),
	}
	c.interval = time.Second / time.Duration(c.commands)
	for _, key := range o.Keys {
		c.keys = append(c.keys, sha256.Sum256([]byte(key)))
	}
	var err error
	if c.auth, err = auth.New(o.Auth, c.errorLog); err != nil {
		return nil, errors.Join(fmt.Errorf("channels: %w", err), d.Bus.Close())
	}
	c.hub, err = hub.New(hub.Options{
		Presence: o.Presence, CompressFrom: d.CompressFrom, Meters: c.meters,
		Forms: c.forms(),
	}, d.Bus, d.Runners, d.Post)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("channels: %w", err), d.Bus.Close(), c.auth.Close())
	}
	c.publisher = newPublisher(c.hub.Publish)
	c.expiry = newExpiry()
	if o.Centrifuge {
		if err := c.takeOrders(); err != nil {
			return nil, errors.Join(fmt.Errorf("channels: %w", err), c.Close())
		}
	}
	return c, nil
}

// Connect decides whether a client may open a WebSocket; the state it returns is for
// [conn.Engine.Adopt]. It may wait for a URL or a key. end, if it is not nil, is
// called when the connection is over. An error is a *Refusal.
func (c *Channels) Connect(r *http.Request, end func()) (state any, err error) {
	grant, no := c.grant(r)
	if no != nil {
		return nil, no
	}
	return &session{grant: grant, slot: noSlot, end: end}, nil
}

// ConnectSDK is Connect for a client that speaks Centrifugo's protocol, which may bring
// its token with its first command.
func (c *Channels) ConnectSDK(r *http.Request, form centrifuge.Form, end func()) (state any, err error) {
	grant, err := c.auth.Handshake(r.Context(), r)
	if err != nil {
		return nil, c.refused(r, err)
	}
	return newSDKClient(form, grant, end), nil
}

// grant returns what a client may do.
func (c *Channels) grant(r *http.Request) (*auth.Grant, *Refusal) {
	grant, err := c.auth.Connect(r.Context(), r)
	if err != nil {
		return nil, c.refused(r, err)
	}
	return grant, nil
}

// refused is the answer to a client that may not connect.
func (c *Channels) refused(r *http.Request, err error) *Refusal {
	switch {
	case errors.Is(err, auth.ErrForbidden):
		return refusal(http.StatusForbidden, err.Error())
	case errors.Is(err, token.ErrUnauthorized):
		return refusal(http.StatusUnauthorized, err.Error())
	}
	if r.Context().Err() == nil {
		c.errorLog.Error("a client of the channels could not be checked", "error", err)
	}
	return refusal(http.StatusServiceUnavailable, token.ErrUnavailable.Error())
}

// Refusal is an HTTP status and the text that goes with it.
type Refusal struct {
	Status int
	Text   string
}

// refusal makes a sentence of an error's text.
func refusal(status int, text string) *Refusal {
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:] + "."
	}
	return &Refusal{status, text}
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Open implements [conn.App].
func (c *Channels) Open(k *conn.Conn) {
	switch s := k.State().(type) {
	case *session:
		c.open(s, wire{k})
	case *sdkClient:
		c.openSDK(s, wire{k})
	}
}

// Message implements [conn.App].
func (c *Channels) Message(k *conn.Conn, op frame.Opcode, data []byte) {
	switch s := k.State().(type) {
	case *session:
		c.message(s, op, data)
	case *sdkClient:
		c.frame(s, op, data)
	}
}

// Closed implements [conn.App].
func (c *Channels) Closed(k *conn.Conn, _ frame.Code) {
	switch s := k.State().(type) {
	case *session:
		c.closed(s)
	case *sdkClient:
		c.closedSDK(s)
	}
}

// Leaving implements [conn.Leaver]. To an SDK the close frame says enough.
func (c *Channels) Leaving(k *conn.Conn, _ frame.Code, reconnect time.Duration) {
	if _, ok := k.State().(*session); ok {
		k.Send(frame.Text, leaving(reconnect))
	}
}

// leaving is the message that says in how many seconds to come back, to the
// millisecond.
func leaving(reconnect time.Duration) []byte {
	b := strconv.AppendFloat([]byte(`{"reconnect":`), reconnect.Round(time.Millisecond).Seconds(), 'f', -1, 64)
	return append(b, '}')
}

// Measure sets the gauges. The channel of orders is nobody's.
func (c *Channels) Measure() {
	c.hub.Measure()
	if c.ordered {
		c.meters.Channels.Add(-1)
		c.meters.Subscriptions.Add(-1)
	}
}

// Close ends event streams, waits for what is being published, and ends the hub
// and its bus. Publications that still wait are not sent.
func (c *Channels) Close() error {
	c.closing.Do(func() {
		close(c.end)
		c.publisher.close()
		c.expiry.close()
		c.closeErr = errors.Join(c.hub.Close(), c.auth.Close())
	})
	return c.closeErr
}

// newMember is a client as others see it.
func newMember(g *auth.Grant, client string) *bus.Member {
	if client == "" {
		client = rand.Text()[:12] // 60 bits
	}
	return &bus.Member{Client: client, User: g.User, Info: g.Info}
}

// publishContext bounds how long a publication may take before its client is answered.
func publishContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, publishTimeout)
}
