package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millrace/internal/upstream"
)

// headed notes the header that interim answers are written with.
type headed struct {
	http.ResponseWriter
	was []string
}

func (h *headed) WriteHeader(int) { h.was = append(h.was, fmt.Sprint(h.Header()["Content-Length"])) }

// TestInterimIsCopied: net/http reads a header with a Content-Length from a copy, so a
// handler may go on with it when its stream was reset while it was being sent.
func TestInterimIsCopied(t *testing.T) {
	for _, c := range []struct {
		major  int
		length []string
		want   string
	}{{1, nil, "[]"}, {2, nil, "[0]"}, {2, []string{"7"}, "[0]"}, {3, nil, "[]"}} {
		rw := &headed{ResponseWriter: httptest.NewRecorder()}
		w := &writer{rw: rw, r: &http.Request{ProtoMajor: c.major}}
		if c.length != nil {
			w.Header()["Content-Length"] = c.length
		}
		w.WriteHeader(http.StatusEarlyHints)
		if got := fmt.Sprint(rw.was); got != "["+c.want+"]" {
			t.Errorf("HTTP/%d: written with %s, want %s", c.major, got, c.want)
		}
		if got := fmt.Sprint(w.Header()["Content-Length"]); got != fmt.Sprint(c.length) {
			t.Errorf("HTTP/%d: left with %s", c.major, got)
		}
	}
}

// TestInterimOverHTTP2: the client sees none of that, and many streams that are reset
// at their first answer harm nobody.
func TestInterimOverHTTP2(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 5 {
			w.Header().Set("Link", fmt.Sprintf("</%d>; rel=preload", i))
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("page"))
	}))
	t.Cleanup(up.Close)
	r := relay(t, up.Listener.Addr().String(), upstream.Options{}, false)
	for range 10 {
		h := r.http2(t)
		for id := uint32(1); id < 60; id += 2 {
			_ = h.open(id, asking("/a"))
		}
		_ = h.out.Flush()
		for id := uint32(1); id < 60; id += 2 {
			_ = h.WriteRSTStream(id, http2.ErrCodeCancel)
			if id%6 == 1 {
				_ = h.out.Flush()
				time.Sleep(time.Millisecond / 4)
			}
		}
		if first, body := h.get(t, 99, "/a"); first != "103" || body != "page" {
			t.Error(first, body)
		}
		_ = h.nc.Close()
	}
}
