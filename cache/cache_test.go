package cache

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"go.uber.org/goleak"

	"millrace/cache/purge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// origin is an upstream in memory.
type origin struct {
	calls  atomic.Int64
	answer func(n int, r *http.Request) *http.Response // nil: it cannot be reached
	last   atomic.Pointer[http.Request]
}

func (o *origin) RoundTrip(r *http.Request) (*http.Response, error) {
	n := int(o.calls.Add(1))
	o.last.Store(r)
	resp := o.answer(n, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, errors.New("connection refused")
	}
	resp.Request = r
	return resp, nil
}

// say is an answer with a header in pairs.
func say(status int, body string, pairs ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	if h.Get("Date") == "" {
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		StatusCode: status, Header: h, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// newCache makes a cache in front of an origin. It is closed with the test, or
// by the caller within a bubble of synctest.
func newCache(t *testing.T, o Options, up *origin) *Handler {
	t.Helper()
	o.To = []string{"http://127.0.0.1:1"}
	h, err := New(o, Deps{Transport: up, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// ask sends a request through the cache.
func ask(h http.Handler, method, target string, pairs ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if cause := recover(); cause != nil && cause != any(http.ErrAbortHandler) {
				panic(cause)
			} else if cause != nil {
				w.Code = 0
			}
		}()
		h.ServeHTTP(w, r)
	}()
	return w
}

// settle waits until no fetch is under way.
func settle(t *testing.T, h *Handler) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); h.fetches.Running() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a fetch does not end")
		}
	}
}

// status is our member of Cache-Status.
func status(t *testing.T, w *httptest.ResponseRecorder) httpsfv.Item {
	t.Helper()
	list, err := httpsfv.UnmarshalList(w.Header()["Cache-Status"])
	if err != nil || len(list) == 0 {
		t.Fatalf("Cache-Status %q: %v", w.Header()["Cache-Status"], err)
	}
	item, ok := list[len(list)-1].(httpsfv.Item)
	if !ok || item.Value != httpsfv.Token(statusName) {
		t.Fatalf("Cache-Status %q does not end with this cache", w.Header()["Cache-Status"])
	}
	return item
}

func isHit(t *testing.T, w *httptest.ResponseRecorder) bool {
	t.Helper()
	hit, _ := status(t, w).Params.Get("hit")
	return hit == true
}

func TestHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			return say(200, "answer "+strconv.Itoa(n), "Cache-Control", "max-age=60", "Etag", `"1"`, "Content-Type", "text/x-odd")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		if w := ask(h, "GET", "http://a.example/x"); w.Body.String() != "answer 1" || isHit(t, w) || w.Header()["Age"] != nil {
			t.Errorf("first: %q %v", w.Body, w.Header())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w := ask(h, "GET", "http://a.example/x")
		if w.Body.String() != "answer 1" || !isHit(t, w) || w.Header().Get("Age") != "10" {
			t.Errorf("second: %q %v", w.Body, w.Header())
		}
		if ttl, _ := status(t, w).Params.Get("ttl"); ttl != int64(49) {
			t.Errorf("ttl %v", ttl)
		}
		if w := ask(h, "HEAD", "http://a.example/x"); w.Body.Len() != 0 || !isHit(t, w) || w.Header().Get("Content-Length") != "8" {
			t.Errorf("HEAD: %q %v", w.Body, w.Header())
		}
		if w := ask(h, "GET", "http://a.example/x", "If-None-Match", `"1"`); w.Code != 304 || !isHit(t, w) {
			t.Errorf("condition: %d %v", w.Code, w.Header())
		}
		if w := ask(h, "GET", "http://a.example/x", "Range", "bytes=2-4"); w.Code != 206 || w.Body.String() != "swe" {
			t.Errorf("range: %d %q", w.Code, w.Body)
		}
		if w := ask(h, "GET", "http://b.example/x"); isHit(t, w) {
			t.Error("another host got this one's answer")
		}
		time.Sleep(51 * time.Second)
		if w := ask(h, "GET", "http://a.example/x"); isHit(t, w) || w.Body.String() != "answer 3" {
			t.Errorf("after its lifetime: %q %v", w.Body, w.Header())
		}
	})
}

// crowd sends n requests at once and returns the answers and the longest wait.
func crowd(h http.Handler, n int, target string) ([]*httptest.ResponseRecorder, time.Duration) {
	began := time.Now()
	answers := make([]*httptest.ResponseRecorder, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { answers[i] = ask(h, "GET", target) })
	}
	all.Wait()
	return answers, time.Since(began)
}

// The time in these tests is the bubble's: exact.
func TestStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
			time.Sleep(300 * time.Millisecond)
			return say(200, "one", "Cache-Control", "max-age=60")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		answers, took := crowd(h, 100, "http://a.example/")
		if up.calls.Load() != 1 || took != 300*time.Millisecond {
			t.Errorf("%d requests upstream, the slowest client waited %v", up.calls.Load(), took)
		}
		for _, w := range answers {
			if w.Body.String() != "one" || w.Code != 200 {
				t.Fatalf("%d %q", w.Code, w.Body)
			}
		}
	})
}

func TestStampedeOfWhatIsNotToBeShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			time.Sleep(300 * time.Millisecond)
			return say(200, strconv.Itoa(n), "Cache-Control", "private")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		answers, took := crowd(h, 50, "http://a.example/")
		if up.calls.Load() != 50 || took != 600*time.Millisecond {
			t.Errorf("first wave: %d requests upstream, %v", up.calls.Load(), took)
		}
		seen := map[string]bool{}
		for _, w := range answers {
			if seen[w.Body.String()] {
				t.Errorf("two clients got the answer %q", w.Body)
			}
			seen[w.Body.String()] = true
		}
		if _, took = crowd(h, 50, "http://a.example/"); took != 300*time.Millisecond || up.calls.Load() != 100 {
			t.Errorf("second wave: %v, %d requests", took, up.calls.Load())
		}
	})
}

func TestWithoutLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
			time.Sleep(100 * time.Millisecond)
			return say(200, "plain", "Content-Type", "application/json")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		crowd(h, 20, "http://a.example/")
		if n := up.calls.Load(); n != 1 {
			t.Errorf("%d requests upstream for those who came together", n)
		}
		ask(h, "GET", "http://a.example/")
		if n := up.calls.Load(); n != 2 {
			t.Errorf("%d requests upstream: it was kept without a lifetime", n)
		}
		if e := h.Explain(httptest.NewRequest("GET", "http://a.example/", nil)); e.Outcome != "miss" || !strings.Contains(e.Hint, "--ttl") {
			t.Errorf("%+v", e)
		}
		kept := newCache(t, Options{TTL: time.Minute}, up)
		defer kept.Close()
		ask(kept, "GET", "http://a.example/")
		if w := ask(kept, "GET", "http://a.example/"); !isHit(t, w) {
			t.Error("ttl did not keep it")
		}
	})
}

// slowBody is a body that comes in pieces.
func slowBody(resp *http.Response, pieces int, pause time.Duration, end error) *http.Response {
	r, w := io.Pipe()
	resp.Body, resp.ContentLength = r, -1
	resp.Header.Del("Content-Length")
	go func() {
		for range pieces {
			if _, err := w.Write([]byte("piece ")); err != nil {
				return
			}
			time.Sleep(pause)
		}
		w.CloseWithError(end)
	}()
	return resp
}

// watcher is a client that notes when its first byte came.
type watcher struct {
	*httptest.ResponseRecorder
	first time.Time
}

func (w *watcher) Write(p []byte) (int, error) {
	if w.first.IsZero() {
		w.first = time.Now()
	}
	return w.ResponseRecorder.Write(p)
}

func TestFollowerStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
			return slowBody(say(200, "", "Cache-Control", "max-age=60"), 10, 100*time.Millisecond, nil)
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		var both sync.WaitGroup
		both.Go(func() { ask(h, "GET", "http://a.example/") })
		time.Sleep(450 * time.Millisecond)
		came := time.Now()
		late := &watcher{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(late, httptest.NewRequest("GET", "http://a.example/", nil))
		if wait := late.first.Sub(came); wait != 0 {
			t.Errorf("the first byte took %v", wait)
		}
		both.Wait()
		if got := strings.Count(late.Body.String(), "piece "); got != 10 || up.calls.Load() != 1 {
			t.Errorf("%d pieces, %d requests upstream", got, up.calls.Load())
		}
	})
}

func TestBrokenFillIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			if n == 1 {
				return slowBody(say(200, "", "Cache-Control", "max-age=60"), 3, time.Millisecond, errors.New("reset"))
			}
			return say(200, "whole", "Cache-Control", "max-age=60")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		if w := ask(h, "GET", "http://a.example/"); w.Code != 0 {
			t.Errorf("the client was not told: %d %q", w.Code, w.Body)
		}
		if w := ask(h, "GET", "http://a.example/"); w.Body.String() != "whole" {
			t.Errorf("%q", w.Body)
		}
	})
}

func TestLeaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
			time.Sleep(time.Second)
			return say(200, "done", "Cache-Control", "max-age=60")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://a.example/", nil).WithContext(ctx))
		}()
		time.Sleep(2 * time.Second)
		if w := ask(h, "GET", "http://a.example/"); !isHit(t, w) || up.calls.Load() != 1 {
			t.Errorf("the fetch ended with its client: %v", w.Header())
		}
	})
}

func TestStaleWhileRevalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			time.Sleep(500 * time.Millisecond)
			return say(200, strconv.Itoa(n), "Cache-Control", "max-age=1, stale-while-revalidate=60")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		ask(h, "GET", "http://a.example/")
		time.Sleep(3 * time.Second)
		answers, took := crowd(h, 20, "http://a.example/")
		if took != 0 {
			t.Errorf("the slowest waited %v", took)
		}
		for _, w := range answers {
			if w.Body.String() != "1" {
				t.Errorf("%q", w.Body)
			}
		}
		time.Sleep(600 * time.Millisecond)
		if up.calls.Load() != 2 {
			t.Errorf("%d requests upstream, want one refresh", up.calls.Load())
		}
		if w := ask(h, "GET", "http://a.example/"); w.Body.String() != "2" || !isHit(t, w) {
			t.Errorf("after the refresh: %q", w.Body)
		}
	})
}

func TestStaleIfError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			switch n {
			case 1:
				return say(200, "good", "Cache-Control", "max-age=1")
			case 2:
				return say(503, "bad")
			}
			return nil
		}}
		h := newCache(t, Options{StaleIfError: time.Minute}, up)
		defer h.Close()
		ask(h, "GET", "http://a.example/")
		time.Sleep(5 * time.Second)
		for i := range 2 {
			if w := ask(h, "GET", "http://a.example/"); w.Code != 200 || w.Body.String() != "good" {
				t.Errorf("%d: %d %q", i, w.Code, w.Body)
			}
		}
		time.Sleep(2 * time.Minute)
		if w := ask(h, "GET", "http://a.example/"); w.Code != 502 {
			t.Errorf("too late: %d", w.Code)
		}
	})
}

func TestValidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(n int, r *http.Request) *http.Response {
			if r.Header.Get("If-None-Match") == `"v1"` {
				return say(304, "", "Cache-Control", "max-age=10", "X-Said", "304", "Etag", `"v1"`)
			}
			return say(200, "body", "Cache-Control", "max-age=1", "Etag", `"v1"`, "X-Said", "200")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		ask(h, "GET", "http://a.example/")
		time.Sleep(5 * time.Second)
		w := ask(h, "GET", "http://a.example/")
		if w.Code != 200 || w.Body.String() != "body" || w.Header().Get("X-Said") != "304" || w.Header().Get("Content-Length") != "4" {
			t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
		}
		time.Sleep(5 * time.Second)
		if w := ask(h, "GET", "http://a.example/"); !isHit(t, w) || up.calls.Load() != 2 {
			t.Errorf("its life was not renewed: %v", w.Header())
		}
	})
}

func TestVary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, r *http.Request) *http.Response {
			time.Sleep(100 * time.Millisecond)
			return say(200, r.Header.Get("X-Kind"), "Cache-Control", "max-age=60", "Vary", "X-Kind")
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		var all sync.WaitGroup
		for i := range 20 {
			kind := strconv.Itoa(i % 2)
			all.Go(func() {
				if w := ask(h, "GET", "http://a.example/", "X-Kind", kind); w.Body.String() != kind {
					t.Errorf("%q got %q", kind, w.Body)
				}
			})
		}
		all.Wait()
		if n := up.calls.Load(); n > 11 {
			t.Errorf("%d requests upstream", n)
		}
		before := up.calls.Load()
		for i := range 4 {
			kind := strconv.Itoa(i % 2)
			if w := ask(h, "GET", "http://a.example/", "X-Kind", kind); w.Body.String() != kind || !isHit(t, w) {
				t.Errorf("%q got %q %v", kind, w.Body, w.Header())
			}
		}
		if up.calls.Load() != before {
			t.Error("stored variants were fetched again")
		}
	})
}

func TestPurge(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60, stale-while-revalidate=600", "Cache-Tag", "news, front", "Surrogate-Key", "a b")
	}}
	h := newCache(t, Options{}, up)
	for i, s := range []purge.Selector{
		{URL: "http://a.example/p?q=1", Hard: true},
		{Prefix: "http://a.example/p", Hard: true},
		{Tag: "front", Hard: true},
		{Tag: "b", Hard: true},
		{Host: "a.example", Hard: true},
		{Glob: "*/p*", Hard: true},
		{All: true, Hard: true},
	} {
		if w := asked(t, h, "GET", "http://a.example/p?q=1"); w.Header()["Cache-Tag"] != nil || w.Header()["Surrogate-Key"] != nil {
			t.Error("tags reach the client")
		}
		if w := asked(t, h, "GET", "http://a.example/p?q=1"); !isHit(t, w) {
			t.Errorf("%d: not stored", i)
		}
		if err := h.Purge(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if w := asked(t, h, "GET", "http://a.example/p?q=1"); isHit(t, w) {
			t.Errorf("%+v: the old answer came back", s)
		}
	}
	if err := h.Purge(t.Context(), purge.Selector{}); err == nil {
		t.Error("nothing was purged without an error")
	}
	// Softly: the stale answer may still be used while it is refreshed.
	n := up.calls.Load()
	if err := h.Purge(t.Context(), purge.Selector{All: true}); err != nil {
		t.Fatal(err)
	}
	if w := asked(t, h, "GET", "http://a.example/p?q=1"); !isHit(t, w) {
		t.Errorf("soft: %v", w.Header())
	}
	for deadline := time.Now().Add(10 * time.Second); up.calls.Load() == n && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		asked(t, h, "GET", "http://a.example/p?q=1")
	}
	if up.calls.Load() == n {
		t.Error("it was never refreshed")
	}
}

func TestUnsafeMethodsInvalidate(t *testing.T) {
	up := &origin{answer: func(n int, r *http.Request) *http.Response {
		if r.Method == "POST" && strings.HasSuffix(r.URL.Path, "fail") {
			return say(500, "")
		}
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60", "Location", "/other", "Content-Location", "http://evil.example/x")
	}}
	h := newCache(t, Options{}, up)
	for _, target := range []string{"http://a.example/x", "http://a.example/other", "http://a.example/fail"} {
		asked(t, h, "GET", target)
		asked(t, h, "POST", "http://a.example/x")
		if hit := isHit(t, asked(t, h, "GET", target)); hit != strings.HasSuffix(target, "fail") {
			t.Errorf("%s after POST /x: hit %v", target, hit)
		}
	}
	asked(t, h, "POST", "http://a.example/fail")
	if !isHit(t, asked(t, h, "GET", "http://a.example/fail")) {
		t.Error("a request that failed changed something")
	}
}

func TestCORS(t *testing.T) {
	up := &origin{answer: func(_ int, r *http.Request) *http.Response {
		return say(200, r.Header.Get("Origin"), "Cache-Control", "max-age=60", "Vary", "Origin", "Access-Control-Allow-Origin", "https://wrong.example")
	}}
	o := Options{}
	o.CORS.Origins = []string{"https://blog.example", "https://shop.example"}
	h := newCache(t, o, up)
	for i, from := range []string{"https://blog.example", "https://shop.example", "https://evil.example", ""} {
		var pairs []string
		if from != "" {
			pairs = []string{"Origin", from}
		}
		w := asked(t, h, "GET", "http://a.example/", pairs...)
		want := from
		if i >= 2 {
			want = ""
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != want || w.Body.Len() != 0 {
			t.Errorf("%q: allowed %q, the upstream saw %q", from, got, w.Body)
		}
		if isHit(t, w) != (i > 0) {
			t.Errorf("%q: hit %v", from, isHit(t, w))
		}
	}
	w := asked(t, h, "OPTIONS", "http://a.example/", "Origin", "https://blog.example", "Access-Control-Request-Method", "GET")
	if w.Code != 204 || up.calls.Load() != 1 {
		t.Errorf("preflight: %d, %d requests upstream", w.Code, up.calls.Load())
	}
}

func TestCompression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.Repeat(`{"comments": 12, "url": "https://blog.example/post"}`, 100)
		up := &origin{answer: func(_ int, _ *http.Request) *http.Response {
			return say(200, body, "Cache-Control", "max-age=60", "Content-Type", "application/json", "Etag", `"x"`)
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		ask(h, "GET", "http://a.example/")
		ask(h, "GET", "http://a.example/", "Accept-Encoding", "gzip, br")
		synctest.Wait()
		w := ask(h, "GET", "http://a.example/", "Accept-Encoding", "gzip, br")
		if w.Header().Get("Content-Encoding") != "br" || w.Body.Len() > len(body)/4 || w.Header().Get("Etag") != `W/"x"` {
			t.Errorf("%v, %d bytes", w.Header(), w.Body.Len())
		}
		w = ask(h, "GET", "http://a.example/")
		if w.Header().Get("Content-Encoding") != "" || w.Body.String() != body || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("plain: %v", w.Header())
		}
		if w := ask(h, "GET", "http://a.example/", "Accept-Encoding", "br", "If-None-Match", `W/"x"`); w.Code != 304 {
			t.Errorf("condition: %d", w.Code)
		}
	})
}

func TestOnlyIfCached(t *testing.T) {
	h := newCache(t, Options{Preset: "rfc9111"}, &origin{answer: func(int, *http.Request) *http.Response { return say(200, "") }})
	if w := ask(h, "GET", "http://a.example/", "Cache-Control", "only-if-cached"); w.Code != 504 {
		t.Errorf("%d", w.Code)
	}
}
