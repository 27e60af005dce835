package cache

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/cache/purge"
	"millrace/cache/tier"
	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/memory"
)

// reopen opens a cache with a disk tier on a folder.
func reopen(t *testing.T, dir string, up *origin, o Options) *Handler {
	t.Helper()
	o.Disk, o.To = dir, []string{"http://127.0.0.1:1"}
	h, err := New(o, Deps{Transport: up, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestRestart(t *testing.T) {
	up := &origin{answer: func(n int, r *http.Request) *http.Response {
		vary := "X-None"
		if strings.HasPrefix(r.URL.Path, "/vary") {
			vary = "X-Kind"
		}
		return say(200, strconv.Itoa(n)+r.Header.Get("X-Kind"), "Cache-Control", "max-age=3600", "Vary", vary, "Cache-Tag", r.URL.Path[1:])
	}}
	dir := filepath.Join(t.TempDir(), "cache")
	h := reopen(t, dir, up, Options{})
	targets := []string{"/a", "/b", "/vary"}
	bodies := map[string]string{}
	for range 2 { // written at the second request
		for _, path := range targets {
			for _, kind := range []string{"x", "y"} {
				bodies[path+kind] = asked(t, h, "GET", "http://a.example"+path, "X-Kind", kind).Body.String()
			}
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	before := up.calls.Load()
	h = reopen(t, dir, up, Options{})
	for _, path := range targets {
		for _, kind := range []string{"x", "y"} {
			w := asked(t, h, "GET", "http://a.example"+path, "X-Kind", kind)
			if w.Body.String() != bodies[path+kind] || !isHit(t, w) {
				t.Errorf("%s %s: %q, want %q; %v", path, kind, w.Body, bodies[path+kind], w.Header()["Cache-Status"])
			}
		}
	}
	if up.calls.Load() != before {
		t.Error("what was on disk was fetched again")
	}
	// What is purged stays purged, also by a process that is killed.
	if err := h.Purge(t.Context(), purge.Selector{Tag: "a", Hard: true}); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	// An earlier version had them beside the folder.
	if err := os.Rename(filepath.Join(copied, "purges"), copied+".purges"); err != nil {
		t.Fatal(err)
	}
	killed := reopen(t, copied, up, Options{})
	if w := asked(t, killed, "GET", "http://a.example/a", "X-Kind", "x"); isHit(t, w) {
		t.Error("a purged answer came back from the disk")
	}
	if w := asked(t, killed, "GET", "http://a.example/b", "X-Kind", "x"); !isHit(t, w) {
		t.Error("another one went with it")
	}
	// Other options, other answers.
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	o := Options{}
	o.Key.NoQuery = true
	if w := ask(reopen(t, dir, up, o), "GET", "http://a.example/b", "X-Kind", "x"); isHit(t, w) {
		t.Error("an answer that was stored under other options was found")
	}
}

// A body that is larger than memory takes goes to disk while it is read.
func TestLargeBody(t *testing.T) {
	const size = 3 << 20
	content := func() io.Reader { return io.LimitReader(neverending('m'), size) }
	up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
		resp := say(200, "", "Cache-Control", "max-age=3600", "Etag", `"1"`)
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Body = -1, io.NopCloser(content())
		return resp
	}}
	dir := filepath.Join(t.TempDir(), "cache")
	o := Options{Memory: 4 << 20}
	h := reopen(t, dir, up, o)
	want := sha256.New()
	_, _ = io.Copy(want, content())
	sum := func(b []byte) string { s := sha256.Sum256(b); return string(s[:]) }
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if w := ask(h, "GET", "http://a.example/"); sum(w.Body.Bytes()) != string(want.Sum(nil)) {
				t.Errorf("%d bytes", w.Body.Len())
			}
		})
	}
	all.Wait()
	settle(t, h)
	w := ask(h, "GET", "http://a.example/", "Range", "bytes=-5")
	if w.Code != 206 || w.Body.String() != "mmmmm" || !isHit(t, w) {
		t.Errorf("range: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header()["Cache-Status"])
	}
	if up.calls.Load() != 1 {
		t.Errorf("%d requests upstream", up.calls.Load())
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = reopen(t, dir, up, o)
	if w := ask(h, "GET", "http://a.example/"); w.Body.Len() != size || !isHit(t, w) {
		t.Errorf("after a restart: %d bytes", w.Body.Len())
	}
}

// Without a disk, what is too large passes through, to everyone who asks.
func TestTooLarge(t *testing.T) {
	up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
		return say(200, strings.Repeat("x", 2<<20), "Cache-Control", "max-age=3600")
	}}
	h := newCache(t, Options{Memory: 4 << 20}, up)
	for range 2 {
		if w := ask(h, "GET", "http://a.example/"); w.Body.Len() != 2<<20 || isHit(t, w) {
			t.Errorf("%d bytes, %v", w.Body.Len(), w.Header()["Cache-Status"])
		}
	}
}

// What is asked for twice goes to disk, also where memory is so full that it is
// gone from there in between.
func TestDiskBeyondMemory(t *testing.T) {
	up := &origin{answer: func(_ int, r *http.Request) *http.Response {
		return say(200, r.URL.Path+strings.Repeat("x", 8<<10), "Cache-Control", "max-age=3600")
	}}
	dir, small := filepath.Join(t.TempDir(), "cache"), Options{Memory: tier.MinMemory}
	const urls = 400 // three times what memory holds
	pass := func(h *Handler) {
		for i := range urls {
			asked(t, h, "GET", "http://a.example/"+strconv.Itoa(i))
		}
	}
	h := reopen(t, dir, up, small)
	pass(h)
	if err := h.Close(); err != nil { // which writes what waits
		t.Fatal(err)
	}
	h = reopen(t, dir, up, small)
	if s, ok := h.tiers.DiskStats(); !ok || s.Objects > 0 {
		t.Errorf("%d answers that were asked for once are on disk", s.Objects)
	}
	pass(h)
	pass(h)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = reopen(t, dir, up, small)
	before := up.calls.Load()
	pass(h)
	if n := up.calls.Load() - before; n > 0 {
		t.Errorf("at the third pass %d of %d were fetched", n, urls)
	}
}

// Two machines share what they fetch, and purges.
func TestShared(t *testing.T) {
	common := memory.New(1 << 20)
	t.Cleanup(func() { common.Close() })
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=3600", "Etag", strconv.Quote(strconv.Itoa(n)))
	}}
	var machines []*Handler
	var order sync.Mutex // as the stream has one
	published := 0
	publish := func(_ context.Context, m []byte) error {
		order.Lock()
		defer order.Unlock()
		published++
		for _, h := range machines {
			h.Message(m, false)
		}
		return nil
	}
	for range 2 {
		o := Options{}
		o.To = []string{"http://127.0.0.1:1"}
		h, err := New(o, Deps{Transport: up, Shared: common, Publish: publish, ErrorLog: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		order.Lock()
		machines = append(machines, h)
		order.Unlock()
	}
	if err := publish(t.Context(), []byte(`{"id":"first","hello":true}`)); err != nil {
		t.Fatal(err)
	}
	// The greetings of both, and ours. One that b had not heard yet would have b
	// validate what a stored after it.
	servertest.Eventually(t, "three greetings", func() bool {
		order.Lock()
		defer order.Unlock()
		return published >= 3
	})
	a, b := machines[0], machines[1]
	stored := func(n int64) {
		servertest.Eventually(t, "the answer is stored", func() bool { return common.Stats().Objects >= n })
	}
	ask(a, "GET", "http://a.example/")
	stored(1)
	if w := ask(b, "GET", "http://a.example/"); w.Body.String() != "1" || !isHit(t, w) {
		t.Errorf("b got %q %v", w.Body, w.Header()["Cache-Status"])
	}
	if err := a.Purge(t.Context(), purge.Selector{URL: "http://a.example/", Hard: true}); err != nil {
		t.Fatal(err)
	}
	if w := ask(b, "GET", "http://a.example/"); w.Body.String() != "2" {
		t.Errorf("after a's purge b got %q %v", w.Body, w.Header()["Cache-Status"])
	}
	stored(1)
	time.Sleep(10 * time.Millisecond) // until b's answer has replaced the purged one; else a asks upstream, which is right as well
	if w := ask(a, "GET", "http://a.example/"); w.Body.String() == "1" {
		t.Error("a brought a purged answer back")
	}
	// What one machine has refreshed, the other takes, although it has an older one.
	servertest.Eventually(t, "a takes what b has refreshed", func() bool {
		if err := a.Purge(t.Context(), purge.Selector{URL: "http://a.example/"}); err != nil {
			t.Fatal(err)
		}
		fresh := ask(b, "GET", "http://a.example/").Body.String()
		time.Sleep(10 * time.Millisecond) // until it has replaced the older one; else a asks upstream, and we try again
		n := up.calls.Load()
		w := ask(a, "GET", "http://a.example/")
		return up.calls.Load() == n && w.Body.String() == fresh && isHit(t, w)
	})
	// What is lost is not trusted.
	n := up.calls.Load()
	b.Message(nil, true)
	ask(b, "GET", "http://a.example/")
	if up.calls.Load() == n {
		t.Error("after lost messages nothing was validated")
	}
}

// A tier that fails is as good as none.
type broken struct{}

func (broken) Get(context.Context, string) (*store.Object, error) { return nil, store.ErrDown }
func (broken) Create(context.Context, string, int64) (store.Writer, error) {
	return nil, store.ErrDown
}
func (broken) Delete(context.Context, string) error { return store.ErrDown }
func (broken) Stats() store.Stats                   { return store.Stats{Down: true} }
func (broken) Close() error                         { return nil }

func TestBrokenTiers(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=3600")
	}}
	o := Options{}
	o.To = []string{"http://127.0.0.1:1"}
	h, err := New(o, Deps{Transport: up, Shared: broken{}, Disk: broken{}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for range 3 {
		if w := ask(h, "GET", "http://a.example/"); w.Body.String() != "1" {
			t.Errorf("%q", w.Body)
		}
	}
}
