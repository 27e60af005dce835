package cache

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// files is an upstream with one large file, of which it serves ranges. What is asked
// for as a whole comes up to held at first, and the rest when it is let go.
type files struct {
	body         string
	held         int
	let          chan struct{}
	whole, parts atomic.Int32
	asked        atomic.Pointer[string] // the last Range
}

func newFiles(size, held int) *files {
	return &files{body: strings.Repeat("0123456789", size/10), held: held, let: make(chan struct{})}
}

func (f *files) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Control", "max-age=600")
	w.Header().Set("Etag", `"1"`)
	w.Header().Set("Content-Type", "text/plain")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(f.body))
	resp := w.Result()
	resp.Request = r
	if resp.ContentLength < 0 {
		resp.ContentLength, _ = strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64)
	}
	if line := r.Header.Get("Range"); line != "" {
		f.parts.Add(1)
		f.asked.Store(&line)
		return resp, nil
	}
	f.whole.Add(1)
	if resp.StatusCode == http.StatusOK {
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(f.body[:f.held]), waitFor{f.let}, strings.NewReader(f.body[f.held:])))
	}
	return resp, nil
}

// waitFor is nothing, but not before it is let go.
type waitFor struct{ let chan struct{} }

func (w waitFor) Read([]byte) (int, error) { <-w.let; return 0, io.EOF }

func rangeCache(t *testing.T, o Options, f *files) *Handler {
	t.Helper()
	o.To = []string{"http://127.0.0.1:1"}
	h, err := New(o, Deps{Transport: f, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestRangeOnMiss: a range is sent as soon as it is there, and all is kept.
func TestRangeOnMiss(t *testing.T) {
	const size = 4_000_000
	for _, c := range []struct {
		line, more string
		code       int
		length     int
		content    string // Content-Range
	}{
		{"bytes=10-19", "", 206, 10, "bytes 10-19/4000000"},
		{"bytes=0-99999", "", 206, 100_000, "bytes 0-99999/4000000"},
		{"bytes=10-19", `"1"`, 206, 10, "bytes 10-19/4000000"},
		{"bytes=4000000-", "", 416, 0, "bytes */4000000"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(size, 200_000)
			h := rangeCache(t, Options{Memory: 256 << 20}, f)
			defer h.Close()
			fields := []string{"Range", c.line}
			if c.more != "" {
				fields = append(fields, "If-Range", c.more)
			}
			w := ask(h, "GET", "http://a.example/", fields...) // comes back while the rest is held
			if w.Code != c.code || w.Body.Len() != c.length || w.Header().Get("Content-Range") != c.content {
				t.Errorf("%s: %d, %d bytes, %q; %v", c.line, w.Code, w.Body.Len(), w.Header().Get("Content-Range"), w.Header()["Cache-Status"])
			}
			if c.length > 0 && !strings.HasPrefix(w.Body.String(), "0123456789") {
				t.Errorf("%s: %.20q", c.line, w.Body)
			}
			close(f.let)
			synctest.Wait()
			w = ask(h, "GET", "http://a.example/", "Range", "bytes=-5")
			if w.Code != 206 || w.Body.String() != "56789" || !isHit(t, w) || f.whole.Load() != 1 || f.parts.Load() != 0 {
				t.Errorf("then: %d %.20q %v, asked %d times", w.Code, w.Body, w.Header()["Cache-Status"], f.whole.Load())
			}
		})
	}
}

// TestWholeOnMiss: what is not a single range of this answer gets all of it.
func TestWholeOnMiss(t *testing.T) {
	for _, fields := range [][]string{
		{"Range", "bytes=10-19,30-39"}, {"Range", "lines=1-2"}, {"Range", "bytes=19-10"}, {"Range", "bytes=10-19", "If-Range", `"2"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(400_000, 100)
			close(f.let)
			h := rangeCache(t, Options{Memory: 256 << 20}, f)
			defer h.Close()
			if w := ask(h, "GET", "http://a.example/", fields...); w.Code != 200 || w.Body.Len() != 400_000 {
				t.Errorf("%q: %d, %d bytes", fields, w.Code, w.Body.Len())
			}
		})
	}
}

// TestFarRange: a range far from what has come is asked for by itself.
func TestFarRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(20_000_000, 200_000)
		h := rangeCache(t, Options{Memory: 1 << 30}, f)
		defer h.Close()
		w := ask(h, "GET", "http://a.example/", "Range", "bytes=19000000-19000009")
		if w.Code != 206 || w.Body.String() != "0123456789" || w.Header().Get("Content-Range") != "bytes 19000000-19000009/20000000" || f.parts.Load() != 1 {
			t.Errorf("%d %.20q %q, %d ranges", w.Code, w.Body, w.Header().Get("Content-Range"), f.parts.Load())
		}
		if n := len(w.Header()["Cache-Status"]); n != 1 {
			t.Errorf("Cache-Status %q", w.Header()["Cache-Status"])
		}
		close(f.let)
		synctest.Wait()
		if w := ask(h, "GET", "http://a.example/"); w.Code != 200 || w.Body.Len() != 20_000_000 || !isHit(t, w) {
			t.Errorf("then: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header()["Cache-Status"])
		}
	})
}

// TestRangeOfTooLarge: of what is not kept only the range is fetched.
func TestRangeOfTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(4_000_000, 0)
		h := rangeCache(t, Options{Memory: 256 << 20, Largest: 1 << 20}, f)
		defer h.Close()
		for i := range 3 { // the whole never comes: nobody may wait for it
			w := ask(h, "GET", "http://a.example/", "Range", "bytes=3000000-3000009")
			if w.Code != 206 || w.Body.String() != "0123456789" || *f.asked.Load() != "bytes=3000000-3000009" {
				t.Errorf("%d: %d %.20q", i, w.Code, w.Body)
			}
		}
		if f.whole.Load() != 1 || f.parts.Load() != 3 {
			t.Errorf("asked %d times for all, %d for the range", f.whole.Load(), f.parts.Load())
		}
		close(f.let)
	})
}
