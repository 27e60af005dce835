package h2

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"millrace/internal/process/servertest"
)

func field(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }

// deaf is a host that nobody hears.
type deaf struct{ host }

func (*deaf) Write(p []byte) (int, error) { return len(p), nil }
func (*deaf) Read([]byte) (int, error)    { return 0, io.EOF }
func (*deaf) Close() error                { return nil }
func (*deaf) Awaits(Wait)                 {}

// The host and net/http share the connection's window: what both send never
// exceeds it, and all of it can be used.
func TestSharedWindow(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	r.ask(1, "/cold") // net/http believes in 65531 from here on
	r.answer(1)
	r.ask(3, "/hot/60000")
	r.answer(3)
	r.ask(5, "/big")
	left, got := 65535-4-60000, 0
	sent, granted := 0, 0
	for got < 200000 {
		if sent == left+granted { // the window is empty: nothing may come
			r.must(r.fr.WritePing(false, [8]byte{1}))
			granted += 7001
			r.must(r.fr.WriteWindowUpdate(0, 7001))
		}
		switch f := r.next().(type) {
		case *http2.DataFrame:
			got, sent = got+len(f.Data()), sent+len(f.Data())
			if sent > left+granted {
				t.Fatalf("%d bytes where the window has %d", sent, left+granted)
			}
		case *http2.GoAwayFrame:
			t.Fatal(f)
		}
	}
}

func TestHotOnlyWhatFits(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 999})
	r.ask(1, "/hot/1000")
	if f := r.next(); r.got["x-lane"] != "" {
		t.Fatal(f)
	}
	r.must(r.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	r.must(r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
	r.ask(3, "/hot/1000")
	for {
		f := r.next()
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamID == 3 {
			break
		}
	}
	if r.got["x-lane"] == "" {
		t.Fatal("the lane stays away")
	}
}

// Frames are cut to what the client takes.
func TestFrameSize(t *testing.T) {
	r := start(t, pages(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	r.must(r.fr.WriteWindowUpdate(0, 1<<20))
	r.ask(1, "/big")
	for got := 0; got < 200000; {
		if f, ok := r.next().(*http2.DataFrame); ok {
			if got += len(f.Data()); f.Length > 16<<10 {
				t.Fatalf("a frame of %d bytes", f.Length)
			}
		}
	}
}

// A client that leaves in the middle leaves nothing behind: goleak looks.
func TestClientLeaves(t *testing.T) {
	for _, path := range []string{"/big", "/hang", "/hot", "/echo"} {
		r := start(t, pages())
		r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.fields(path), EndStream: path != "/echo", EndHeaders: true}))
		_ = r.nc.Close()
		_ = r.ended()
	}
}

func TestShutdown(t *testing.T) {
	release := make(chan struct{})
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		<-release
		_, _ = w.Write(b)
	}))
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.fields("/x"), EndHeaders: true}))
	servertest.Eventually(r, "the stream is open", func() bool { return r.host.waits() == WaitNothing })
	r.conn.Shutdown()
	r.conn.Shutdown()
	if f := r.gone(); f.LastStreamID != 1 || f.ErrCode != http2.ErrCodeNo {
		t.Fatal(f)
	}
	// What comes later is not answered, and costs the others no window.
	r.ask(3, "/hot")
	r.must(r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: r.fields("/y"), EndHeaders: true}))
	r.must(r.fr.WriteData(5, false, make([]byte, 1234)))
	for {
		f, err := r.fr.ReadFrame()
		r.must(err)
		if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID == 0 && w.Increment == 1234 {
			break
		}
	}
	r.must(r.fr.WriteData(1, true, []byte("late")))
	close(release)
	if got := r.answer(1); got != "late" {
		t.Fatal(got)
	}
	servertest.Eventually(r, "nothing is awaited but a request", func() bool { return r.host.waits() == WaitRequest })
}

// SETTINGS are the first frame, even when the drain was faster.
func TestShutdownAtOnce(t *testing.T) {
	var b bytes.Buffer
	c := New(nil, Options{Settings: appendSetting(nil, settingMaxFrameSize, 16<<10)})
	c.host = &written{b: &b}
	c.Shutdown()
	if kinds := []byte{b.Bytes()[3], b.Bytes()[frameHead+6+3]}; !bytes.Equal(kinds, []byte{frameSettings, frameGoAway}) {
		t.Error(kinds)
	}
}

type written struct {
	deaf
	b *bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) { return w.b.Write(p) }

// What net/http says about its last stream includes those of the host.
func TestGoAwayOfNetHTTP(t *testing.T) {
	answer := make(chan struct{})
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		w.Header().Set("Connection", "close")
	}))
	r.ask(1, "/")
	r.ask(3, "/hot")
	r.answer(3)
	close(answer)
	if f := r.gone(); f.LastStreamID != 3 {
		t.Error(f.LastStreamID)
	}
	r.ask(5, "/hot") // is not answered any more
	_ = r.ended()
}

func TestWindowCounts(t *testing.T) {
	var w window
	w.init(defaultWindow)
	if !w.take(1000) || w.take(defaultWindow) {
		t.Fatal("take")
	}
	if grow := w.settle(); grow != 0 || w.debt != 1000 {
		t.Fatal(grow, w.debt)
	}
	for _, step := range []struct{ n, pass int64 }{{400, 0}, {601, 1}, {5, 5}} {
		if pass, ok := w.grow(step.n); !ok || pass != step.pass {
			t.Fatal(step, pass, ok)
		}
	}
	if _, ok := w.grow(maxWindow); ok {
		t.Fatal("a window beyond the largest")
	}
	if n := w.wait(1<<30, time.Minute); n != defaultWindow+6 {
		t.Fatal(n)
	}
	w.close()
	if n := w.wait(1, time.Minute); n != 0 {
		t.Fatal(n)
	}
}

// A pipe that is never empty does not grow.
func TestPipeIsBounded(t *testing.T) {
	p := newPipe(nil)
	b := make([]byte, 1000)
	for range 10 {
		p.write(b, false, false)
	}
	for range 10000 {
		p.write(b, false, false)
		if n, _ := p.read(b); n != len(b) {
			t.Fatal(n)
		}
	}
	if cap(p.b) > 2*maxPipe {
		t.Errorf("%d bytes", cap(p.b))
	}
}

// A client that gives no window does not hold net/http up for ever.
func TestWindowStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w window
		w.init(0)
		began := time.Now()
		if n := w.wait(1, 30*time.Second); n != 0 || time.Since(began) != 30*time.Second {
			t.Errorf("took %d bytes after %v", n, time.Since(began))
		}
		go func() {
			time.Sleep(time.Second)
			w.grow(5)
		}()
		if n := w.wait(9, 30*time.Second); n != 5 {
			t.Errorf("took %d bytes of 5", n)
		}
	})
}
