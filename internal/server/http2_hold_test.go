package server

import (
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
	"millrace/internal/wire/send"
)

// What holds over HTTP/1.1 holds on open HTTP/2 connections.

// A drain says GOAWAY, lets what runs end, answers nothing that came later, and
// is not held up by clients that go on asking.
func TestHTTP2Drain(t *testing.T) {
	leaves(t)
	running, release := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.HandleFunc("/wait", func(w http.ResponseWriter, _ *http.Request) {
		running <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "done\n")
	})
	r := start(t, plan{handler: mux, limits: Options{DrainTimeout: 2 * patience}})
	r.teach(t, "tls", "/hot")
	busy, idle, silent := r.http2(t), r.http2(t), r.http2(t)
	if _, body := busy.get(t, 1, "/hot"); body != smallBody {
		t.Fatalf("%q", body)
	}
	_ = busy.open(3, asking("/wait"))
	_ = busy.out.Flush()
	<-running
	idle.get(t, 1, "/slow")
	if err := silent.out.Flush(); err != nil {
		t.Fatal(err)
	}
	stubborn := map[string]*hostile{"/hot": r.http2(t), "/slow": r.http2(t)}
	var rounds atomic.Int64
	for path, h := range stubborn {
		go func() { // ends with the connection
			for id := uint32(1); ; id += 2 {
				if h.open(id, asking(path)) != nil || h.out.Flush() != nil {
					return
				}
				rounds.Add(1)
				time.Sleep(time.Millisecond)
			}
		}()
		go h.end() // the same
	}
	servertest.Eventually(t, "the stubborn are at it", func() bool { return rounds.Load() > 20 })
	began := time.Now()
	r.cancel()
	servertest.Eventually(t, "the server drains", r.srv.Draining)
	// A stream that was on its way when the client was warned is answered.
	_ = busy.open(5, asking("/hot"))
	_ = busy.out.Flush()
	for told, answered := []uint32(nil), false; len(told) < 2 || !answered; { // from here on it is late
		f, err := busy.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			told = append(told, f.LastStreamID)
			if want := []uint32{1<<31 - 1, 5}; f.LastStreamID != want[len(told)-1] || f.ErrCode != http2.ErrCodeNo {
				t.Errorf("the client is told %v %d", f, f.LastStreamID)
			}
		case *http2.DataFrame:
			answered = f.StreamID == 5
		}
	}
	for name, h := range map[string]*hostile{"idle": idle, "silent": silent} {
		if why := h.end(); why != http2.ErrCodeNo {
			t.Errorf("the %s one is told %v", name, why)
		}
	}
	_ = busy.open(7, asking("/hot"))
	_ = busy.open(9, asking("/slow"))
	_ = busy.out.Flush()
	servertest.Eventually(t, "the others are gone", func() bool { return r.srv.lane.Open() == 1 })
	slow, fast := r.slow(), r.fast()
	close(release)
	if _, body := busy.answer(t, 3); body != "done\n" {
		t.Errorf("what ran is answered with %q", body)
	}
	if why := busy.end(); why != http2.ErrCodeNo {
		t.Errorf("the end is %v", why)
	}
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > patience {
		t.Errorf("the drain took %v", d)
	}
	if r.fast() != fast || r.slow() > slow+1 {
		t.Error("a request that came after GOAWAY was answered")
	}
}

// A connection without a stream gives way to new clients, one with a stream does
// not: whoever has answered on it before.
func TestHTTP2MakesRoom(t *testing.T) {
	running, release := make(chan struct{}, 1), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", newPages())
	mux.HandleFunc("/wait", func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-release
	})
	r := start(t, plan{limits: Options{Connections: 2, ConnectionsPerAddress: 9}, handler: mux})
	r.teach(t, "tls", "/hot")
	for _, path := range []string{"/hot", "/slow"} {
		busy, idle := r.http2(t), r.http2(t)
		idle.get(t, 1, path)
		busy.get(t, 1, path)
		_ = busy.open(3, asking("/wait"))
		_ = busy.out.Flush()
		<-running
		third := r.http2(t) // in the place of the idle one
		if status, _ := third.get(t, 1, path); status != "200" {
			t.Errorf("%s: the third gets %s", path, status)
		}
		idle.end()
		release <- struct{}{}
		if status, _ := busy.answer(t, 3); status != "200" {
			t.Errorf("%s: the busy one ends with %s", path, status)
		}
		_, _ = busy.nc.Close(), third.nc.Close()
		servertest.Eventually(t, "the places are free", func() bool { return r.srv.slots.used() == 0 })
	}
}

// One address has no more HTTP/2 connections than others.
func TestHTTP2PerAddress(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	r := start(t, plan{limits: Options{Connections: 9, ConnectionsPerAddress: 1}, handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-release
	})})
	h := r.http2(t)
	_ = h.open(1, asking("/"))
	_ = h.out.Flush()
	<-running
	servertest.Eventually(t, "a second one is refused", func() bool {
		nc, err := r.tryDial("tls")
		if err == nil {
			_ = nc.Close()
		}
		return err != nil
	})
	close(release)
	if status, _ := h.answer(t, 1); status != "200" {
		t.Errorf("the first ends with %s", status)
	}
}

// A reload that denies a hot path holds at once, on open connections too.
func TestHTTP2ReloadDenies(t *testing.T) {
	r := start(t, plan{})
	r.teach(t, "tls", "/hot")
	h := r.http2(t)
	h.get(t, 1, "/hot")
	h.get(t, 3, "/slow")
	deny := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "denied", http.StatusForbidden) })
	fast := r.fast()
	r.setup.Secure = everyHost(4, deny, r.job)
	if err := r.srv.Reload(r.setup); err != nil {
		t.Fatal(err)
	}
	for id := uint32(5); id < 11; id += 2 {
		if status, _ := h.get(t, id, "/hot"); status != "403" {
			t.Errorf("%s after the reload", status)
		}
	}
	if r.fast() != fast || fast == 0 {
		t.Errorf("the lane has answered %d times, and %d after the reload", fast, r.fast()-fast)
	}
}

// What is purged is not answered any more, on open connections too.
func TestHTTP2Purge(t *testing.T) {
	var gen lane.Generation
	var version atomic.Pointer[string]
	set := func(s string) { version.Store(&s) }
	set("old\n")
	r := start(t, plan{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := gen.Now()
		a := page(*version.Load())
		lane.Offer(r, a, lane.Rule{Version: read})
		send.Serve(w, r, a)
	})})
	h := r.http2(t)
	id := uint32(1)
	for _, want := range []string{"old\n", "new version\n", "the third\n"} {
		set(want)
		gen.Invalidate()
		before := r.fast()
		for range 4 {
			if _, body := h.get(t, id, "/"); body != want {
				t.Errorf("%q, want %q", body, want)
			}
			id += 2
		}
		if r.fast() == before {
			t.Error("the lane answers nothing")
		}
	}
}

// Nothing of a connection that is closed is left, whoever has answered on it.
func TestHTTP2LeavesNothing(t *testing.T) {
	const connections, most = 200, 1 << 20 // bytes: half of what they hold
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		r := start(t, plan{lane: lane.Options{Off: off}})
		r.teach(t, "tls", "/hot")
		held := func() int64 {
			servertest.Eventually(t, "all connections are closed", func() bool { return r.srv.slots.used() == 0 })
			var m runtime.MemStats
			runtime.GC()
			runtime.GC() // the pools, too
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		visit := func(n int) {
			conf := r.clientTLS.Clone()
			conf.NextProtos = []string{"h2"}
			for range n {
				func(sub testing.TB) {
					h := speakHTTP2(sub, r.secure, conf)
					h.get(t, 1, "/hot")
					h.get(t, 3, "/slow")
					_ = h.nc.Close()
				}(&noCleanup{t})
			}
		}
		visit(20)
		before := held()
		visit(connections)
		var left int64
		servertest.Eventually(t, "their memory is free", func() bool {
			left = held() - before
			return left < most
		})
		r.srv.streams.mu.Lock()
		defer r.srv.streams.mu.Unlock()
		if n := len(r.srv.streams.idle); n > 0 {
			t.Errorf("%d connections that are closed count as idle", n)
		}
		t.Logf("%d KiB more", left>>10)
	})
}

// noCleanup is a test that keeps nothing to its end.
type noCleanup struct{ testing.TB }

func (*noCleanup) Cleanup(func()) {}
