package h2

import (
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/process/servertest"
	"millrace/internal/wire/stall"
)

// data reads so many bytes of a stream's body.
func (r *rig) data(id uint32, n int) {
	r.Helper()
	for n > 0 {
		if f, ok := r.next().(*http2.DataFrame); ok && f.StreamID == id {
			n -= len(f.Data())
		}
	}
}

// A stream without a window is reset, and its handler goes on; the others are
// answered. What has a window, or has not begun, is left alone.
func TestStalledStream(t *testing.T) {
	wrote := make(chan error, 1)
	mux := http.NewServeMux()
	mux.Handle("/", pages())
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 1<<20))
		wrote <- err
	})
	r := start(t, mux, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	r.must(r.fr.WriteWindowUpdate(0, 1<<20))
	r.ask(1, "/huge")
	r.ask(3, "/hang") // never begins
	r.data(1, 100)
	servertest.Eventually(r, "the window is used up", func() bool {
		r.conn.flows.mu.Lock()
		defer r.conn.flows.mu.Unlock()
		f := r.conn.flows.findLocked(1)
		return f != nil && f.window == 0 && f.progressAt > 0
	})
	if r.conn.Expire(time.Now().Add(-time.Hour)) {
		t.Error("the connection is over")
	}
	r.must(r.fr.WriteWindowUpdate(1, 50))
	r.data(1, 50)
	r.must(r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 110}))
	r.data(1, 10)
	select {
	case err := <-wrote:
		t.Fatalf("cut too early: %v", err)
	default:
	}
	for range 2 { // once more does no harm
		if r.conn.Expire(time.Now()) {
			t.Error("the connection is over")
		}
	}
	f, ok := r.next().(*http2.RSTStreamFrame)
	if !ok || f.StreamID != 1 || f.ErrCode != http2.ErrCodeCancel {
		t.Fatalf("%v", f)
	}
	if err := <-wrote; err == nil {
		t.Error("the handler has written everything")
	}
	r.ask(5, "/cold")
	if got := r.answer(5); got != "cold" {
		t.Error(got)
	}
	if r.conn.Reason() != None {
		t.Error("the client is blamed")
	}
}

// Where it is the connection that has no window, it is over.
func TestStalledConnection(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	r.ask(1, "/big")
	r.data(1, defaultWindow)
	servertest.Eventually(r, "the window is used up", func() bool { return r.conn.window.left() == 0 })
	if r.conn.Expire(time.Now().Add(-time.Hour)) || r.conn.Reason() != None {
		t.Error("over too early")
	}
	servertest.Eventually(r, "it is over", func() bool { return r.conn.Expire(time.Now()) })
	if r.conn.Reason() != Stalled {
		t.Errorf("blamed for %d", r.conn.Reason())
	}
	r.must(r.fr.WriteWindowUpdate(0, 1000))
	servertest.Eventually(r, "it goes on", func() bool { return !r.conn.Expire(time.Now().Add(-time.Hour)) })
}

// What is inserted never stands within another frame.
func TestInsert(t *testing.T) {
	p := newPipe(nil)
	p.write([]byte("a["), true, false)
	p.insert([]byte("1"))
	p.write([]byte("b"), true, false)
	p.insert([]byte("2"))
	p.write([]byte("]c"), false, false)
	p.insert([]byte("3"))
	p.write([]byte("d"), false, false)
	b := make([]byte, 100)
	if n, _ := p.read(b); string(b[:n]) != "a[b]c123d" {
		t.Error(string(b[:n]))
	}
}

// A request whose body does not come waits for its client; a conversation, in which the
// client says nothing for a while, does not (RFC 8441).
func TestConversationsDoNotWait(t *testing.T) {
	r := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	for i, fields := range [][]string{
		{":method", "CONNECT", ":authority", "a"},
		{":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/"},
	} {
		r.b.Reset()
		for i := 0; i < len(fields); i += 2 {
			r.must(r.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
		}
		r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: r.b.Bytes(), EndHeaders: true}))
	}
	servertest.Eventually(r, "both are open", func() bool { return r.conn.Streams(time.Now(), false).Open == 2 })
	if n := r.conn.Streams(time.Now().Add(2*stall.StalledAfter), false).Waiting; n != 1 {
		t.Errorf("%d wait", n)
	}
}
