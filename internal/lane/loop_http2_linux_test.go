package lane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Client is an HTTP/2 client whose other end a loop owns.
type http2Client struct {
	*wired
	*http2.Framer
	next  uint32
	inner chan []byte // what net/http was given, at its end
}

// http2 connects, with a window for the connection that nothing exceeds.
func (b *bench) http2(t *testing.T, adopted bool) *http2Client {
	t.Helper()
	c := &http2Client{next: 1, inner: make(chan []byte, 1)}
	o := &HTTP2{HeaderList: 4 << 10, Serve: func(_ context.Context, nc net.Conn) {
		got, _ := io.ReadAll(nc)
		c.inner <- got
	}}
	served := make(chan struct{})
	c.wired = b.wiredAs(t, neverHeld, io.Discard, func(*wired) {}, func(tc *TLSConn) {
		go func() {
			defer close(served)
			tc.ServeHTTP2(o, func() {})
		}()
	})
	c.Framer = http2.NewFramer(c.wired, c.wired)
	if _, err := io.WriteString(c.wired, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(
		c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}),
		c.WriteWindowUpdate(0, 1<<30),
	)
	if err != nil {
		t.Fatal(err)
	}
	if adopted {
		<-served
	}
	return c
}

// ask asks for a path without waiting for the answer.
func (c *http2Client) ask(t *testing.T, path string) (id uint32) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", path}, {":authority", "a"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	id = c.next
	c.next += 2
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	return id
}

// body reads until a stream ends, and returns its body.
func (c *http2Client) body(t *testing.T, id uint32) string {
	t.Helper()
	var body strings.Builder
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("stream %d: %v", id, err)
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamID == id {
			body.Write(d.Data())
			if d.StreamEnded() {
				return body.String()
			}
		}
	}
}

// Hot streams are answered on the loop, however their bytes come.
func TestLoopHTTP2(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	c := b.http2(t, true)
	for i := range 6 {
		c.raw.byOne = i%2 == 1
		if got := c.body(t, c.ask(t, "/")); got != "hello\n" {
			t.Fatalf("%q", got)
		}
	}
	if !c.server.isOwned() {
		t.Error("the connection has left its loop")
	}
	_ = c.wired.Close()
	<-c.gone
}

// A stream that is for net/http does not take the connection from its loop: those before it and
// those behind it are answered there.
func TestLoopHTTP2Stays(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	for _, corked := range []bool{false, true} {
		c := b.http2(t, true)
		if got := c.body(t, c.ask(t, "/")); got != "hello\n" {
			t.Fatalf("%q", got)
		}
		if corked { // all in one record
			all := &bytes.Buffer{}
			c.Framer = http2.NewFramer(all, c.wired)
			c.ask(t, "/")
			c.ask(t, "/cold")
			c.ask(t, "/")
			if _, err := c.wired.Write(all.Bytes()); err != nil {
				t.Fatal(err)
			}
			c.Framer = http2.NewFramer(c.wired, c.wired)
		} else {
			c.ask(t, "/")
			c.ask(t, "/cold")
			c.ask(t, "/")
		}
		if got := c.body(t, 3) + c.body(t, 7); got != "hello\nhello\n" {
			t.Errorf("%q", got)
		}
		if got := c.body(t, c.ask(t, "/")); got != "hello\n" || !c.server.isOwned() {
			t.Errorf("%q, or it is not on the loop", got)
		}
		_ = c.wired.Close()
		<-c.gone
		if got := <-c.inner; bytes.Count(got, []byte(":path")) != 1 || bytes.Count(got, []byte("/cold")) != 1 {
			t.Errorf("net/http gets %q", got)
		}
	}
}

// A client that asks for much and reads late makes the server hold little, and
// gets all of it; a cold stream behind it waits.
func TestLoopHTTP2ThatReadsLate(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	large := strings.Repeat("x", 60<<10)
	b.lane.table.put(key{1, "/large", false}, demands{}, variant{response: newResponse(answerOf(large), Rule{}, b.meters.Job("test"))})
	for _, last := range []string{"/", "/cold"} {
		c, before := b.http2(t, true), b.meters.Job("test").Fast.Requests()
		const n = 150
		for range n {
			c.ask(t, "/large")
		}
		end := c.ask(t, last)
		other := b.http2(t, true)
		if got := other.body(t, other.ask(t, "/")); got != "hello\n" {
			t.Fatalf("%q", got)
		}
		if got := b.meters.Job("test").Fast.Requests() - before; got > n/2 {
			t.Errorf("%d answers were made for a client that has read none", got)
		}
		for i := range n {
			if got := c.body(t, uint32(1+2*i)); got != large {
				t.Fatalf("answer %d has %d bytes", i, len(got))
			}
		}
		if last == "/cold" {
			end = c.ask(t, "/")
		}
		if got := c.body(t, end); got != "hello\n" {
			t.Errorf("%q", got)
		}
		_ = c.wired.Close()
		<-c.gone
	}
}

func TestLoopHTTP2Ends(t *testing.T) {
	t.Run("by a drain, after GOAWAY", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		c := b.http2(t, true)
		if got := c.body(t, c.ask(t, "/")); got != "hello\n" {
			t.Fatalf("%q", got)
		}
		b.lane.Drain()
		for told := false; ; {
			f, err := c.ReadFrame()
			if err != nil {
				if !told {
					t.Errorf("no GOAWAY, %v", err)
				}
				break
			}
			told = told || f.Header().Type == http2.FrameGoAway
		}
		<-c.gone
	})
	t.Run("with a frame that is none", func(t *testing.T) {
		b := newBench(t, patient)
		defer b.lane.Close()
		c := b.http2(t, true)
		if err := c.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		for {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				if g.ErrCode != http2.ErrCodeProtocol {
					t.Errorf("%v", g.ErrCode)
				}
				break
			}
		}
		<-c.gone
		if n := b.meters.HTTP2Refused.Malformed.Load(); n != 1 {
			t.Errorf("%d connections are counted as malformed", n)
		}
	})
	t.Run("when it has been idle", func(t *testing.T) {
		b := newBench(t, Settings{Header: time.Hour, Body: time.Hour, Write: time.Hour, Idle: 20 * time.Millisecond})
		defer b.lane.Close()
		c := b.http2(t, false)
		<-c.gone
	})
	t.Run("with the lane", func(t *testing.T) {
		b := newBench(t, patient)
		c := b.http2(t, true)
		b.lane.Close()
		<-c.gone
	})
}
