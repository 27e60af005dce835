package h2

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/process/servertest"
)

// post encodes a POST.
func (r *rig) post(path string) []byte {
	r.Helper()
	r.b.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}} {
		r.must(r.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	return r.b.Bytes()
}

// trailers encodes trailers.
func (r *rig) trailers() []byte {
	r.Helper()
	r.b.Reset()
	r.must(r.enc.WriteField(hpack.HeaderField{Name: "x-end", Value: "yes"}))
	return r.b.Bytes()
}

// stream is the next request that the host answers beside Run.
func (r *rig) stream() *Stream {
	r.Helper()
	select {
	case s := <-r.host.beside:
		return s
	case <-time.After(patience):
		r.Fatal("the host gets no request")
		return nil
	}
}

// Streams that are answered from other goroutines do not hold up the others, and the
// connection is idle after the last of them.
func TestBeside(t *testing.T) {
	r := start(t, pages())
	r.ask(1, "/beside")
	one := r.stream()
	for i, path := range []string{"/hot", "/cold"} {
		id := uint32(3 + 2*i)
		r.ask(id, path)
		if got := r.answer(id); "/"+got != path {
			t.Error(path, got)
		}
	}
	servertest.Eventually(r, "the connection is not idle", func() bool { return r.host.waits() == WaitNothing })
	r.ask(7, "/beside")
	seven := r.stream()
	r.must(seven.Send(okBlock, []byte("se"), false))
	r.must(seven.Send(nil, []byte("ven"), true))
	if got := r.answer(7); got != "seven" {
		t.Error(got)
	}
	r.must(one.Send(okBlock, nil, false))
	r.must(one.Send(AppendField(nil, 0, "x-trailer", "yes"), nil, true))
	if got := r.answer(1); got != "" || r.got["x-trailer"] != "yes" {
		t.Error(got, r.got)
	}
	servertest.Eventually(r, "the connection is idle", func() bool { return r.host.waits() == WaitRequest })
	if err := one.Send(nil, []byte("more"), true); !errors.Is(err, errGone) {
		t.Error(err)
	}
	r.ask(9, "/beside")
	r.stream().Reset()
	if f, ok := r.next().(*http2.RSTStreamFrame); !ok || f.ErrCode != http2.ErrCodeInternal {
		t.Error(f)
	}
}

// An answer beside Run waits for both windows, and ends with its stream's reset.
func TestBesideWindow(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	body := []byte(strings.Repeat("b", 70000))
	sent := make(chan error, 1)
	r.ask(1, "/beside")
	s := r.stream()
	go func() { sent <- s.Send(okBlock, body, true) }()
	got := 0
	read := func(to int) {
		t.Helper()
		for got < to {
			if d, ok := r.next().(*http2.DataFrame); ok {
				got += len(d.Data())
			}
		}
		if got != to || len(sent) > 0 {
			t.Errorf("%d bytes have come, not %d", got, to)
		}
	}
	read(100)
	r.must(r.fr.WriteWindowUpdate(1, 900))
	read(1000)
	r.must(r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	read(defaultWindow)
	r.must(r.fr.WriteWindowUpdate(0, 10000))
	for got < len(body) {
		if d, ok := r.next().(*http2.DataFrame); ok {
			got += len(d.Data())
		}
	}
	r.must(<-sent)

	cancelled := make(chan struct{})
	r.ask(3, "/beside")
	s = r.stream()
	s.OnCancel(func() { close(cancelled) })
	go func() { sent <- s.Send(okBlock, body, true) }() // more than the window has
	r.next()
	r.must(r.fr.WriteRSTStream(3, http2.ErrCodeCancel))
	<-cancelled
	if err := <-sent; !errors.Is(err, errGone) {
		t.Error(err)
	}
	again := make(chan struct{})
	s.OnCancel(func() { close(again) })
	<-again
}

// A client that gives a stream no window loses it.
func TestBesideStalls(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	r.ask(1, "/beside")
	s, sent := r.stream(), make(chan error, 1)
	go func() { sent <- s.Send(okBlock, make([]byte, 200), true) }()
	for len(sent) == 0 {
		if r.conn.Expire(time.Now().Add(time.Hour)) {
			t.Fatal("the connection is at fault")
		}
		time.Sleep(time.Millisecond)
	}
	if err := <-sent; !errors.Is(err, errStalled) {
		t.Error(err)
	}
	for {
		if f, ok := r.next().(*http2.RSTStreamFrame); ok {
			if f.ErrCode != http2.ErrCodeCancel {
				t.Error(f.ErrCode)
			}
			break
		}
	}
}

// SETTINGS come before the first answer, however fast that is.
func TestBesideAfterSettings(t *testing.T) {
	r := connect(t, pages())
	fast := make(chan struct{})
	r.host.mu.Lock()
	r.host.fast = fast
	r.host.mu.Unlock()
	var said bytes.Buffer
	said.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&said, nil)
	r.must(fr.WriteSettings())
	r.must(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.fields("/beside"), EndStream: true, EndHeaders: true}))
	r.raw(said.Bytes())
	r.must(r.stream().Send(okBlock, []byte("fast"), true))
	close(fast)
	if f, err := r.fr.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Error(f, err)
	}
	if got := r.answer(1); got != "fast" {
		t.Error(got)
	}
}

// A client that gives a stream no window before it has seen the head has time for that.
func TestBesideBeginsWithoutWindow(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	r.ask(1, "/beside")
	s, sent := r.stream(), make(chan error, 1)
	go func() { sent <- s.Send(okBlock, []byte("body"), true) }()
	if _, ok := r.next().(*http2.HeadersFrame); !ok {
		t.Error("no head")
	}
	servertest.Eventually(r, "the stream waits", func() bool { return r.conn.Streams(time.Now(), true).Waiting == 1 })
	if r.conn.Expire(time.Now().Add(-patience)) {
		t.Error("the connection is at fault")
	}
	if n := r.conn.Streams(time.Now(), false).Waiting; n != 0 {
		t.Error("it waits for long already")
	}
	r.must(r.fr.WriteWindowUpdate(1, 10))
	if got := r.answer(1); got != "body" {
		t.Error(got)
	}
	r.must(<-sent)
}

// A reset ends the wait for the connection's window, too, and others go on when it grows.
func TestBesideConnectionWindow(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	sent := map[uint32]chan error{}
	for id := uint32(1); id <= 5; id += 2 {
		r.ask(id, "/beside")
		s, done := r.stream(), make(chan error, 1)
		sent[id] = done
		size := 100
		if id == 1 {
			size = defaultWindow
		}
		go func() { done <- s.Send(okBlock, make([]byte, size), true) }()
		if id == 1 {
			r.must(<-done)
		}
	}
	r.must(r.fr.WriteRSTStream(3, http2.ErrCodeCancel))
	select {
	case err := <-sent[3]:
		if !errors.Is(err, errGone) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it still waits")
	}
	r.must(r.fr.WriteWindowUpdate(0, 100))
	r.must(<-sent[5])
}

// Answers that wait for their windows have no buffers.
func TestBesideWaitsWithoutMemory(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	const n = 90
	body := make([]byte, 100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for id := uint32(1); id < 2*n; id += 2 {
		r.ask(id, "/beside")
		s := r.stream()
		go func() { _ = s.Send(okBlock, body, true) }()
		r.next()
	}
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc) / n; used > 48<<10 { // with the race detector most of it is the pool's
		t.Errorf("%d bytes each", used)
	}
}

// Net/http's side ends with its last stream and starts again with the next, under the client's
// eyes: its decoder's table, its windows for uploads, and what it still sends on the stream.
func TestInnerEndsAndStarts(t *testing.T) {
	r := start(t, pages())
	granted := defaultWindow
	body := bytes.Repeat([]byte("u"), 10000)
	id := uint32(1)
	for i := range 60 {
		servertest.Eventually(r, "net/http has ended", func() bool { return r.conn.inner.Load() == nil })
		r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.post("/echo"), EndHeaders: true}))
		r.must(r.fr.WriteData(id, true, body))
		granted -= len(body)
		got := 0
		for end := false; !end; {
			f, err := r.fr.ReadFrame()
			r.must(err)
			switch f := f.(type) {
			case *http2.HeadersFrame:
				clear(r.got)
				_, err := r.dec.Write(f.HeaderBlockFragment())
				r.must(errors.Join(err, r.dec.Close()))
			case *http2.DataFrame:
				got += len(f.Data())
				end = f.StreamEnded()
				if len(f.Data()) > 0 {
					r.must(r.fr.WriteWindowUpdate(0, uint32(len(f.Data()))))
				}
			case *http2.WindowUpdateFrame:
				if f.StreamID == 0 {
					granted += int(f.Increment)
				}
			case *http2.RSTStreamFrame, *http2.GoAwayFrame:
				t.Fatal(f)
			}
		}
		if got != len(body) || r.got[":status"] != "200" {
			t.Fatalf("request %d: %d bytes, %v", i, got, r.got)
		}
		if granted < 0 || granted > 2<<20 {
			t.Fatalf("request %d: the client has a window of %d", i, granted)
		}
		id += 2
		r.ask(id, "/table/"+fmt.Sprint(i%7))
		if r.answer(id); r.got["x-table"] != fmt.Sprint("kept in a table ", i%7) {
			t.Fatalf("request %d: %v", i, r.got)
		}
		id += 2
	}
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if r.host.starts < 60 {
		t.Errorf("net/http has started %d times", r.host.starts)
	}
}

// Neither net/http's side nor the connection ends between a stream's end and the write that
// has it.
func TestInnerEndsWritten(t *testing.T) {
	r := start(t, pages())
	r.host.mu.Lock()
	r.host.still = true
	r.host.mu.Unlock()
	r.ask(1, "/")
	r.ask(3, "/")
	servertest.Eventually(r, "net/http has both", func() bool { return r.conn.flows.count() == 2 })
	nc := &innerConn{r.conn.inner.Load()}
	write := func(b []byte) {
		t.Helper()
		_, err := nc.Write(b)
		r.must(err)
	}
	write(appendHead(nil, head{kind: frameSettings, flags: flagAck}))
	half := make([]byte, 50)
	write(append(appendHead(AppendHeaders(nil, 1, okBlock, true), head{kind: frameData, id: 3, length: 100}), half...))
	r.must(r.fr.WriteRSTStream(3, http2.ErrCodeCancel))
	r.must(r.fr.WriteGoAway(0, http2.ErrCodeNo, nil))
	r.must(r.fr.WritePing(false, [8]byte{1}))
	if _, ok := r.next().(*http2.PingFrame); !ok {
		t.Error("no pong")
	}
	write(half)
	if got := r.answer(1); got != "" {
		t.Error(got)
	}
}

// What a client sends on a stream that net/http has answered early does not hurt when net/http
// is not there any more.
func TestLateBody(t *testing.T) {
	r := start(t, pages())
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.post("/cold"), EndHeaders: true}))
	for {
		if f, ok := r.next().(*http2.RSTStreamFrame); ok {
			if f.ErrCode != http2.ErrCodeNo {
				t.Error(f.ErrCode)
			}
			break
		}
	}
	servertest.Eventually(r, "net/http has ended", func() bool { return r.conn.inner.Load() == nil })
	for range 3 {
		r.must(r.fr.WriteData(1, false, make([]byte, 1000)))
	}
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.trailers(), EndHeaders: true, EndStream: true}))
	r.ask(3, "/cold")
	if got := r.answer(3); got != "cold" {
		t.Error(got)
	}
}

// Net/http stays for an upload, and answers other streams meanwhile.
func TestInnerStaysForUploads(t *testing.T) {
	r := start(t, pages())
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.post("/echo"), EndHeaders: true}))
	for id := uint32(3); id < 30; id += 2 {
		r.ask(id, "/cold")
		if got := r.answer(id); got != "cold" {
			t.Error(got)
		}
	}
	r.must(r.fr.WriteData(1, true, []byte("up")))
	if got := r.answer(1); got != "up" {
		t.Error(got)
	}
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if r.host.starts != 1 {
		t.Errorf("net/http has started %d times", r.host.starts)
	}
}

// Await says how much of a body will be sent at once, when there is something.
func TestBesideAwait(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	r.ask(1, "/beside")
	s, room := r.stream(), make(chan int)
	r.must(s.Send(okBlock, nil, false))
	r.next()
	go func() { room <- s.Await() }()
	select {
	case n := <-room:
		t.Error("room for", n)
	case <-time.After(10 * time.Millisecond):
	}
	r.must(r.fr.WriteWindowUpdate(1, 5))
	if n := <-room; n != 5 {
		t.Error("room for", n)
	}
	r.must(s.Send(nil, []byte("whole"), false))
	go func() { room <- s.Await() }()
	r.must(r.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	<-room
	if err := s.Send(nil, []byte("more"), true); !errors.Is(err, errGone) {
		t.Error(err)
	}
}
