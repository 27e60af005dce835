package cache

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/cache/fetch"
)

// cut is a body that breaks off after some bytes, each piece after a pause.
type cut struct {
	left  int
	pause time.Duration
	err   error
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.err
	}
	time.Sleep(c.pause)
	n := min(c.left, len(p), 1<<10)
	c.left -= n
	copy(p, strings.Repeat("n", n))
	return n, nil
}

func (c *cut) Close() error { return nil }

// TestCutBody: a stored answer hides a body that breaks off before anyone has got
// any of it, whether or not its length was announced.
func TestCutBody(t *testing.T) {
	broken := errors.New("broke off")
	for name, c := range map[string]struct {
		announced int64 // -1: not
		body      cut
		want      string // the first byte; "": none
		code      int    // 0: cut off
	}{
		"small, chunked":             {-1, cut{left: 10, err: broken}, "o", 200},
		"nothing, chunked":           {-1, cut{err: broken}, "o", 200},
		"small, announced":           {100, cut{left: 10, err: broken}, "o", 200},
		"large, early":               {1 << 20, cut{left: 20 << 10, err: broken}, "o", 200},
		"larger than memory, early":  {100 << 20, cut{left: 20 << 10, err: broken}, "o", 200},
		"large, early, chunked":      {-1, cut{left: fetch.LookAhead, err: broken}, "o", 200},
		"large, late":                {1 << 20, cut{left: 100 << 10, err: broken}, "n", 0},
		"large, late, chunked":       {-1, cut{left: 100 << 10, err: broken}, "n", 0},
		"slow":                       {-1, cut{left: 2 << 10, pause: fetch.LookAheadTime, err: broken}, "n", 0},
		"whole, chunked":             {-1, cut{left: 10, err: io.EOF}, "n", 200},
		"whole, large":               {40 << 10, cut{left: 40 << 10, err: io.EOF}, "n", 200},
		"whole, chunked, large":      {-1, cut{left: 100 << 10, err: io.EOF}, "n", 200},
		"whole, larger than a piece": {-1, cut{left: fetch.LookAhead, err: io.EOF}, "n", 200},
	} {
		for _, disk := range []bool{false, true} {
			if !disk && c.announced > 1<<20 {
				continue // it is not kept, and passed on as it comes
			}
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir() + "/cache"
				synctest.Test(t, func(t *testing.T) {
					up := &origin{answer: func(n int, _ *http.Request) *http.Response {
						if n == 1 {
							return say(200, "old", "Cache-Control", "max-age=1, stale-if-error=600")
						}
						resp := say(200, "", "Cache-Control", "max-age=1")
						resp.Header.Del("Content-Length")
						body := c.body
						resp.Body, resp.ContentLength = &body, c.announced
						return resp
					}}
					var h *Handler
					if disk {
						h = reopen(t, dir, up, Options{})
					} else {
						h = newCache(t, Options{}, up)
					}
					defer h.Close()
					ask(h, "GET", "http://a.example/")
					time.Sleep(2 * time.Second)
					w := ask(h, "GET", "http://a.example/")
					got := w.Body.String()
					if len(got) > 1 {
						got = got[:1]
					}
					if got != c.want || w.Code != c.code {
						t.Errorf("disk %v: %d %q, want %d %q; %v", disk, w.Code, got, c.code, c.want, w.Header()["Cache-Status"])
					}
				})
			})
		}
	}
}

// TestNoLookAhead: where nothing can hide a failure, nobody waits for more.
func TestNoLookAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(int, *http.Request) *http.Response {
			resp := say(200, "", "Cache-Control", "max-age=1")
			resp.Body, resp.ContentLength = &cut{left: 4 << 10, pause: fetch.LookAheadTime / 2, err: io.EOF}, -1
			return resp
		}}
		h := newCache(t, Options{}, up)
		defer h.Close()
		began := time.Now()
		w := &firstByte{header: http.Header{}}
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://a.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(w, r)
		if d := w.at.Sub(began); d != fetch.LookAheadTime/2 {
			t.Errorf("the first byte came after %v", d)
		}
	})
}

// firstByte notes when the first byte of a body is written.
type firstByte struct {
	header http.Header
	at     time.Time
}

func (f *firstByte) Header() http.Header { return f.header }
func (f *firstByte) WriteHeader(int)     {}
func (f *firstByte) Write(p []byte) (int, error) {
	if f.at.IsZero() {
		f.at = time.Now()
	}
	return len(p), nil
}
