package channels_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"millrace/internal/observe/meter"
	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/channels"
	"millrace/websocket/conn"
	"millrace/websocket/frame"
)

// patience is for what must happen; a machine in tests may be slow.
const patience = 60 * time.Second

// machine is a server with channels, plain and with TLS.
type machine struct {
	bus      bus.Bus
	engine   *conn.Engine
	channels *channels.Channels
	settings *conn.Settings
	meters   *meter.WebSocket
	leaving  chan struct{}
	servers  [2]*httptest.Server
}

// newMachine starts one. It takes the bus over.
func newMachine(t *testing.T, b bus.Bus, o channels.Options) *machine {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	m := &machine{bus: b, engine: conn.NewEngine(log), meters: &meter.WebSocket{}, leaving: make(chan struct{})}
	o.Auth = auth.Options{Publish: []string{"*"}}
	var err error
	m.channels, err = channels.New(o, channels.Deps{Bus: b, Runners: m.engine.Runners(), Post: m.engine.Post, Meters: m.meters, ErrorLog: log})
	if err != nil {
		t.Fatal(err)
	}
	m.settings = &conn.Settings{
		App: m.channels, MaxMessage: 64 << 10, Queue: 256 << 10, QueueLength: 256, Meters: m.meters,
		Ping: 30 * time.Second, PongTimeout: 20 * time.Second, WriteTimeout: 30 * time.Second,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/ws", m.serveWebSocket)
	mux.HandleFunc("/publish", m.channels.ServePublish)
	mux.HandleFunc("/sse", func(w http.ResponseWriter, r *http.Request) { m.channels.ServeEvents(w, r, m.leaving) })
	m.servers = [2]*httptest.Server{httptest.NewUnstartedServer(mux), httptest.NewUnstartedServer(mux)}
	for _, s := range m.servers {
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	}
	m.servers[0].Start()
	m.servers[1].StartTLS()
	return m
}

func (m *machine) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	state, err := m.channels.Connect(r, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	nc, buf, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	early, _ := buf.Reader.Peek(buf.Reader.Buffered())
	_ = m.engine.Adopt(nc, early, m.settings, frame.Params{}, state)
}

func (m *machine) close(t *testing.T) {
	t.Helper()
	close(m.leaving)
	m.engine.Leave(m.settings, frame.GoingAway, 0, time.Second)
	if err := m.channels.Close(); err != nil {
		t.Error(err)
	}
	for _, s := range m.servers {
		s.CloseClientConnections()
		s.Close()
	}
	if err := m.engine.Close(); err != nil {
		t.Error(err)
	}
	if n, b := m.meters.QueuedMessages.Load(), m.meters.QueuedBytes.Load(); n != 0 || b != 0 {
		t.Errorf("%d messages and %d bytes wait for nobody", n, b)
	}
}

// said is whatever a server says, of both kinds.
type said struct {
	Message, Subscribed, Placed, Reset, Published, Error, Code, Channel string

	Epoch     string
	Offset    uint64
	ID        json.RawMessage
	Data      string
	Recovered *bool
	Down      bool
}

// shown is a publication that a client has taken.
type shown struct {
	offset uint64
	data   string
}

// view is what a client knows of one channel, by the rules of the protocol.
type view struct {
	channel string
	on      bool // nothing counts until a subscription is answered
	epoch   string
	offset  uint64          // of the latest
	ids     map[string]bool // of those without an offset
	known   map[string]bool // of those with one
	placed  map[uint64]bool
	got     []shown
}

func newView(channel string) *view {
	return &view{channel: channel, ids: map[string]bool{}, known: map[string]bool{}, placed: map[uint64]bool{}}
}

// take takes a publication or a note.
func (v *view) take(m said) error {
	id := string(m.ID)
	switch {
	case m.Placed != "":
		if v.ids[id] && m.Offset > v.offset {
			v.placed[m.Offset] = true
		}
	case m.Offset == 0:
		if !v.ids[id] && !v.known[id] {
			v.ids[id] = true
			v.got = append(v.got, shown{0, m.Data})
		}
	case m.Offset <= v.offset:
		return fmt.Errorf("%s: %d %q came behind %d", v.channel, m.Offset, m.Data, v.offset)
	default:
		v.offset = m.Offset
		v.known[id] = id != ""
		if !v.placed[m.Offset] && !v.ids[id] {
			v.got = append(v.got, shown{m.Offset, m.Data})
		}
	}
	return nil
}

// client comes, goes, and comes back where it was, by WebSocket or event stream.
type client struct {
	world  *world
	events bool
	views  map[string]*view
	last   string      // of an event stream
	age    *time.Timer // ends the life
	lives  int
	resets int
	downs  int
}

// world is what clients live in.
type world struct {
	machines []*machine
	tls      *tls.Config
	http     *http.Client
	end      atomic.Pointer[map[string][]bus.Message] // the truth, when all is published
	failed   atomic.Pointer[error]
	ready    sync.WaitGroup // clients that are not subscribed to all for the first time
}

func newWorld(machines ...*machine) *world {
	w := &world{machines: machines}
	// One for all: a handshake for every life would take most of the time.
	w.tls = &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(64)} // our own servers
	w.http = &http.Client{Transport: &http.Transport{TLSClientConfig: w.tls, DisableKeepAlives: true}}
	return w
}

// base is the address of any server.
func (w *world) base() *url.URL {
	u, err := url.Parse(w.machines[rand.IntN(len(w.machines))].servers[rand.IntN(2)].URL)
	if err != nil {
		panic(err)
	}
	return u
}

// run lives until the client knows all that there is.
func (k *client) run(ctx context.Context) error {
	for ctx.Err() == nil {
		k.lives++
		life, cancel := context.WithCancel(ctx)
		// It lives longer the more often it has come: on a busy machine a short life ends
		// before the client has heard anything, and the next begins where this one did.
		k.age = time.AfterFunc((100*time.Millisecond+rand.N(700*time.Millisecond))<<min(k.lives/8, 8), cancel)
		if k.lives == 1 { // the first one is for beginning, which may take longer
			k.age.Stop()
		}
		var err error
		if k.events {
			err = k.listen(life)
		} else {
			err = k.talk(life)
		}
		k.age.Stop()
		cancel()
		if err != nil {
			return err
		}
		if truth := k.world.end.Load(); truth != nil && k.knows(*truth) {
			return nil
		}
	}
	return fmt.Errorf("it never knew all: %s", k.state())
}

func (k *client) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "events %v, %d lives, %d resets, %d times down;", k.events, k.lives, k.resets, k.downs)
	for _, v := range k.views {
		fmt.Fprintf(&b, " %s: %d until %d", v.channel, len(v.got), v.offset)
	}
	return b.String()
}

func (k *client) knows(truth map[string][]bus.Message) bool {
	for _, v := range k.views {
		if len(v.got) < len(truth[v.channel]) {
			return false
		}
	}
	return true
}

// begun says that the first life has begun.
func (k *client) begun() {
	if k.lives == 1 {
		k.world.ready.Done()
		k.lives++
		k.age.Reset(rand.N(time.Second))
	}
}

// talk is a life by WebSocket.
func (k *client) talk(ctx context.Context) error {
	u := k.world.base()
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	u.Path = "/ws"
	nc, buf, _, err := ws.Dialer{TLSConfig: k.world.tls}.Dial(ctx, u.String())
	if err != nil {
		return nil // its time was over
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var in io.Reader = nc
	if buf != nil { // the server was quick
		in = io.MultiReader(io.LimitReader(buf, int64(buf.Buffered())), nc)
	}
	for _, v := range k.views {
		v.on = false
		k.subscribe(nc, v)
	}
	for most := rand.IntN(200); most > 0 || k.lives == 1; most-- {
		data, _, err := wsutil.ReadServerData(struct {
			io.Reader
			io.Writer
		}{in, nc})
		if err != nil {
			return nil // it is over
		}
		var m said
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("%s: %w", data, err)
		}
		if err := k.hear(nc, m); err != nil {
			return err
		}
	}
	if rand.IntN(2) == 0 {
		_ = ws.WriteFrame(nc, ws.MaskFrame(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))))
	}
	return nil
}

func (k *client) subscribe(nc net.Conn, v *view) {
	command := map[string]any{"subscribe": v.channel}
	if v.epoch != "" {
		command["epoch"], command["offset"] = v.epoch, v.offset
	}
	text, _ := json.Marshal(command)
	_ = wsutil.WriteClientText(nc, text) // reading fails then, too
}

func (k *client) hear(nc net.Conn, m said) error {
	v := k.views[m.Message+m.Subscribed+m.Placed+m.Reset+m.Channel] // one of them
	switch {
	case v == nil:
		return fmt.Errorf("heard of another channel: %+v", m)
	case m.Error != "":
		if m.Code != "unavailable" {
			return fmt.Errorf("%s: %s", m.Channel, m.Error)
		}
		k.subscribe(nc, v)
	case m.Reset != "":
		k.resets++
		v.on = false
		k.subscribe(nc, v)
	case m.Subscribed != "":
		v.on = true
		if m.Down {
			k.downs++
		} else if m.Recovered != nil && !*m.Recovered {
			return fmt.Errorf("%s: not recovered behind %s %d", v.channel, v.epoch, v.offset)
		}
		if v.epoch == "" {
			v.epoch, v.offset = m.Epoch, m.Offset
		}
		if k.subscribed() {
			k.begun()
		}
	case v.on:
		return v.take(m)
	}
	return nil
}

func (k *client) subscribed() bool {
	for _, v := range k.views {
		if v.epoch == "" {
			return false
		}
	}
	return true
}

// listen is a life by event stream.
func (k *client) listen(ctx context.Context) error {
	u := k.world.base()
	u.Path = "/sse"
	query := url.Values{}
	for channel := range k.views {
		query.Add("channel", channel)
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	if k.last != "" {
		req.Header.Set("Last-Event-ID", k.last)
	}
	resp, err := k.world.http.Do(req)
	if err != nil {
		return nil // its time was over
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream's status is %s", resp.Status)
	}
	id, data, kind := k.last, "", ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data = value
		case "": // dispatch
			k.last = id
			if strings.Count(id, ".") >= len(k.views) {
				k.begun()
			}
			if err := k.event(kind, data); err != nil {
				return err
			}
			data, kind = "", ""
		}
	}
	return nil
}

func (k *client) event(kind, data string) error {
	if data == "" {
		return nil
	}
	var m said
	if err := json.Unmarshal([]byte(data), &m); err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	if kind == "reset" {
		return fmt.Errorf("%s: not recovered", m.Reset)
	}
	return k.views[m.Message+m.Placed].take(m)
}
