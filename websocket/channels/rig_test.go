package channels

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"millrace/internal/access/token"
	"millrace/internal/observe/meter"
	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/frame"
)

const testSecret = "0123456789abcdef0123456789abcdef"

// rig is the channels with a runner of their own. It is used in a synctest
// bubble.
type rig struct {
	t      *testing.T
	c      *Channels
	bus    *heldBus
	posted chan func()
	ended  sync.WaitGroup
	log    *strings.Builder
}

// heldBus is a bus in memory whose answers can be held back.
type heldBus struct {
	*bus.Memory
	mu       sync.Mutex
	hold     bool
	held     []func()
	fail     error // of history
	listener bus.Listener
}

func (b *heldBus) Start(l bus.Listener) error {
	b.listener = l
	return b.Memory.Start(l)
}

func (b *heldBus) History(channel string, since *bus.Position, limit int, done func(bus.History, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	call := func() {
		if b.fail != nil {
			done(bus.History{}, b.fail)
			return
		}
		b.Memory.History(channel, since, limit, done)
	}
	if !b.hold {
		call()
		return
	}
	b.held = append(b.held, call)
}

func (b *heldBus) release() {
	b.mu.Lock()
	held := b.held
	b.held, b.hold = nil, false
	b.mu.Unlock()
	for _, f := range held {
		f()
	}
}

const rigPosts = 1 << 16 // more than any test posts

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{t: t, bus: &heldBus{Memory: bus.NewMemory(o.Keep())}, posted: make(chan func(), rigPosts), log: &strings.Builder{}}
	r.ended.Go(func() {
		for f := range r.posted {
			f()
		}
	})
	var err error
	r.c, err = New(o, Deps{
		Bus: r.bus, Runners: 1, Post: func(_ int, f func()) { r.posted <- f }, Meters: &meter.WebSocket{},
		ErrorLog: slog.New(slog.NewTextHandler(r.log, nil)), CompressFrom: 1024, Queue: 64 << 10, QueueLength: 32,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.c.Close(); err != nil {
		r.t.Error(err)
	}
	close(r.posted)
	r.ended.Wait()
}

// bubble runs a test with a rig.
func bubble(t *testing.T, o Options, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, o)
		defer r.close()
		f(t, r)
	})
}

// client is a fake of a connection with its session.
type client struct {
	r *rig
	s *session

	mu     sync.Mutex
	said   []string
	code   frame.Code
	reason string
	over   bool
}

func (k *client) Send(op frame.Opcode, data []byte) {
	if op != frame.Text {
		k.r.t.Errorf("sent with opcode %d", op)
	}
	k.hear(string(data))
}

func (k *client) Deliver(p *frame.Prepared) { k.hear(string(p.Payload())) }
func (k *client) Answer(p *frame.Prepared)  { k.hear(string(p.Payload())) }

func (k *client) hear(text string) {
	if !json.Valid([]byte(text)) {
		k.r.t.Errorf("not JSON: %s", text)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said = append(k.said, text)
}

func (k *client) Close(code frame.Code, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.code == 0 {
		k.code, k.reason = code, reason
	}
}

func (k *client) Runner() int { return 0 }

func (k *client) Later() func(f func()) {
	return func(f func()) {
		k.r.posted <- func() {
			if !k.over {
				f()
			}
		}
	}
}

// turn runs f on the runner, and waits until nothing happens any more.
func (r *rig) turn(f func()) {
	r.posted <- f
	synctest.Wait()
}

// join opens a session with a grant.
func (r *rig) join(g *auth.Grant) *client {
	k := &client{r: r, s: &session{grant: g, slot: noSlot}}
	r.turn(func() { r.c.open(k.s, k) })
	return k
}

// connect is join with a token, "" for none.
func (r *rig) connect(token string) *client {
	r.t.Helper()
	req := request(r.t, "GET", "http://example.test/ws", "")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	state, err := r.c.Connect(req, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.join(state.(*session).grant)
}

// say sends a command, and returns what has come since the last call.
func (k *client) say(text string) []string {
	k.r.turn(func() { k.r.c.message(k.s, frame.Text, []byte(text)) })
	return k.heard()
}

func (k *client) heard() []string {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	said := k.said
	k.said = nil
	return said
}

// expect says a command and compares what comes. EPOCH in want stands for the
// bus's.
func (k *client) expect(command string, want ...string) {
	k.r.t.Helper()
	var got []string
	if command == "" {
		got = k.heard()
	} else {
		got = k.say(command)
	}
	epoch := k.r.epoch()
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "EPOCH", epoch)
	}
	if !slices.Equal(got, want) {
		k.r.t.Errorf("after %s\n got %s\nwant %s", command, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// leave ends a session.
func (k *client) leave() {
	k.r.turn(func() {
		k.over = true
		k.r.c.closed(k.s)
	})
}

func (k *client) closedWith(code frame.Code) {
	k.r.t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.code != code {
		k.r.t.Errorf("closed with %d %q, want %d", k.code, k.reason, code)
	}
}

func (r *rig) epoch() (epoch string) {
	r.bus.Memory.History("x", nil, 1, func(h bus.History, _ error) { epoch = h.Top.Epoch })
	return epoch
}

func (r *rig) publish(channel, data string) uint64 {
	r.t.Helper()
	m, err := r.c.hub.Publish(r.t.Context(), bus.Message{Channel: channel, Data: []byte(data)})
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return m.Offset
}

// open is who may do everything.
func everybody() Options {
	return Options{Auth: auth.Options{Subscribe: []string{"*"}, Publish: []string{"*"}, Presence: []string{"*"}}, Presence: true}
}

// tokens takes signed tokens.
func tokens() Options {
	return Options{Auth: auth.Options{JWT: &token.Options{Secret: testSecret}}, Presence: true}
}

// tokenFor signs one (RFC 7515, appendix A.1).
func tokenFor(t *testing.T, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc.EncodeToString(body)
	mac := hmac.New(sha256.New, []byte(testSecret))
	mac.Write([]byte(text))
	return text + "." + enc.EncodeToString(mac.Sum(nil))
}

func request(t *testing.T, method, target, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:4000", "localhost:8080"
	return r
}

// grantOf is what a client without a token may do.
func grantOf(t *testing.T, c *Channels) *auth.Grant {
	t.Helper()
	state, err := c.Connect(request(t, "GET", "/ws", ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	return state.(*session).grant
}
