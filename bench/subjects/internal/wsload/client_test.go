package wsload

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// peer is a server of WebSockets that does as a test says.
type peer struct {
	address string
	talk    func(c net.Conn, r *bufio.Reader)
	early   string // sent with the handshake's answer
	mu      sync.Mutex
	conns   []net.Conn
}

func newPeer(t *testing.T, early string, talk func(c net.Conn, r *bufio.Reader)) *peer {
	t.Helper()
	p := &peer{talk: talk, early: early}
	s := httptest.NewServer(http.HandlerFunc(p.upgrade))
	t.Cleanup(func() {
		for _, c := range p.all() {
			c.Close()
		}
		s.Close()
	})
	p.address = s.Listener.Addr().String()
	return p
}

func (p *peer) all() []net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]net.Conn(nil), p.conns...)
}

func (p *peer) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/echo" {
		http.NotFound(w, r)
		return
	}
	c, both, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n%s",
		acceptOf(r.Header.Get("Sec-WebSocket-Key")), p.early)
	p.talk(c, both.Reader)
}

// message reads one frame of a client.
func message(r *bufio.Reader) (op byte, payload []byte, err error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	n := int(head[1] &^ mask)
	if n == 126 {
		var long [2]byte
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return 0, nil, err
		}
		n = int(long[0])<<8 | int(long[1])
	}
	if _, err := io.ReadFull(r, head[2:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	for i := range payload {
		payload[i] ^= head[2+i%4]
	}
	return head[0] & 0x0f, payload, err
}

// echoing echoes until the client closes.
func echoAll(c net.Conn, r *bufio.Reader) {
	for {
		op, payload, err := message(r)
		if err != nil || op == opClose {
			return
		}
		c.Write(plain(nil, op, payload))
	}
}

// holding makes a client with connections open.
func holding(t *testing.T, p *peer, n int) *Client {
	t.Helper()
	c := newClient(t)
	state, err := c.Open(order(p, n))
	if err != nil || state.Open != n {
		t.Fatalf("%+v, %v", state, err)
	}
	return c
}

func newClient(t *testing.T) *Client {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Free() })
	return c
}

func order(p *peer, n int) Open {
	return Open{Address: p.address, Path: "/echo", Connections: n, FirstSource: 2, Sources: 2, Busy: 4, Limit: 20 * time.Second}
}

func TestEcho(t *testing.T) {
	c := holding(t, newPeer(t, "", echoAll), 7)
	for _, size := range []int{MinSize, 20, 125, 126, 1024, MaxSize} {
		got, err := c.Echo(Echo{Size: size, Duration: 20 * time.Millisecond})
		if err != nil || got.Failed != 0 || got.First != "" || got.Messages < 7 || got.Trip.P50 <= 0 || got.Trip.Max < got.Trip.P99 {
			t.Errorf("%d bytes: %+v, %v", size, got, err)
		}
	}
	if got, err := c.Echo(Echo{Size: 20}); err != nil || got.Messages != 7 {
		t.Errorf("once on each: %+v, %v", got, err)
	}
	if state := c.Close(); state.Open != 0 || state.Failed+state.Dropped+state.Unclean != 0 || state.First != "" {
		t.Errorf("at the end: %+v", state)
	}
	if _, err := c.Echo(Echo{Size: 20}); err == nil {
		t.Error("an echo with nothing open")
	}
}

// TestEchoInPieces: a message may come in frames, with others between, and a
// frame may come in bytes.
func TestEchoInPieces(t *testing.T) {
	pong := make(chan string, 10)
	p := newPeer(t, string(plain(nil, opPing, []byte("early"))), func(c net.Conn, r *bufio.Reader) {
		for {
			op, payload, err := message(r)
			switch {
			case err != nil || op == opClose:
				return
			case op == opPong:
				pong <- string(payload)
				continue
			}
			first := plain(nil, opText, payload[:5])
			first[0] &^= fin
			out := append(first, plain(nil, opPing, []byte("there?"))...)
			out = append(out, plain(nil, opContinuation, payload[5:])...)
			for i := range out {
				c.Write(out[i : i+1])
			}
		}
	})
	c := holding(t, p, 1)
	if got, err := c.Echo(Echo{Size: 20}); err != nil || got.Messages != 1 || got.Failed != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, want := range []string{"early", "there?"} {
		if got := <-pong; got != want {
			t.Errorf("the pong says %q, want %q", got, want)
		}
	}
}

func TestEchoFails(t *testing.T) {
	for name, c := range map[string]struct {
		talk func(c net.Conn, r *bufio.Reader)
		want string
	}{
		"something else": {func(c net.Conn, r *bufio.Reader) {
			op, payload, _ := message(r)
			payload[0] ^= 1
			c.Write(plain(nil, op, payload))
			message(r)
		}, "not what was sent"},
		"less": {func(c net.Conn, r *bufio.Reader) {
			op, payload, _ := message(r)
			c.Write(plain(nil, op, payload[1:]))
			message(r)
		}, "not what was sent"},
		"the end":     {func(_ net.Conn, r *bufio.Reader) { message(r) }, "closed"},
		"a close":     {func(c net.Conn, r *bufio.Reader) { message(r); c.Write([]byte{0x88, 2, 3, 0xE8}); message(r) }, "closed"},
		"a bad frame": {func(c net.Conn, r *bufio.Reader) { message(r); c.Write([]byte{0x83, 0}); message(r) }, "opcode"},
	} {
		client := holding(t, newPeer(t, "", c.talk), 3)
		got, err := client.Echo(Echo{Size: 20, Duration: time.Minute})
		if err != nil || got.Messages != 0 || got.Failed != 3 || !strings.Contains(got.First, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if state := client.Close(); state.Dropped != 3 || state.First == "" {
			t.Errorf("%s: %+v", name, state)
		}
	}
}

func TestOpenFails(t *testing.T) {
	p := newPeer(t, "", echoAll)
	c := newClient(t)
	o := order(p, 3)
	o.Path = "/elsewhere"
	if state, err := c.Open(o); err != nil || state.Open != 0 || state.Failed != 3 || !strings.Contains(state.First, "404") {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := c.Open(o); err == nil {
		t.Error("opened twice")
	}
	c.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	o.Address = l.Addr().String()
	if state, err := c.Open(o); err != nil || state.Failed != 3 || !strings.Contains(state.First, "refused") {
		t.Errorf("%+v, %v", state, err)
	}
	c.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	o.Address, o.Limit = silent.Addr().String(), time.Millisecond
	if state, err := c.Open(o); err != nil || state.Failed != 3 {
		t.Errorf("a server that says nothing: %+v, %v", state, err)
	}
}

func TestOrdersAreChecked(t *testing.T) {
	c := newClient(t)
	good := Open{Address: "127.0.0.1:9", Connections: 1, FirstSource: 2, Sources: 1, Busy: 1, Limit: time.Second}
	for name, spoil := range map[string]func(*Open){
		"none": func(o *Open) { o.Connections = 0 }, "too many": func(o *Open) { o.Connections = maxConnections + 1 },
		"nobody busy": func(o *Open) { o.Busy = 0 }, "the server's address": func(o *Open) { o.FirstSource = 1 },
		"too many sources": func(o *Open) { o.Sources = 254 }, "no time": func(o *Open) { o.Limit = 0 },
		"a name": func(o *Open) { o.Address = "localhost:80" }, "a subscription over TLS": func(o *Open) { o.TLS, o.Subscribe = true, "x" },
	} {
		o := good
		spoil(&o)
		if _, err := c.Open(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, e := range []Echo{{Size: MinSize - 1}, {Size: MaxSize + 1}, {Size: 20, Duration: -1}} {
		if _, err := c.Echo(e); err == nil {
			t.Errorf("%+v: no error", e)
		}
	}
	for _, b := range []Broadcast{{Every: 1, Count: 1, Size: 1}, {Every: 0, Count: 1, Size: 100}, {Every: 1, Count: 0, Size: 100}} {
		if _, err := c.Broadcast(b); err == nil {
			t.Errorf("%+v: no error", b)
		}
	}
}

// TestPingsBetweenOrders: what is only held is served as well.
func TestPingsBetweenOrders(t *testing.T) {
	ponged := make(chan struct{})
	c := holding(t, newPeer(t, "", func(c net.Conn, r *bufio.Reader) {
		c.Write(plain(nil, opPing, nil))
		if op, _, err := message(r); err == nil && op == opPong {
			close(ponged)
		}
		message(r)
	}), 1)
	for waiting := true; waiting; {
		select {
		case <-ponged:
			waiting = false
		default:
			if err := c.Turn(time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := c.State(); s.Open != 1 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// channel is a server that broadcasts; wrong is what it does to message i for
// connection k: how often it sends it.
func channel(t *testing.T, wrong func(k, i int) int) (*peer, string) {
	p := newPeer(t, "", func(_ net.Conn, r *bufio.Reader) {
		for op := byte(0); op != opClose; {
			var err error
			if op, _, err = message(r); err != nil {
				return
			}
		}
	})
	posts := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := `{"channel":"bench","offset":` + strconv.Itoa(posts) + `,"data":` + string(body) + `}`
		for k, c := range p.all() {
			for range wrong(k, posts) {
				c.Write(plain(nil, opText, []byte(text)))
			}
		}
		posts++
		if posts > 1000 {
			http.Error(w, "no more", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	return p, s.URL
}

func TestBroadcast(t *testing.T) {
	p, url := channel(t, func(int, int) int { return 1 })
	c := holding(t, p, 5)
	for range 2 {
		got, err := c.Broadcast(Broadcast{URL: url, Every: 5 * time.Millisecond, Count: 10, Size: 100})
		if err != nil || got.Published != 10 || got.Delivered != 50 || got.Lost+got.Doubled+got.Refused != 0 || got.First != "" {
			t.Errorf("%+v, %v", got, err)
		}
		if got.Lag.P50 <= 0 || got.Lag.Max < got.Lag.P99 || got.Took < 40*time.Millisecond {
			t.Errorf("%+v", got)
		}
	}
}

// TestBroadcastCounts: of five connections one misses one publication, and
// another gets one twice.
func TestBroadcastCounts(t *testing.T) {
	p, url := channel(t, func(k, i int) int {
		switch {
		case k == 1 && i == 3:
			return 0
		case k == 2 && i == 4:
			return 2
		}
		return 1
	})
	c := holding(t, p, 5)
	c.patience = 2 * time.Second
	got, err := c.Broadcast(Broadcast{URL: url, Every: time.Millisecond, Count: 10, Size: 100})
	if err != nil || got.Delivered != 49 || got.Lost != 1 || got.Doubled != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBroadcastRefused(t *testing.T) {
	c := holding(t, newPeer(t, "", echoAll), 2)
	got, err := c.Broadcast(Broadcast{URL: "http://127.0.0.1:1/", Every: time.Millisecond, Count: 3, Size: 100})
	if err != nil || got.Refused != 3 || got.Published != 0 || got.Lost != 0 || got.First == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSubscribe(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		failed int
	}{
		"yes":             {`{"subscribed":"bench","offset":0}`, 0},
		"no":              {`{"error":"bench is not for you"}`, 2},
		"hello, then yes": {"", 0},
	} {
		early := ""
		if c.answer == "" {
			early = string(plain(nil, opText, []byte(`{"hello":1}`)))
			c.answer = `{"subscribed":"bench"}`
		}
		client := newClient(t)
		o := order(newPeer(t, early, func(conn net.Conn, r *bufio.Reader) {
			if _, said, _ := message(r); string(said) == `{"subscribe":"bench"}` {
				conn.Write(plain(nil, opText, []byte(c.answer)))
			}
			message(r)
		}), 2)
		o.Subscribe = "bench"
		if state, err := client.Open(o); err != nil || state.Failed != c.failed {
			t.Errorf("%s: %+v, %v", name, state, err)
		}
	}
}

func TestTLS(t *testing.T) {
	p := &peer{talk: func(c net.Conn, r *bufio.Reader) {
		c.Write(plain(nil, opPing, []byte("there?")))
		if op, said, err := message(r); err != nil || op != opPong || string(said) != "there?" {
			return // too early
		}
		message(r)
	}}
	s := httptest.NewTLSServer(http.HandlerFunc(p.upgrade))
	defer s.Close()
	p.address = s.Listener.Addr().String()
	c := newClient(t)
	o := order(p, 3)
	o.TLS = true
	state, err := c.Open(o)
	if err != nil || state.Open != 3 || state.Failed != 0 {
		t.Fatalf("%+v, %v", state, err)
	}
	if s := c.State(); s.Open != 3 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	if s := c.Close(); s.Open != 0 || s.Dropped != 0 || s.First != "" {
		t.Errorf("%+v", s)
	}
	o.Path = "/elsewhere"
	if state, err := c.Open(o); err != nil || state.Failed != 3 || !strings.Contains(state.First, "404") {
		t.Errorf("%+v, %v", state, err)
	}
}
