package client

import (
	"bufio"
	"crypto/sha1" // #nosec G505 -- RFC 6455, 4.2.2 wants it
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fakeServer speaks as much of the protocol as a page needs, and misbehaves
// when it is told to: a POST to /control?do=… does.
type fakeServer struct {
	mu       sync.Mutex
	epoch    int
	channels map[string]*fakeChannel
	clients  map[*fakeClient]bool
	token    string // that is good; "": any
	noSocket bool   // WebSockets are not let through
}

type fakeChannel struct {
	top      uint64
	messages []fakeMessage // all of this epoch that are remembered
}

type fakeMessage struct {
	Offset uint64          `json:"offset"`
	Data   json.RawMessage `json:"data"`
	Time   int64           `json:"time"`
}

// fakeClient is a WebSocket, or with events an event stream.
type fakeClient struct {
	conn     net.Conn
	events   chan string
	end      chan struct{} // of an event stream
	channels map[string]bool
}

func newFakeServer() *fakeServer {
	return &fakeServer{epoch: 1, channels: map[string]*fakeChannel{}, clients: map[*fakeClient]bool{}}
}

func (s *fakeServer) channel(name string) *fakeChannel {
	c := s.channels[name]
	if c == nil {
		c = &fakeChannel{}
		s.channels[name] = c
	}
	return c
}

// publish is called with the lock held.
func (s *fakeServer) publish(name string, data json.RawMessage) uint64 {
	c := s.channel(name)
	c.top++
	m := fakeMessage{Offset: c.top, Data: data, Time: time.Now().UnixMilli()}
	c.messages = append(c.messages, m)
	for k := range s.clients {
		if k.channels[name] {
			k.message(name, m)
		}
	}
	return c.top
}

func (k *fakeClient) message(channel string, m fakeMessage) {
	k.say(map[string]any{"message": channel, "offset": m.Offset, "data": m.Data}, "id: "+strconv.FormatUint(m.Offset, 10)+"\n")
}

func (k *fakeClient) say(m map[string]any, id string) {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	if k.events != nil {
		select {
		case k.events <- id + "event: message\ndata: " + string(text) + "\n\n":
		default: // a test never has so many
		}
		return
	}
	k.frame(1, text)
}

// frame sends one (RFC 6455, 5.2).
func (k *fakeClient) frame(op byte, payload []byte) {
	head := []byte{0x80 | op, byte(len(payload))}
	if len(payload) > 125 {
		head[1] = 126
		head = binary.BigEndian.AppendUint16(head, uint16(len(payload)))
	}
	k.conn.Write(append(head, payload...)) // of one that is gone the reader hears
}

func (k *fakeClient) close(code uint16) {
	if k.events != nil {
		close(k.end)
		return
	}
	if code != 0 {
		k.frame(8, binary.BigEndian.AppendUint16(nil, code))
	} else {
		k.conn.Close()
	}
}

// control is what a page wants to happen.
func (s *fakeServer) control(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	switch q.Get("do") {
	case "publish":
		s.publish(q.Get("channel"), json.RawMessage(q.Get("data")))
	case "close": // and publish while nobody is there
		code, err := strconv.ParseUint(q.Get("code"), 10, 16)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for k := range s.clients {
			if code == 1012 {
				k.say(map[string]any{"reconnect": 0.05}, "")
			}
			delete(s.clients, k)
			k.close(uint16(code))
		}
		for _, data := range q["data"] {
			s.publish(q.Get("channel"), json.RawMessage(data))
		}
		if token := q.Get("token"); token != "" {
			s.token = token
		}
		s.noSocket = q.Has("nosocket")
	case "forget":
		s.epoch++
		clear(s.channels)
	}
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	unauthorized, noSocket := s.token != "" && r.URL.Query().Get("token") != s.token, s.noSocket
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/control":
		s.control(w, r)
	case unauthorized:
		http.Error(w, "unauthorized", http.StatusUnauthorized)
	case r.URL.Path == "/live/sse":
		s.serveEvents(w, r)
	case r.URL.Path == "/live/ws" && !noSocket:
		s.serveSocket(w, r)
	default:
		http.Error(w, "not let through", http.StatusServiceUnavailable)
	}
}

func (s *fakeServer) serveEvents(w http.ResponseWriter, r *http.Request) {
	k := &fakeClient{events: make(chan string, 100), end: make(chan struct{}), channels: map[string]bool{}}
	from := r.URL.Query().Get("last_event_id")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		from = id
	}
	s.mu.Lock()
	for _, name := range r.URL.Query()["channel"] {
		k.channels[name] = true
		if after, err := strconv.ParseUint(from, 10, 64); err == nil {
			for _, m := range s.channel(name).messages {
				if m.Offset > after {
					k.message(name, m)
				}
			}
		}
	}
	s.clients[k] = true
	s.mu.Unlock()
	defer s.gone(k)
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "retry: 50\n\n")
	for {
		w.(http.Flusher).Flush()
		select {
		case text := <-k.events:
			io.WriteString(w, text)
		case <-k.end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *fakeServer) gone(k *fakeClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, k)
}

func (s *fakeServer) serveSocket(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	k := &fakeClient{conn: conn, channels: map[string]bool{}}
	s.mu.Lock()
	s.clients[k] = true
	s.mu.Unlock()
	defer s.gone(k)
	for {
		text, err := readFrame(rw.Reader)
		if err != nil {
			return
		}
		var c fakeCommand
		if err := json.Unmarshal(text, &c); err != nil {
			return
		}
		s.mu.Lock()
		s.obey(k, c)
		s.mu.Unlock()
	}
}

// readFrame reads the text of a small masked frame, which is all that the page
// sends; a close frame is an end.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(head[1] & 0x7f)
	if n == 126 {
		var size [2]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return nil, err
		}
		n = int(binary.BigEndian.Uint16(size[:]))
	}
	masked := make([]byte, 4+n)
	if _, err := io.ReadFull(r, masked); err != nil {
		return nil, err
	}
	if head[0] != 0x81 {
		return nil, errors.New("no text")
	}
	text := masked[4:]
	for i := range text {
		text[i] ^= masked[i%4]
	}
	return text, nil
}

type fakeCommand struct {
	Subscribe, Unsubscribe, Publish, Presence, History, Token *string

	ID     json.Number
	Epoch  *string
	Offset *uint64
	Data   json.RawMessage
	Ping   bool
}

func (s *fakeServer) obey(k *fakeClient, c fakeCommand) {
	epoch := strconv.Itoa(s.epoch)
	switch {
	case c.Subscribe != nil && strings.HasPrefix(*c.Subscribe, "secret"):
		k.say(map[string]any{"error": "you may not", "code": "forbidden", "channel": c.Subscribe, "id": c.ID}, "")
	case c.Subscribe != nil:
		ch := s.channel(*c.Subscribe)
		k.channels[*c.Subscribe] = true
		answer := map[string]any{"subscribed": c.Subscribe, "id": c.ID, "epoch": epoch, "offset": ch.top}
		if c.Offset == nil {
			k.say(answer, "")
			return
		}
		answer["recovered"] = *c.Epoch == epoch
		k.say(answer, "")
		for _, m := range ch.messages {
			if *c.Epoch == epoch && m.Offset > *c.Offset {
				k.message(*c.Subscribe, m)
			}
		}
	case c.Unsubscribe != nil:
		delete(k.channels, *c.Unsubscribe)
		k.say(map[string]any{"unsubscribed": c.Unsubscribe, "id": c.ID}, "")
	case c.Publish != nil:
		k.say(map[string]any{"published": c.Publish, "id": c.ID, "offset": s.publish(*c.Publish, c.Data)}, "")
	case c.Presence != nil:
		members := slices.Repeat([]map[string]string{{"client": "c", "user": "u"}}, len(s.clients))
		k.say(map[string]any{"presence": c.Presence, "id": c.ID, "members": members}, "")
	case c.History != nil:
		ch := s.channel(*c.History)
		k.say(map[string]any{"history": c.History, "id": c.ID, "epoch": epoch, "offset": ch.top, "complete": true, "messages": ch.messages}, "")
	case c.Token != nil:
		k.say(map[string]any{"token": "ok", "id": c.ID, "expires": 4000000000}, "")
	case c.Ping:
		k.say(map[string]any{"pong": true, "id": c.ID}, "")
	}
}
