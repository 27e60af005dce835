package h2

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/process/servertest"
)

// Why a client was cut off is known afterwards, whoever found out.
func TestBlamed(t *testing.T) {
	for name, c := range map[string]struct {
		send func(r *rig)
		want Reason
	}{
		"nothing":   {func(r *rig) { r.ask(1, "/hot") }, None},
		"malformed": {func(r *rig) { _ = r.fr.WriteRawFrame(http2.FramePing, 0, 0, []byte("short")) }, Malformed},
		"malformed, as net/http finds": {func(r *rig) {
			r.ask(1, "/hang")
			_ = r.fr.WriteRawFrame(http2.FrameData, 8, 1, []byte{9, 0}) // more padding than there is
		}, Malformed},
		"headers": {func(r *rig) {
			_ = r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.fields("/hot")})
			for range maxParts + 1 {
				_ = r.fr.WriteContinuation(1, false, nil)
			}
		}, Headers},
		"idle frames": {func(r *rig) {
			for range 3 * maxControl / (frameHead + 5) {
				_ = r.fr.WritePriority(1, http2.PriorityParam{StreamDep: 3})
			}
		}, ControlFrames},
		"resets": {func(r *rig) {
			r.ask(1, "/hot")
			for range 3 * resetBurst {
				_ = r.fr.WriteRSTStream(1, http2.ErrCodeCancel)
			}
		}, Resets},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, pages())
			c.send(r)
			for err := error(nil); c.want != None && err == nil; { // a reset may overtake GOAWAY
				_, err = r.fr.ReadFrame()
			}
			_ = r.nc.Close()
			_ = r.ended()
			if got := r.conn.Reason(); got != c.want {
				t.Errorf("blamed for %d, want %d", got, c.want)
			}
		})
	}
}

// lateWindow refuses increments that no window could take, so many of them.
func TestLateWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(&deaf{}, Options{})
		tn := &task{}
		for _, n := range []int64{0, 1, maxWindow - defaultWindow} {
			if err := c.windowAfterEnd(tn, 1, n); err != nil || len(tn.out) > 0 {
				t.Errorf("an increment of %d: %v, % x", n, err, tn.out)
			}
		}
		if err := c.windowAfterEnd(tn, 1, maxWindow-defaultWindow+1); err != nil || !bytes.Equal(tn.out, appendReset(nil, 1, codeFlowControl)) {
			t.Errorf("an increment too large: %v, % x", err, tn.out)
		}
		c.run.settings.window = 0 // then nothing is too large
		if tn.out = nil; c.windowAfterEnd(tn, 1, maxWindow) != nil || len(tn.out) > 0 {
			t.Errorf("% x", tn.out)
		}
		c.run.settings.window = 1
		for range resetBurst - 1 {
			if err := c.windowAfterEnd(tn, 1, maxWindow); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // of the test's clock
		for range resetRate {
			if err := c.windowAfterEnd(tn, 1, maxWindow); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.windowAfterEnd(tn, 1, maxWindow); err == nil || c.Reason() != Resets {
			t.Errorf("%v, blamed for %d", err, c.Reason())
		}
	})
}

// The host believes that the client knows of a smaller table only when net/http's
// block that says so is on its way: an answer of the host's could overtake it.
func TestTableIsNamedWhenSent(t *testing.T) {
	c := New(&deaf{}, Options{})
	in := &inner{c: c, pipe: newPipe(nil)}
	block := []byte{0x3f, 100 - 31, 0x88}
	in.partial = append(appendHead(nil, head{length: len(block), kind: frameHeaders, flags: flagEndHeaders, id: 1}), block...)
	if err := in.frameDone(parseHead(in.partial)); err != nil {
		t.Fatal(err)
	}
	if got := c.table.Load(); got != firstTable {
		t.Errorf("a table of %d before anything was written", got)
	}
	if err := in.flush(); err != nil || c.table.Load() != 100 {
		t.Errorf("a table of %d, %v", c.table.Load(), err)
	}
}

// Late frames on a stream that net/http has refused, since there are too many,
// are not a mistake of the client's: the connection goes on.
func TestLateFramesOnRefusedStreams(t *testing.T) {
	r := start(t, pages())
	var refused uint32
	for id := uint32(1); refused == 0; id += 2 {
		r.ask(id, "/hang")
		r.must(r.fr.WritePing(false, [8]byte{}))
		for answered := false; !answered; {
			switch f := r.next().(type) {
			case *http2.RSTStreamFrame:
				refused = f.StreamID
			case *http2.PingFrame:
				answered = true
			}
		}
		if id > 2001 {
			t.Fatal("net/http refuses no stream")
		}
	}
	r.must(r.fr.WriteWindowUpdate(refused, 1000))
	r.must(r.fr.WritePriority(refused, http2.PriorityParam{Weight: 3}))
	r.must(r.fr.WriteRSTStream(refused, http2.ErrCodeCancel))
	r.must(r.fr.WriteRSTStream(1, http2.ErrCodeCancel)) // there is room for one again
	next := r.conn.lastOpened.Load() + 2
	r.ask(next, "/hot")
	for r.next().Header().StreamID != next {
	}
	servertest.Eventually(r, "there is room", func() bool {
		next += 2
		r.ask(next, "/cold")
		for {
			f := r.next()
			if g, ok := f.(*http2.GoAwayFrame); ok {
				t.Fatal(g)
			}
			if f.Header().StreamID == next && f.Header().Type != http2.FrameHeaders {
				return f.Header().Type == http2.FrameData
			}
		}
	})
}

// Nor are those on a stream of the host's, when net/http has refused the only
// one that it was passed, and so does not know that there were others.
func TestLateFramesBesideARefusedStream(t *testing.T) {
	r := start(t, pages())
	r.ask(1, "/hot")
	r.answer(1)
	r.ask(3, "/cold", "Upper", "case")
	if f, ok := r.next().(*http2.RSTStreamFrame); !ok || f.StreamID != 3 {
		t.Fatalf("%v", f)
	}
	for _, id := range []uint32{1, 3} {
		r.must(r.fr.WriteWindowUpdate(id, 1000))
		r.must(r.fr.WritePriority(id, http2.PriorityParam{Weight: 3}))
		r.must(r.fr.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	r.ask(5, "/cold")
	if got := r.answer(5); got != "cold" {
		t.Error(got)
	}
}

// Nor are what was on its way on a stream that was refused here: its body, and
// trailers behind that, after net/http has been passed a later stream.
func TestLateTrailersOfARefusedStream(t *testing.T) {
	r := start(t, pages())
	block := r.fields("/%")
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true}))
	r.answer(1)
	if f, ok := r.next().(*http2.RSTStreamFrame); !ok || f.ErrCode != http2.ErrCodeNo {
		t.Fatalf("%v", f)
	}
	r.ask(3, "/cold")
	r.answer(3)
	r.must(r.fr.WriteData(1, false, make([]byte, 10)))
	r.b.Reset()
	r.must(r.enc.WriteField(hpack.HeaderField{Name: "sum", Value: "1"}))
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.b.Bytes(), EndHeaders: true, EndStream: true}))
	r.ask(5, "/cold")
	if got := r.answer(5); got != "cold" {
		t.Error(got)
	}
}
