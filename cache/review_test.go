package cache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/cache/purge"
	"millrace/store"
)

// asked is ask for requests that follow one another: what a client has got whole
// may yet have to be stored.
func asked(t *testing.T, h *Handler, method, target string, pairs ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := ask(h, method, target, pairs...)
	settle(t, h)
	return w
}

// A 304 that sets a cookie, or says that it is private, is the leader's alone.
func TestPrivate304(t *testing.T) {
	for _, field := range [][2]string{{"Set-Cookie", "sid=of-the-leader"}, {"Cache-Control", "private"}} {
		synctest.Test(t, func(t *testing.T) {
			up := &origin{answer: func(n int, r *http.Request) *http.Response {
				time.Sleep(100 * time.Millisecond)
				if r.Header.Get("If-None-Match") != "" {
					return say(304, "", field[0], field[1], "X-For", strconv.Itoa(n))
				}
				if n > 1 {
					return say(200, "body", "Cache-Control", "max-age=1", "Etag", `"1"`, field[0], field[1], "X-For", strconv.Itoa(n))
				}
				return say(200, "body", "Cache-Control", "max-age=1", "Etag", `"1"`)
			}}
			h := newCache(t, Options{}, up)
			defer h.Close()
			asked(t, h, "GET", "http://a.example/")
			time.Sleep(5 * time.Second)
			answers, _ := crowd(h, 10, "http://a.example/")
			seen := map[string]bool{}
			for _, w := range answers {
				whose := w.Header().Get("X-For")
				if seen[whose] || w.Code != 200 || w.Body.String() != "body" {
					t.Errorf("%s: %d, the answer %q went to two", field[0], w.Code, whose)
				}
				seen[whose] = true
			}
		})
	}
}

// Where the RFC alone decides, an answer that says nothing of its lifetime is
// not joined by, nor made for, requests with credentials.
func TestNoLifetimeWithCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, r *http.Request) *http.Response {
			time.Sleep(100 * time.Millisecond)
			return say(200, r.Header.Get("Cookie"))
		}}
		h := newCache(t, Options{Preset: "rfc9111"}, up)
		defer h.Close()
		began := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				var pairs []string
				want := ""
				if i%2 == 0 {
					want = "sid=" + strconv.Itoa(i)
					pairs = []string{"Cookie", want}
				}
				if w := ask(h, "GET", "http://a.example/", pairs...); w.Body.String() != want {
					t.Errorf("%q got %q", want, w.Body)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("they waited for each other: %v", took)
		}
	})
}

// One client's credentials do not end the coalescing of everyone else.
func TestCredentialsDoNotEndCoalescing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
			time.Sleep(100 * time.Millisecond)
			return say(200, "all", "Cache-Control", "max-age=60")
		}}
		h := newCache(t, Options{Preset: "rfc9111"}, up)
		defer h.Close()
		ask(h, "GET", "http://a.example/", "Authorization", "Bearer x")
		if crowd(h, 20, "http://a.example/"); up.calls.Load() != 2 {
			t.Errorf("%d requests upstream", up.calls.Load())
		}
	})
}

// POST invalidates what is stored under keys with cookies or headers, too, and
// under a key that leaves a part of the URL out.
func TestUnsafeMethodsInvalidateEveryKey(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60")
	}}
	cookies, headers, query := Options{}, Options{}, Options{}
	cookies.Key.Cookies, headers.Key.Headers, query.Key.NoQuery = []string{"lang"}, []string{"X-Tenant"}, true
	for name, o := range map[string]Options{"cookies": cookies, "headers": headers, "query": query} {
		h := newCache(t, o, up)
		pairs := []string{"Cookie", "lang=de", "X-Tenant", "a"}
		before := asked(t, h, "GET", "http://a.example/x?a=1", pairs...).Body.String()
		asked(t, h, "POST", "http://a.example/x?a=1")
		if w := asked(t, h, "GET", "http://a.example/x?a=1", pairs...); w.Body.String() == before {
			t.Errorf("%s: the old answer is still there", name)
		}
	}
}

// Nobody fills the book of purges by POSTs to URLs that nothing is known of.
func TestUnsafeMethodsPurgeWhatIsStored(t *testing.T) {
	h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response { return say(200, "") }})
	before := h.book.Now()
	for i := range 10 {
		asked(t, h, "POST", "http://a.example/"+strconv.Itoa(i))
	}
	if now := h.book.Now(); now != before {
		t.Errorf("%d purges", now-before)
	}
}

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
	h := reopen(t, filepath.Join(t.TempDir(), "cache"), up, Options{})
	before := h.journal.records
	asked(t, h, "POST", "http://a.example/x")
	if h.journal.records == before {
		t.Error("it is not in the journal")
	}
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
func large(t *testing.T, up *origin) (*Handler, *countingStore) {
	t.Helper()
	disk, err := store.OpenDisk(store.DiskOptions{Dir: t.TempDir(), Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	counting := &countingStore{Store: disk}
	o := Options{Memory: 1 << 20}
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
		}})
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
	h, disk := large(t, up)
	asked(t, h, "GET", "http://a.example/")
	o := h.memory.look("http://a.example/").objects[0]
	other := o.clone()
	other.stamp++
	head, err := other.encode("")
	if err != nil {
		t.Fatal(err)
	}
	w, err := disk.Create(t.Context(), o.disk, o.size)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(strings.Repeat("y", 400<<10)))
	if err := w.Commit(head); err != nil {
		t.Fatal(err)
	}
	if b, err := h.slow.open(t.Context(), o); err == nil {
		b.close()
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
	h, disk := large(t, up)
	if w := asked(t, h, "GET", "http://a.example/"); w.Body.Len() != len(body) {
		t.Errorf("%d bytes", w.Body.Len())
	}
	if n := disk.Stats().Objects; n != 0 || h.memory.entries() != 0 {
		t.Errorf("%d objects on disk, %d in memory", n, h.memory.entries())
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
	disk, _ := large(t, &origin{answer: answer})
	disk.largest = 2 << 20
	for name, h := range map[string]*Handler{
		"memory": newCache(t, Options{Memory: 1 << 20, Largest: 1 << 20}, &origin{answer: answer}),
		"disk":   disk,
	} {
		for range 2 {
			if w := asked(t, h, "GET", "http://a.example/"); w.Code != 200 || w.Body.Len() != size {
				t.Errorf("%s: %d, %d bytes", name, w.Code, w.Body.Len())
			}
		}
		if n := h.memory.entries(); n != 0 {
			t.Errorf("%s: %d are stored", name, n)
		}
	}
}

// An answer that a deadline of the request cuts off is not taken for whole.
func TestDeadlineCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response {
			return slowBody(say(200, "", "Cache-Control", "max-age=60"), 10, time.Second, nil)
		}})
		defer h.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		defer func() {
			if recover() != any(http.ErrAbortHandler) {
				t.Error("the client was not told")
			}
		}()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://a.example/", nil).WithContext(ctx))
	})
}

// A client that leaves just when its answer comes gets none at all.
func TestLeaderLeavesAtEveryMoment(t *testing.T) {
	for moment := range 12 {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int64
			h := newCache(t, Options{}, &origin{answer: func(n int, r *http.Request) *http.Response {
				select {
				case <-time.After(2 * time.Millisecond):
				case <-r.Context().Done():
				}
				kind := "private"
				if n%2 == 0 {
					kind = "max-age=60"
				}
				resp := slowBody(say(200, "", "Cache-Control", kind), 3, time.Millisecond, nil)
				open.Add(1)
				inner, once := resp.Body, new(sync.Once)
				resp.Body = struct {
					io.Reader
					io.Closer
				}{inner, closing(func() error { once.Do(func() { open.Add(-1) }); return inner.Close() })}
				return resp
			}})
			for i := range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(moment)*500*time.Microsecond)
				w := httptest.NewRecorder()
				func() {
					defer func() {
						if cause := recover(); cause != nil && cause != any(http.ErrAbortHandler) {
							panic(cause)
						} else if cause == nil && w.Body.String() != "piece piece piece " {
							t.Errorf("%d: an answer of %q that nothing cut off", moment, w.Body)
						}
					}()
					h.ServeHTTP(w, httptest.NewRequest("GET", "http://a.example/"+strconv.Itoa(i), nil).WithContext(ctx))
				}()
				cancel()
			}
			time.Sleep(2 * grace)
			synctest.Wait()
			if n := open.Load(); n != 0 || h.fills.Running() != 0 {
				t.Errorf("%d: %d bodies are open, %d journeys go on", moment, n, h.fills.Running())
			}
			h.Close()
		})
	}
}

// Close while journeys are under way ends them, and answers.
func TestCloseEndsJourneys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCache(t, Options{}, &origin{answer: func(_ int, r *http.Request) *http.Response {
			<-r.Context().Done()
			return nil
		}})
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- ask(h, "GET", "http://a.example/") }()
		synctest.Wait()
		began := time.Now()
		for range 2 {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
		if w := <-done; w.Code < 500 || time.Since(began) != closeTime {
			t.Errorf("%d after %v", w.Code, time.Since(began))
		}
	})
}

// A journey that Close ends while its leader does not listen leaves nobody waiting.
func TestCloseBeforeTheLeaderListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCache(t, Options{}, &origin{answer: func(_ int, r *http.Request) *http.Response { return nil }})
		defer h.Close()
		r := httptest.NewRequest("GET", "http://a.example/", nil)
		x := &exchange{h: h, w: httptest.NewRecorder(), r: r, set: h.rules.forRequest("/"), key: "k"}
		f, _ := h.fills.Join("k")
		f.Enter()
		j := h.journey(f, x, nil)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if j.hand(ended, say(200, ""), "private") {
			t.Error("nobody took it")
		}
		close(j.over)
		f.Leave()
		f.Finish()
	})
}

// The fields that an answer withholds from the cache reach the one who asked.
func TestWithheldFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response {
			time.Sleep(time.Second)
			return say(200, "x", "Cache-Control", `max-age=60, no-cache="Set-Cookie"`, "Set-Cookie", "sid=1", "Keep-Alive", "1", "Cache-Tag", "t")
		}})
		defer h.Close()
		answers, _ := crowd(h, 10, "http://a.example/")
		n := 0
		for _, w := range append(answers, asked(t, h, "GET", "http://a.example/")) {
			if w.Header().Get("Set-Cookie") != "" {
				n++
			}
			if w.Header()["Keep-Alive"] != nil || w.Header()["Cache-Tag"] != nil {
				t.Errorf("%v", w.Header())
			}
		}
		if n != 1 {
			t.Errorf("%d clients got the cookie", n)
		}
	})
}

// Who joins a body that takes longer than its lifetime gets a fresh one, and who
// joins in time an Age.
func TestSlowBodyGoesStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(int, *http.Request) *http.Response {
			return slowBody(say(200, "", "Cache-Control", "max-age=5"), 20, time.Second, nil)
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		var all sync.WaitGroup
		all.Go(func() { ask(h, "GET", "http://a.example/") })
		time.Sleep(3500 * time.Millisecond)
		all.Go(func() {
			if w := ask(h, "GET", "http://a.example/"); w.Header().Get("Age") != "3" {
				t.Errorf("Age %q", w.Header()["Age"])
			}
		})
		time.Sleep(4 * time.Second)
		all.Go(func() { ask(h, "GET", "http://a.example/") })
		all.Wait()
		if n := up.calls.Load(); n != 2 {
			t.Errorf("%d requests upstream", n)
		}
	})
}

// What the origin alone can judge reaches it, and an encoded answer has no parts.
func TestPreconditionsAndParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.Repeat(`{"comments": 12}`, 300)
		up := &origin{answer: func(_ int, r *http.Request) *http.Response {
			if r.Header.Get("If-Match") == `"2"` {
				return say(200, "two", "Etag", `"2"`)
			}
			return say(200, body, "Cache-Control", "max-age=60", "Content-Type", "application/json", "Etag", `"1"`, "Repr-Digest", "sha-256=:eA==:")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		for range 2 {
			asked(t, h, "GET", "http://a.example/", "Accept-Encoding", "br")
			synctest.Wait()
		}
		if w := ask(h, "GET", "http://a.example/", "If-Match", `"2"`); w.Code != 200 || w.Body.String() != "two" {
			t.Errorf("If-Match: %d %q", w.Code, w.Body)
		}
		w := ask(h, "GET", "http://a.example/", "Accept-Encoding", "br")
		if w.Header().Get("Content-Encoding") != "br" || w.Header()["Repr-Digest"] != nil {
			t.Errorf("%v", w.Header())
		}
		w = ask(h, "GET", "http://a.example/", "Accept-Encoding", "br", "Range", "bytes=0-15")
		if w.Code != 206 || w.Header().Get("Content-Encoding") != "" || w.Body.String() != body[:16] {
			t.Errorf("part: %d %v %q", w.Code, w.Header(), w.Body)
		}
	})
}

// Errors of what bypasses the cache say what was decided as well, and HEAD gets
// a stale answer when the upstream fails.
func TestErrorsOnTheWayPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			if n > 1 {
				return nil
			}
			return say(200, "good", "Cache-Control", "max-age=1, stale-if-error=60")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		asked(t, h, "GET", "http://a.example/")
		time.Sleep(5 * time.Second)
		if w := ask(h, "HEAD", "http://a.example/"); w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Status"), "stale-if-error") {
			t.Errorf("HEAD: %d %v", w.Code, w.Header())
		}
		if w := ask(h, "GET", "http://a.example/", "Cookie", "a=b"); w.Code != 502 || isHit(t, w) {
			t.Errorf("bypass: %d %v", w.Code, w.Header())
		}
		if d := h.Recent("", 1); d[0].Outcome != "error" {
			t.Errorf("%+v", d)
		}
	})
}

// Interim answers have no fields of their connection, and HTTP/1.0 gets none.
func TestInterim(t *testing.T) {
	h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response { return nil }})
	w := &interims{ResponseRecorder: httptest.NewRecorder()}
	w.Header().Set("Link", "own")
	x := &exchange{h: h, w: w, r: httptest.NewRequest("GET", "http://a.example/", nil)}
	for _, i := range []hint{
		{100, http.Header{}},
		{103, http.Header{"Link": {"a\r\nb"}}},
		{103, http.Header{"Link": {"theirs"}, "Keep-Alive": {"1"}}},
	} {
		x.interim(i)
	}
	x.r.ProtoMajor, x.r.ProtoMinor = 1, 0
	x.interim(hint{103, http.Header{}})
	if len(w.seen) != 1 || w.seen[0].Get("Link") != "theirs" || w.seen[0]["Keep-Alive"] != nil || w.Header().Get("Link") != "own" {
		t.Errorf("%v, then %v", w.seen, w.Header())
	}
}

type interims struct {
	*httptest.ResponseRecorder
	seen []http.Header
}

func (w *interims) WriteHeader(int) { w.seen = append(w.seen, w.Header().Clone()) }

// What another machine asked for before it heard of a purge of ours is older
// than that purge, whatever else it had heard.
func TestOrderOfSharedPurges(t *testing.T) {
	held := make(chan []byte, 1)
	o := Options{}
	o.To = []string{"http://127.0.0.1:1"}
	memory := store.NewMemory(1 << 20)
	defer memory.Close()
	h, err := New(o, Deps{
		Transport: &origin{}, Shared: memory, ErrorLog: slog.New(slog.DiscardHandler),
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
	theirs.At = h.shared.time("other")
	if h.book.State(&theirs, nil) != purge.Gone {
		t.Error("what may be older than the purge is taken for younger")
	}
	h.Message(<-held, false)
	h.Message([]byte(`{"id":"later","hello":true}`), false)
	if theirs.At = h.shared.time("later"); h.book.State(&theirs, nil) != purge.Valid {
		t.Error("what is younger is taken for older")
	}
	if h.shared.epoch(h.book.Now()) != "later" {
		t.Error("what this machine asks for has no place")
	}
}

// A purge that others could not be told of does not make what they store old for ever.
func TestPurgeThatCannotBePublished(t *testing.T) {
	down := errors.New("down")
	o := Options{}
	o.To = []string{"http://127.0.0.1:1"}
	h, err := New(o, Deps{Transport: &origin{}, Publish: func(_ context.Context, m []byte) error {
		if strings.Contains(string(m), "hello") {
			return nil
		}
		return down
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Purge(t.Context(), purge.Selector{All: true}); !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
	h.Message([]byte(`{"id":"later","hello":true}`), false)
	if theirs := (purge.Object{URL: "http://a.example/", At: h.shared.time("later")}); h.book.State(&theirs, nil) != purge.Valid {
		t.Error("it is old")
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
	if e := h.Explain(httptest.NewRequest("GET", "http://a.example/", nil)); e.Outcome != "hit" || e.Tier != "disk" || h.memory.entries() != 0 {
		t.Errorf("%+v, %d in memory", e, h.memory.entries())
	}
}

// Keys and URLs of any length take no more room than short ones.
func TestLongURLsInTheLog(t *testing.T) {
	h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response { return say(200, "x", "Cache-Control", "private") }})
	target := "http://a.example/?" + strings.Repeat("q", 8<<10)
	asked(t, h, "GET", target)
	if d := h.Recent("", 1); len(d[0].URL) > maxDecisionURL {
		t.Errorf("%d bytes", len(d[0].URL))
	}
	if e := h.Explain(httptest.NewRequest("GET", target, nil)); e.Outcome != "pass" || !strings.Contains(e.Reason, "private") {
		t.Errorf("%+v", e)
	}
}

// What is no UTF-8 comes back from the slower tiers byte for byte.
func TestRecordOfBytes(t *testing.T) {
	for _, text := range []string{"caf\xe9", "caf\u00e9", "\xff\u1234", "plain"} {
		o := &object{
			status: 200, fields: fieldsOf(http.Header{"X-Name": {text, "b"}}), vary: []string{"X-Kind"}, by: []string{text},
			owner: purge.Object{URL: "http://a.example/?" + text, Host: "a.example", Tags: []string{text}},
		}
		head, err := o.encode("")
		if err != nil {
			t.Fatal(err)
		}
		rec, err := decodeRecord(head)
		if err != nil {
			t.Fatal(err)
		}
		got := rec.object(0)
		if got.get("X-Name") != text || got.by[0] != text || got.owner.URL != o.owner.URL || got.owner.Tags[0] != text {
			t.Errorf("%q came back as %q", text, got.all("X-Name"))
		}
	}
	if _, err := decodeRecord([]byte(`{"v":1,"status":200,"bytes":true,"url":"\u1234"}`)); err == nil {
		t.Error("a byte of 0x1234")
	}
}

// Server is ours to set, and of trailers only what may come late is passed on.
func TestFieldsThatAreOurs(t *testing.T) {
	h := newCache(t, Options{}, &origin{answer: func(_ int, r *http.Request) *http.Response {
		if r.URL.Path == "/trailer" {
			resp := say(200, "x", "Cache-Control", "private")
			resp.ContentLength = -1
			resp.Trailer = http.Header{"X-Sum": {"1"}, "Content-Length": {"5"}, "Set-Cookie": {"a=b"}}
			return resp
		}
		return say(200, "x", "Cache-Control", "max-age=60", "Server", "theirs")
	}})
	for range 2 {
		if w := asked(t, h, "GET", "http://a.example/"); w.Header()["Server"] != nil {
			t.Errorf("%v", w.Header())
		}
	}
	w := asked(t, h, "GET", "http://a.example/trailer")
	head := w.Header()
	if head.Get(http.TrailerPrefix+"X-Sum") != "1" || head[http.TrailerPrefix+"Set-Cookie"] != nil || head[http.TrailerPrefix+"Content-Length"] != nil {
		t.Errorf("%v", head)
	}
}

// A 204 has no length, whatever the upstream says (RFC 9110, 8.6).
func TestNoContent(t *testing.T) {
	for _, control := range []string{"private", "max-age=60"} {
		h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response {
			return say(204, "", "Cache-Control", control)
		}})
		for range 2 {
			if w := asked(t, h, "GET", "http://a.example/"); w.Code != 204 || w.Header()["Content-Length"] != nil {
				t.Errorf("%s: %d %v", control, w.Code, w.Header())
			}
		}
	}
}
