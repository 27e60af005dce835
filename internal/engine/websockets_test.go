package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/engine"
	"millrace/websocket/frame"
)

// socket is a client of a WebSocket.
type socket struct {
	nc  net.Conn
	buf []byte
}

// open connects to a path of a server.
func open(t *testing.T, srv *engine.Server, path string) *socket {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
	s, status := shake(t, nc, path)
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("the handshake with %s ended with %d", path, status)
	}
	return s
}

// shake asks for a WebSocket.
func shake(t *testing.T, nc net.Conn, path string) (s *socket, status int) {
	t.Helper()
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path)
	r := bufio.NewReader(nc)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("the handshake with %s ended with %v", path, err)
	}
	early, _ := r.Peek(r.Buffered())
	return &socket{nc, append([]byte(nil), early...)}, res.StatusCode
}

func (s *socket) send(text string) error {
	h := frame.Header{Fin: true, Op: frame.Text, Masked: true, Length: int64(len(text))} // a mask of zeros
	_, err := s.nc.Write(append(h.Append(nil), text...))
	return err
}

// next reads the next message; a close frame is an error of type *frame.Error.
func (s *socket) next() (string, error) {
	for {
		h, n, err := frame.Parse(s.buf)
		if err != nil {
			return "", err
		}
		if n > 0 && int64(len(s.buf)-n) >= h.Length {
			payload := string(s.buf[n : n+int(h.Length)])
			s.buf = s.buf[n+int(h.Length):]
			switch h.Op {
			case frame.Close:
				code, reason, err := frame.ParseClose([]byte(payload))
				if err != nil {
					return "", err
				}
				return "", &frame.Error{Code: code, Reason: reason}
			case frame.Text:
				return payload, nil
			}
			continue
		}
		var b [4096]byte
		k, err := s.nc.Read(b[:])
		s.buf = append(s.buf, b[:k]...)
		if k == 0 && err != nil {
			return "", err
		}
	}
}

func (s *socket) want(t *testing.T, text string) {
	t.Helper()
	if got, err := s.next(); err != nil || got != text {
		t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

// heard is a message of the channels.
type heard struct {
	Message, Subscribed, Epoch string
	Offset                     uint64
	Recovered                  *bool
	Data                       any
	Reconnect                  *float64
}

func (s *socket) hear(t *testing.T) (h heard) {
	t.Helper()
	text, err := s.next()
	if err == nil {
		err = json.Unmarshal([]byte(text), &h)
	}
	if err != nil {
		t.Fatalf("listening: %q, %v", text, err)
	}
	return h
}

const socketSite = `
listen: 127.0.0.1:0
sites:
  - routes:
      /echo: {websocket: echo}
      /live/: {websocket: {channels: {%s}}}
      /%s: {redirect: {to: /there}}
`

// TestSocketsSurviveReloads: WebSockets under traffic do not notice that the
// config is read again and again.
func TestSocketsSurviveReloads(t *testing.T) {
	const clients, reloads = 100, 100
	srv := start(t, parse(t, fmt.Sprintf(socketSite, "", "start")))
	var traffic sync.WaitGroup
	var stop atomic.Bool
	var echoes, deliveries atomic.Int64
	for i := range clients {
		echo, live := open(t, srv, "/echo"), open(t, srv, "/live/ws")
		if err := live.send(`{"subscribe":"news"}`); err != nil {
			t.Fatal(err)
		}
		first := live.hear(t)
		traffic.Go(func() {
			for n := 0; !stop.Load(); n++ {
				text := fmt.Sprint(i, " ", n)
				if err := echo.send(text); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				if got, err := echo.next(); err != nil || got != text {
					t.Errorf("client %d: got %q, %v; want %q", i, got, err, text)
					return
				}
				echoes.Add(1)
			}
		})
		traffic.Go(func() {
			last := first.Offset
			for {
				h := live.hear(t)
				if h.Message != "news" || h.Offset != last+1 {
					t.Errorf("client %d: %+v came behind %d", i, h, last)
					return
				}
				last = h.Offset
				if deliveries.Add(1); h.Data == "last" {
					return
				}
			}
		})
	}
	publish := func(what string) {
		res, err := http.Post(srv.Addrs()[0]+"/live/publish?channel=news", "text/plain", strings.NewReader(what))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("publishing: %v, %v", res, err)
			return
		}
		res.Body.Close()
	}
	for i := range reloads {
		reload(t, srv, parse(t, fmt.Sprintf(socketSite, "", fmt.Sprint("other", i))))
		publish(fmt.Sprint(i))
	}
	stop.Store(true)
	publish("last")
	traffic.Wait()
	if n, want := deliveries.Load(), int64(clients*(reloads+1)); n != want {
		t.Errorf("%d messages were delivered, want %d", n, want)
	}
	if n := echoes.Load(); n < clients {
		t.Errorf("only %d echoes", n)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestSocketsComeBack: a route whose options change sends its clients away, and
// they find what was published meanwhile.
func TestSocketsComeBack(t *testing.T) {
	srv := start(t, parse(t, fmt.Sprintf(socketSite, "", "x")))
	s := open(t, srv, "/live/ws")
	if err := s.send(`{"subscribe":"news"}`); err != nil {
		t.Fatal(err)
	}
	first := s.hear(t)
	// A stream that lasts for ever must not keep the old options.
	events, err := http.Get(srv.Addrs()[0] + "/live/sse?channel=news")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	reload(t, srv, parse(t, fmt.Sprintf(socketSite, "per_client: 7", "x")))
	if h := s.hear(t); h.Reconnect == nil {
		t.Errorf("got %+v, want a hint when to come back", h)
	}
	if _, err := s.next(); err == nil || !strings.Contains(err.Error(), "1012") {
		t.Errorf("got %v, want close code 1012", err)
	}
	s.nc.Close()
	if _, err := io.Copy(io.Discard, events.Body); err != nil {
		t.Errorf("the event stream ended with %v", err)
	}
	res, err := http.Post(srv.Addrs()[0]+"/live/publish?channel=news", "application/json", strings.NewReader(`{"missed":true}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	s = open(t, srv, "/live/ws")
	if err := s.send(fmt.Sprintf(`{"subscribe":"news","epoch":%q,"offset":%d}`, first.Epoch, first.Offset)); err != nil {
		t.Fatal(err)
	}
	if h := s.hear(t); h.Recovered == nil || !*h.Recovered {
		t.Errorf("got %+v, want what was missed", h)
	}
	if h := s.hear(t); h.Message != "news" || h.Offset != first.Offset+1 {
		t.Errorf("got %+v, want the message that was missed", h)
	}
}

// TestSocketsDrain: clients of a server that ends are told, and do not hold it up.
func TestSocketsDrain(t *testing.T) {
	t.Parallel() // it mostly waits
	srv, err := engine.New(parse(t, fmt.Sprintf(socketSite, "", "x")), engine.Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	echo, live := open(t, srv, "/echo"), open(t, srv, "/live/ws")
	if err := echo.send("hello"); err != nil {
		t.Fatal(err)
	}
	echo.want(t, "hello")
	stop()
	if h := live.hear(t); h.Reconnect == nil {
		t.Errorf("got %+v, want a hint when to come back", h)
	}
	for _, s := range []*socket{echo, live} {
		if _, err := s.next(); err == nil || !strings.Contains(err.Error(), "1001") || !strings.Contains(err.Error(), "reconnect in ") {
			t.Errorf("got %v, want close code 1001 with a hint", err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
