package h2

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"millrace/internal/process/servertest"
)

// taken waits until the host has taken so many requests.
func (r *rig) taken(n int) {
	r.Helper()
	servertest.Eventually(r, "the host has taken the requests", func() bool {
		taken, _ := r.host.has()
		return taken == n
	})
}

// reply answers a request that the host has taken.
func (r *rig) reply(id uint32, block []byte, body string) {
	r.Helper()
	r.act(func() {
		if err := errors.Join(r.conn.Reply(id, block, []byte(body)), r.conn.Flush()); err != nil {
			r.Error(err)
		}
	})
}

var okBlock = AppendField([]byte{0x88}, 0, "x-carried", "yes")

// TestCarry: what the host has taken it answers later, in any order, while hot
// answers and those of net/http go on, and net/http hears nothing of it.
func TestCarry(t *testing.T) {
	r := start(t, pages())
	r.ask(1, "/carry/1")
	r.ask(3, "/carry/3")
	r.ask(5, "/hot")
	if got := r.answer(5); got != "hot" {
		t.Error(got)
	}
	r.taken(2)
	servertest.Eventually(r, "the connection is not idle", func() bool { return r.host.waits() == WaitNothing })
	r.reply(3, okBlock, "three")
	if got := r.answer(3); got != "three" || r.got["x-carried"] != "yes" {
		t.Error(got, r.got)
	}
	r.reply(1, okBlock, "")
	if got := r.answer(1); got != "" {
		t.Error(got)
	}
	servertest.Eventually(r, "the connection is idle", func() bool { return r.host.waits() == WaitRequest })
	r.reply(1, okBlock, "again") // nobody waits for that
	r.ask(7, "/cold")
	if got := r.answer(7); got != "cold" {
		t.Error(got)
	}
	r.ask(9, "/carry/9")
	r.taken(3)
	r.ask(11, "/cold")
	if got := r.answer(11); got != "cold" {
		t.Error(got)
	}
	r.reply(9, okBlock, "nine")
	if got := r.answer(9); got != "nine" {
		t.Error(got)
	}
}

// TestCarryWindow: an answer waits for both windows, and for its stream's reset.
func TestCarryWindow(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	r.ask(1, "/carry")
	r.ask(3, "/carry")
	r.ask(5, "/carry")
	r.taken(3)
	r.must(r.fr.WriteWindowUpdate(3, 900)) // before its answer
	r.must(r.fr.WriteRSTStream(5, http2.ErrCodeCancel))
	r.taken(2)
	r.reply(5, okBlock, "nobody wants it")
	r.reply(1, okBlock, strings.Repeat("a", 1000))
	r.reply(3, okBlock, strings.Repeat("b", 1000))
	servertest.Eventually(r, "900 bytes are held", func() bool { _, held := r.host.has(); return held == 900 })
	got := 0
	for got < 1100 {
		if d, ok := r.next().(*http2.DataFrame); ok {
			got += len(d.Data())
		}
	}
	r.must(r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 500}))
	for got < 1500 {
		if d, ok := r.next().(*http2.DataFrame); ok {
			got += len(d.Data())
		}
	}
	r.must(r.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	servertest.Eventually(r, "nothing is held", func() bool { _, held := r.host.has(); return held == 0 })
}

// TestCarryConnectionWindow: answers wait for the connection's window, and what
// waits when the connection ends is forgotten.
func TestCarryConnectionWindow(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	r.ask(1, "/carry")
	r.ask(3, "/carry")
	r.taken(2)
	r.reply(1, okBlock, strings.Repeat("a", 60000))
	r.reply(3, okBlock, strings.Repeat("b", 60000))
	if got := r.answer(1); len(got) != 60000 {
		t.Error(len(got))
	}
	if _, held := r.host.has(); held != 120000-defaultWindow {
		t.Errorf("%d bytes are held", held)
	}
	r.must(r.fr.WriteWindowUpdate(0, 1000))
	servertest.Eventually(r, "some more has gone", func() bool { _, held := r.host.has(); return held == 120000-defaultWindow-1000 })
	_ = r.nc.Close()
	_ = r.ended()
	if _, held := r.host.has(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestCarryFaults: what a client does wrong with such a stream ends the stream, or
// the connection.
func TestCarryFaults(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(*rig) error
		why   http2.ErrCode
		whole bool // the connection
	}{
		"no increment":     {func(r *rig) error { return r.fr.WriteWindowUpdate(1, 0) }, http2.ErrCodeProtocol, false},
		"a huge window":    {func(r *rig) error { return r.fr.WriteWindowUpdate(1, 1<<31-1) }, http2.ErrCodeFlowControl, false},
		"a second request": {func(r *rig) error { r.ask(1, "/carry"); return nil }, http2.ErrCodeStreamClosed, true},
		"a body":           {func(r *rig) error { return r.fr.WriteData(1, true, []byte("x")) }, http2.ErrCodeStreamClosed, true},
		"a window by settings": {func(r *rig) error {
			return errors.Join(r.fr.WriteWindowUpdate(1, 1<<31-1-65535), r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}))
		}, http2.ErrCodeFlowControl, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, pages())
			r.ask(1, "/carry")
			r.taken(1)
			r.must(c.do(r))
			if c.whole {
				if f := r.gone(); f.ErrCode != c.why {
					t.Error(f)
				}
				return
			}
			if f, ok := r.next().(*http2.RSTStreamFrame); !ok || f.ErrCode != c.why {
				t.Error(f)
			}
			r.taken(0)
		})
	}
}

// TestGoAwayOfClient: who opens no more streams still gets the answers to those that are
// open, and closes the connection itself.
func TestGoAwayOfClient(t *testing.T) {
	r := start(t, pages())
	r.ask(1, "/carry")
	r.taken(1)
	r.must(r.fr.WriteGoAway(0, http2.ErrCodeNo, nil))
	r.act(func() {
		r.must(r.conn.Reply(1, okBlock, []byte("late")))
		r.must(r.conn.Flush())
	})
	if got := r.answer(1); got != "late" {
		t.Error(got)
	}
	r.must(r.fr.WritePing(false, [8]byte{1}))
	if _, ok := r.next().(*http2.PingFrame); !ok {
		t.Error("no pong")
	}
}

// TestCarryHead: a head takes as many frames as it needs, and begins with the size
// of a table that has become smaller.
func TestCarryHead(t *testing.T) {
	r := start(t, pages())
	r.ask(1, "/carry")
	r.taken(1)
	r.must(r.fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 100}))
	r.must(r.fr.WritePing(false, [8]byte{1}))
	if _, ok := r.next().(*http2.PingFrame); !ok {
		t.Error("no pong")
	}
	r.reply(1, AppendField(okBlock[:1:1], 0, "x-long", strings.Repeat("long", 10000)), "body")
	f, ok := r.next().(*http2.HeadersFrame)
	if !ok || f.HeadersEnded() || f.HeaderBlockFragment()[0] != 0x3f {
		t.Fatal(f)
	}
	size := len(f.HeaderBlockFragment())
	for {
		c, ok := r.next().(*http2.ContinuationFrame)
		if !ok {
			t.Fatal("no CONTINUATION")
		}
		if size += len(c.HeaderBlockFragment()); c.HeadersEnded() {
			break
		}
	}
	if size < 20000 {
		t.Error(size)
	}
}
