package websocket_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// extended reports whether net/http accepts extended CONNECT: it looks for
// that once, when the process starts.
func extended() bool { return strings.Contains(os.Getenv("GODEBUG"), "http2xconnect=1") }

// h2 is a connection of a client that speaks just enough HTTP/2.
type h2 struct {
	t    testing.TB
	nc   net.Conn
	fr   *http2.Framer
	done chan struct{} // the reader has ended

	write sync.Mutex // held while something is written, with
	enc   *hpack.Encoder
	head  bytes.Buffer

	mu       sync.Mutex // everything below
	changed  sync.Cond
	settled  bool
	extended bool  // SETTINGS_ENABLE_CONNECT_PROTOCOL
	window   int64 // for all streams
	initial  int64 // for each
	last     uint32
	streams  map[uint32]*h2stream
	err      error
}

// h2stream is one stream as a connection.
type h2stream struct {
	*h2
	id     uint32
	header map[string][]string // of the answer, with :status
	in     bytes.Buffer
	ended  bool // END_STREAM has come
	reset  bool
	code   http2.ErrCode // of the reset
	room   int64         // how much may be sent
	stingy bool          // gives no window
	got    int64         // bytes of DATA
	due    time.Time     // deadline
}

// dialH2 connects and waits for the server's settings.
func (f front) dialH2(t testing.TB) *h2 {
	t.Helper()
	config := f.tls.Clone()
	config.NextProtos = []string{"h2"}
	nc, err := tls.Dial("tcp", f.addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if p := nc.ConnectionState().NegotiatedProtocol; p != "h2" {
		t.Fatalf("the server speaks %q", p)
	}
	h := &h2{t: t, nc: nc, fr: http2.NewFramer(nc, nc), done: make(chan struct{}), window: 65535, initial: 65535, streams: map[uint32]*h2stream{}, last: 1}
	h.changed.L = &h.mu
	h.enc = hpack.NewEncoder(&h.head)
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := h.fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := h.fr.WriteWindowUpdate(0, 1<<30); err != nil { // only streams hold anybody up
		t.Fatal(err)
	}
	go h.read()
	h.await("the server's settings", func() bool { return h.settled })
	return h
}

// await waits until what it is told is true.
func (h *h2) await(what string, f func() bool) {
	h.t.Helper()
	stop := time.AfterFunc(patience, func() { h.fail(errors.New("nothing happens")) })
	defer stop.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for !f() {
		if h.err != nil {
			h.t.Fatalf("waiting for %s: %v", what, h.err)
		}
		h.changed.Wait()
	}
}

func (h *h2) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
	h.changed.Broadcast()
}

// read takes frames until the connection ends.
func (h *h2) read() {
	defer close(h.done)
	for {
		f, err := h.fr.ReadFrame()
		if err != nil {
			h.fail(err)
			return
		}
		h.take(f)
		h.mu.Lock()
		h.changed.Broadcast()
		h.mu.Unlock()
	}
}

func (h *h2) take(f http2.Frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.streams[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		h.settled = true
		if v, ok := f.Value(http2.SettingEnableConnectProtocol); ok {
			h.extended = v == 1
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			h.initial = int64(v)
		}
		go h.writing(func() error { return h.fr.WriteSettingsAck() })
	case *http2.PingFrame:
		if data := f.Data; !f.IsAck() {
			go h.writing(func() error { return h.fr.WritePing(true, data) })
		}
	case *http2.WindowUpdateFrame:
		if s == nil {
			h.window += int64(f.Increment)
		} else {
			s.room += int64(f.Increment)
		}
	case *http2.MetaHeadersFrame:
		if s != nil {
			for _, field := range f.Fields {
				s.header[field.Name] = append(s.header[field.Name], field.Value)
			}
			s.ended = s.ended || f.StreamEnded()
		}
	case *http2.DataFrame:
		if s != nil {
			s.in.Write(f.Data())
			s.got += int64(len(f.Data()))
			s.ended = s.ended || f.StreamEnded()
			if n := f.Length; n > 0 && !s.stingy && !s.ended {
				go h.writing(func() error { return h.fr.WriteWindowUpdate(s.id, n) })
			}
		}
	case *http2.RSTStreamFrame:
		if s != nil {
			s.reset, s.code = true, f.ErrCode
		}
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			h.err = fmt.Errorf("the server gives up: %v %q", f.ErrCode, f.DebugData())
		}
	}
}

// writing has nobody else write meanwhile.
func (h *h2) writing(f func() error) {
	h.write.Lock()
	defer h.write.Unlock()
	if err := f(); err != nil {
		h.fail(err)
	}
}

// open begins a stream with an extended CONNECT (RFC 8441, 4), or with the
// fields given instead of its pseudo header fields, and waits for the answer.
func (h *h2) open(stingy bool, fields ...string) *h2stream {
	h.t.Helper()
	var pseudo, more []hpack.HeaderField
	for _, f := range fields {
		at := strings.Index(f[1:], ":") + 1
		field := hpack.HeaderField{Name: strings.ToLower(f[:at]), Value: strings.TrimSpace(f[at+1:])}
		if field.IsPseudo() {
			pseudo = append(pseudo, field)
		} else {
			more = append(more, field)
		}
	}
	if pseudo == nil {
		pseudo = []hpack.HeaderField{
			{Name: ":method", Value: "CONNECT"},
			{Name: ":protocol", Value: "websocket"},
			{Name: ":scheme", Value: "https"},
			{Name: ":path", Value: "/echo"},
			{Name: ":authority", Value: "echo.example"},
		}
		more = append(more, hpack.HeaderField{Name: "sec-websocket-version", Value: "13"})
	}
	h.mu.Lock()
	s := &h2stream{h2: h, id: h.last, header: map[string][]string{}, room: h.initial, stingy: stingy}
	h.last += 2
	h.streams[s.id] = s
	h.mu.Unlock()
	h.writing(func() error {
		h.head.Reset()
		for _, f := range append(pseudo, more...) {
			if err := h.enc.WriteField(f); err != nil {
				return err
			}
		}
		return h.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: h.head.Bytes(), EndHeaders: true})
	})
	h.await("an answer", func() bool { return s.header[":status"] != nil || s.reset })
	return s
}

func (s *h2stream) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reset && s.header[":status"] == nil {
		return "reset: " + s.code.String()
	}
	return strings.Join(s.header[":status"], " ")
}

func (s *h2stream) values(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header[name]
}

// client is the stream as the conformance tests have it.
func (s *h2stream) client() *client {
	c := &client{T: s.t, Conn: s, r: bufio.NewReader(s), answer: http.Header{}}
	for name, values := range s.header {
		c.answer[http.CanonicalHeaderKey(name)] = values
	}
	c.inflates = strings.HasPrefix(c.answer.Get("Sec-Websocket-Extensions"), "permessage-deflate")
	return c
}

// Read implements [net.Conn].
func (s *h2stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.in.Len() > 0:
			return s.in.Read(b)
		case s.ended:
			return 0, io.EOF
		case s.reset:
			return 0, fmt.Errorf("the stream is reset: %v", s.code)
		case s.err != nil:
			return 0, s.err
		case s.late():
			return 0, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
}

// late reports whether the deadline is over; s.mu is held.
func (s *h2stream) late() bool { return !s.due.IsZero() && !time.Now().Before(s.due) }

// Write implements [net.Conn]. What is sent to a stream that has ended is lost,
// and no fault of anyone (RFC 9113, 8.1).
func (s *h2stream) Write(b []byte) (int, error) {
	const most = 16 << 10 // of a frame
	sent := 0
	for len(b) > 0 {
		s.mu.Lock()
		for s.room <= 0 || s.window <= 0 {
			if s.ended || s.reset || s.err != nil || s.late() {
				break
			}
			s.changed.Wait()
		}
		n := min(int64(len(b)), s.room, s.window, most)
		var err error
		switch {
		case s.ended:
			s.mu.Unlock()
			return sent + len(b), nil
		case s.reset:
			err = fmt.Errorf("the stream is reset: %v", s.code)
		case s.err != nil:
			err = s.err
		case n <= 0:
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			s.mu.Unlock()
			return sent, err
		}
		s.room -= n
		s.window -= n
		s.mu.Unlock()
		s.writing(func() error { return s.fr.WriteData(s.id, false, b[:n]) })
		b = b[n:]
		sent += int(n)
	}
	return sent, nil
}

// CloseWrite ends our direction.
func (s *h2stream) CloseWrite() {
	s.writing(func() error { return s.fr.WriteData(s.id, true, nil) })
}

// Reset gives the stream up.
func (s *h2stream) Reset(code http2.ErrCode) {
	s.writing(func() error { return s.fr.WriteRSTStream(s.id, code) })
}

// Close implements [net.Conn].
func (s *h2stream) Close() error {
	s.mu.Lock()
	over := s.ended || s.reset
	s.mu.Unlock()
	if !over {
		s.Reset(http2.ErrCodeCancel)
	}
	return nil
}

// give lets the server send more on this stream.
func (s *h2stream) give(n uint32) {
	s.writing(func() error { return s.fr.WriteWindowUpdate(s.id, n) })
}

// takeNothing gives the server no room for more.
func (s *h2stream) takeNothing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stingy = true
}

func (s *h2stream) LocalAddr() net.Addr  { return s.nc.LocalAddr() }
func (s *h2stream) RemoteAddr() net.Addr { return s.nc.RemoteAddr() }

func (s *h2stream) SetDeadline(t time.Time) error {
	s.mu.Lock()
	s.due = t
	s.mu.Unlock()
	time.AfterFunc(time.Until(t), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	return nil
}

func (s *h2stream) SetReadDeadline(t time.Time) error  { return s.SetDeadline(t) }
func (s *h2stream) SetWriteDeadline(t time.Time) error { return s.SetDeadline(t) }
