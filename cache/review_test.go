package cache

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/cache/fetch"
	"millrace/internal/wire/field"
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

// Nobody fills the purge index by POSTs to URLs that nothing is known of.
func TestUnsafeMethodsPurgeWhatIsStored(t *testing.T) {
	h := newCache(t, Options{}, &origin{answer: func(int, *http.Request) *http.Response { return say(200, "") }})
	before := h.purges.Index().Now()
	for i := range 10 {
		asked(t, h, "POST", "http://a.example/"+strconv.Itoa(i))
	}
	if now := h.purges.Index().Now(); now != before {
		t.Errorf("%d purges", now-before)
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
			time.Sleep(2 * fetch.Linger)
			synctest.Wait()
			if n := open.Load(); n != 0 || h.fetches.Running() != 0 {
				t.Errorf("%d: %d bodies are open, %d fetches go on", moment, n, h.fetches.Running())
			}
			h.Close()
		})
	}
}

// Close while fetches are under way ends them, and answers.
func TestCloseEndsFetches(t *testing.T) {
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
	for _, i := range []fetch.Hint{
		{Status: 100},
		{Status: 103, Fields: field.Lines{{Name: "Link", Value: "a\r\nb"}}},
		{Status: 103, Fields: field.Lines{{Name: "Link", Value: "theirs"}, {Name: "Keep-Alive", Value: "1"}}},
	} {
		x.interim(i)
	}
	x.r.ProtoMajor, x.r.ProtoMinor = 1, 0
	x.interim(fetch.Hint{Status: 103})
	if len(w.seen) != 1 || w.seen[0].Get("Link") != "theirs" || w.seen[0]["Keep-Alive"] != nil || w.Header().Get("Link") != "own" {
		t.Errorf("%v, then %v", w.seen, w.Header())
	}
}

type interims struct {
	*httptest.ResponseRecorder
	seen []http.Header
}

func (w *interims) WriteHeader(int) { w.seen = append(w.seen, w.Header().Clone()) }

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
