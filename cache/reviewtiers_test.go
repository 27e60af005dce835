package cache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/cache/purge"
	"millrace/internal/bytesize"
	"millrace/store"
	"millrace/store/disk"
	"millrace/store/memory"
)

// A purge of a URL finds what was stored for another URL with the same key.
func TestPurgeOfEditedURL(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60", "Cache-Tag", "tag")
	}}
	tracked, sorted, hosts := Options{Preset: "assets"}, Options{}, Options{}
	sorted.Key.SortQuery, hosts.Key.IgnoreHost = true, true
	for name, c := range map[string]struct {
		o                 Options
		stored, purged, w string
	}{
		"tracking":       {tracked, "http://a.example/x?utm_source=mail&p=1", "http://a.example/x?p=1", "http://a.example/x?p=1&gclid=2"},
		"tracking, back": {tracked, "http://a.example/x?p=1", "http://a.example/x?utm_source=mail&p=1", "http://a.example/x?p=1"},
		"sorted":         {sorted, "http://a.example/x?b=1&a=2", "http://a.example/x?a=2&b=1", "http://a.example/x?b=1&a=2"},
		"bare":           {sorted, "http://a.example/x?b=1&a=2", "a.example/x?b=1&a=2", "http://a.example/x?a=2&b=1"},
		"hosts":          {hosts, "http://a.example/x", "http://b.example/x", "http://c.example/x"},
	} {
		h := newCache(t, c.o, up)
		before := asked(t, h, "GET", c.stored).Body.String()
		if w := asked(t, h, "GET", c.w); w.Body.String() != before {
			t.Fatalf("%s: not the same key", name)
		}
		if e := h.Explain(httptest.NewRequest("GET", c.stored, nil)); len(e.Tags) != 1 || e.Tags[0] != "tag" {
			t.Errorf("%s: tags %q", name, e.Tags)
		}
		if err := h.Purge(t.Context(), purge.Selector{URL: c.purged, Hard: true}); err != nil {
			t.Fatal(err)
		}
		if w := asked(t, h, "GET", c.w); w.Body.String() == before {
			t.Errorf("%s: the purged answer came back", name)
		}
	}
}

// A journal has what POST invalidates, so that no crash brings it back.
func TestInvalidationOutlivesCrash(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60")
	}}
	dir := filepath.Join(t.TempDir(), "cache")
	journal := filepath.Join(dir, "purges")
	h := reopen(t, dir, up, Options{})
	before := size(t, journal)
	asked(t, h, "POST", "http://a.example/x")
	if size(t, journal) == before {
		t.Error("it is not in the journal")
	}
}

// size is that of a file.
func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// countingStore counts what is open.
type countingStore struct {
	store.Store
	open atomic.Int64
}

func (c *countingStore) Get(ctx context.Context, key string) (*store.Object, error) {
	o, err := c.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	closer, once := o.Closer, new(sync.Once)
	o.Closer = closing(func() error {
		once.Do(func() { c.open.Add(-1) })
		return closer.Close()
	})
	return o, nil
}

type closing func() error

func (c closing) Close() error { return c() }

// large is a cache whose answers go to a disk, open objects of which are counted.
func large(t *testing.T, up *origin, largest bytesize.Size) (*Handler, *countingStore) {
	t.Helper()
	disk, err := disk.Open(disk.Options{Dir: t.TempDir(), Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	counting := &countingStore{Store: disk}
	o := Options{Memory: 1 << 20, Largest: largest}
	o.To = []string{"http://127.0.0.1:1"}
	h, err := New(o, Deps{Transport: up, Disk: counting, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); disk.Close() })
	return h, counting
}

// What is sent from the disk is given back to it; whatever its status, it is whole.
func TestDiskBodies(t *testing.T) {
	body := strings.Repeat("x", 400<<10)
	for _, code := range []int{200, 404} {
		h, disk := large(t, &origin{answer: func(int, *http.Request) *http.Response {
			return say(code, body, "Cache-Control", "max-age=60")
		}}, 0)
		asked(t, h, "GET", "http://a.example/")
		for _, method := range []string{"GET", "HEAD", "GET"} {
			w := asked(t, h, method, "http://a.example/")
			if want := len(body); w.Code != code || !isHit(t, w) || method == "GET" && w.Body.Len() != want {
				t.Errorf("%s: %d, %d bytes, %v", method, w.Code, w.Body.Len(), w.Header()["Cache-Status"])
			}
		}
		ask(h, "GET", "http://a.example/", "If-None-Match", "*")
		if n := disk.open.Load(); n != 0 {
			t.Errorf("%d objects are open", n)
		}
	}
}

// A body on disk that is another answer's by now is not sent.
func TestReplacedDiskBody(t *testing.T) {
	body := strings.Repeat("x", 400<<10)
	up := &origin{answer: func(int, *http.Request) *http.Response { return say(200, body, "Cache-Control", "max-age=60") }}
	h, disk := large(t, up, 0)
	asked(t, h, "GET", "http://a.example/")
	o := h.tiers.Look("http://a.example/").Objects[0]
	other := o.Clone()
	other.Stamp++
	head, err := other.Encode("", 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := disk.Create(t.Context(), o.Disk, o.Size)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(strings.Repeat("y", 400<<10)))
	if err := w.Commit(head); err != nil {
		t.Fatal(err)
	}
	if b, err := h.tiers.Open(t.Context(), o); err == nil {
		b.Close()
		t.Error("the other one's body was taken")
	}
	if w := asked(t, h, "GET", "http://a.example/"); w.Body.Len() != len(body) {
		t.Errorf("%d bytes", w.Body.Len())
	}
}

// What was purged while it came does not take the place of anything.
func TestPurgedWhileItCame(t *testing.T) {
	body := strings.Repeat("x", 400<<10)
	var h *Handler
	up := &origin{}
	up.answer = func(int, *http.Request) *http.Response {
		if err := h.Purge(t.Context(), purge.Selector{All: true, Hard: true}); err != nil {
			t.Error(err)
		}
		return say(200, body, "Cache-Control", "max-age=60")
	}
	h, disk := large(t, up, 0)
	if w := asked(t, h, "GET", "http://a.example/"); w.Body.Len() != len(body) {
		t.Errorf("%d bytes", w.Body.Len())
	}
	if n := disk.Stats().Objects; n != 0 || h.tiers.Entries() != 0 {
		t.Errorf("%d objects on disk, %d in memory", n, h.tiers.Entries())
	}
}

// What is larger than anything that is kept, and does not say so before, passes
// through whole.
func TestLargerThanAnnounced(t *testing.T) {
	const size = 3 << 20
	answer := func(int, *http.Request) *http.Response {
		resp := say(200, "", "Cache-Control", "max-age=60")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Body = -1, io.NopCloser(io.LimitReader(neverending('m'), size))
		return resp
	}
	disk, _ := large(t, &origin{answer: answer}, 2<<20)
	for name, h := range map[string]*Handler{
		"memory": newCache(t, Options{Memory: 1 << 20, Largest: 1 << 20}, &origin{answer: answer}),
		"disk":   disk,
	} {
		for range 2 {
			if w := asked(t, h, "GET", "http://a.example/"); w.Code != 200 || w.Body.Len() != size {
				t.Errorf("%s: %d, %d bytes", name, w.Code, w.Body.Len())
			}
		}
		if n := h.tiers.Entries(); n != 0 {
			t.Errorf("%s: %d are stored", name, n)
		}
	}
}

// What another machine asked for before it heard of a purge of ours is older
// than that purge, whatever else it had heard.
func TestOrderOfSharedPurges(t *testing.T) {
	held := make(chan []byte, 1)
	o := Options{}
	o.To = []string{"http://127.0.0.1:1"}
	common := memory.New(1 << 20)
	defer common.Close()
	h, err := New(o, Deps{
		Transport: &origin{}, Shared: common, ErrorLog: slog.New(slog.DiscardHandler),
		Publish: func(_ context.Context, m []byte) error {
			if !strings.Contains(string(m), "hello") {
				held <- m
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	theirs := purge.Object{URL: "http://a.example/"}
	if err := h.Purge(t.Context(), purge.Selector{URL: "http://a.example/", Hard: true}); err != nil {
		t.Fatal(err)
	}
	h.Message([]byte(`{"id":"other","purge":{"tag":"x"}}`), false)
	theirs.At, _ = h.purges.Time("other")
	if h.purges.Index().State(&theirs, nil) != purge.Gone {
		t.Error("what may be older than the purge is taken for younger")
	}
	h.Message(<-held, false)
	h.Message([]byte(`{"id":"later","hello":true}`), false)
	if theirs.At, _ = h.purges.Time("later"); h.purges.Index().State(&theirs, nil) != purge.Valid {
		t.Error("what is younger is taken for older")
	}
	if h.purges.Epoch(h.purges.Index().Now()) != "later" {
		t.Error("what this machine asks for has no place")
	}
}

// A purge that others could not be told of does not make what they store old for ever.
func TestPurgeThatCannotBePublished(t *testing.T) {
	down := errors.New("down")
	o := Options{}
	o.To = []string{"http://127.0.0.1:1"}
	var isUp atomic.Bool
	told := make(chan []byte, 1)
	h, err := New(o, Deps{Transport: &origin{}, Publish: func(_ context.Context, m []byte) error {
		if strings.Contains(string(m), "hello") {
			return nil
		}
		if !isUp.Load() {
			return down
		}
		told <- m
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Purge(t.Context(), purge.Selector{All: true}); !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
	h.Message([]byte(`{"id":"before","hello":true}`), false)
	isUp.Store(true)
	h.Message(<-told, false)
	h.Message([]byte(`{"id":"later","hello":true}`), false)
	for id, want := range map[string]purge.State{"before": purge.Stale, "later": purge.Valid} {
		at, _ := h.purges.Time(id)
		if theirs := (purge.Object{URL: "http://a.example/", At: at}); h.purges.Index().State(&theirs, nil) != want {
			t.Errorf("what was stored after %q is %v, want %v", id, h.purges.Index().State(&theirs, nil), want)
		}
	}
}

// Explaining changes nothing.
func TestExplainTakesNothingIn(t *testing.T) {
	up := &origin{answer: func(int, *http.Request) *http.Response { return say(200, "x", "Cache-Control", "max-age=60") }}
	dir := filepath.Join(t.TempDir(), "cache")
	h := reopen(t, dir, up, Options{})
	for range 2 {
		asked(t, h, "GET", "http://a.example/")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = reopen(t, dir, up, Options{})
	if e := h.Explain(httptest.NewRequest("GET", "http://a.example/", nil)); e.Outcome != "hit" || e.Tier != "disk" || h.tiers.Entries() != 0 {
		t.Errorf("%+v, %d in memory", e, h.tiers.Entries())
	}
}
