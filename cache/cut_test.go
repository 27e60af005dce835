package cache

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/memory"
)

// testLine is a line to other machines, as a test wants it.
type testLine struct {
	cut   atomic.Bool
	asked atomic.Int64
	err   error // of CatchUp
	catch func()
}

func (l *testLine) CaughtUp() bool { return !l.cut.Load() }

func (l *testLine) CatchUp(context.Context) error {
	l.asked.Add(1)
	if l.catch != nil {
		l.catch()
	}
	return l.err
}

// TestBehind: what a machine does that may not know of all purges depends on why.
func TestBehind(t *testing.T) {
	up := &origin{answer: func(n int, _ *http.Request) *http.Response {
		return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60, stale-while-revalidate=60")
	}}
	line := &testLine{}
	o := Options{}
	o.To = []string{"http://127.0.0.1:1"}
	h, err := New(o, Deps{Transport: up, Line: line, Publish: func(context.Context, []byte) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	get := func() string { return asked(t, h, "GET", "http://a.example/").Body.String() }
	first := get()
	if get() != first || line.asked.Load() > 0 {
		t.Error("a machine that hears everything asks")
	}
	line.cut.Store(true)
	line.err = store.ErrDown
	if got := get(); got != first || line.asked.Load() != 1 {
		t.Errorf("cut off: %q, not %q", got, first)
	}
	line.err = errors.New("too slow")
	if got := get(); got == first {
		t.Errorf("not caught up: %q is used without validation", got)
	}
	second := get()
	line.err, line.catch = nil, func() {
		h.Message([]byte(`{"id":"x","purge":{"all":true,"hard":true}}`), false)
		line.cut.Store(false)
	}
	if got := get(); got == second {
		t.Errorf("caught up: %q, which was purged", got)
	}
}

// TestUnsure: where purges may have been missed, nothing is served while it is refreshed:
// they may have been hard ones.
func TestUnsure(t *testing.T) {
	for name, miss := range map[string]func(h *Handler){
		"lost":        func(h *Handler) { h.Message(nil, true) },
		"another run": func(h *Handler) { h.Began("another") },
		"no JSON":     func(h *Handler) { h.Message([]byte("?"), false) },
	} {
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			return say(200, strconv.Itoa(n), "Cache-Control", "max-age=60, stale-while-revalidate=60")
		}}
		h := newCache(t, Options{}, up)
		asked(t, h, "GET", "http://a.example/")
		miss(h)
		if e := h.Explain(httptest.NewRequest("GET", "http://a.example/", nil)); !strings.Contains(e.Reason, "missed") {
			t.Errorf("%s: explained as %q", name, e.Reason)
		}
		if w := asked(t, h, "GET", "http://a.example/"); w.Body.String() != "2" {
			t.Errorf("%s: %q, %v", name, w.Body, w.Header()["Cache-Status"])
		}
		if w := asked(t, h, "GET", "http://a.example/"); w.Body.String() != "2" || !isHit(t, w) {
			t.Errorf("%s, afterwards: %q, %v", name, w.Body, w.Header()["Cache-Status"])
		}
	}
}

// TestClocksApart: an answer is as old for a machine whose clock is an hour wrong as it is
// for the one that has stored it: by the shared store's clock.
func TestClocksApart(t *testing.T) {
	for _, c := range []struct{ writer, reader, age time.Duration }{
		{0, 0, 0},
		{time.Hour, time.Hour, 0},
		{-time.Hour, -time.Hour, 0},
		// The machines of this test have the same clock. So these say what corrects what.
		{time.Hour, 0, time.Hour},
		{0, -time.Hour, time.Hour},
		{0, time.Hour, 0},
	} {
		shared := memory.New(1 << 20)
		up := &origin{answer: func(n int, _ *http.Request) *http.Response {
			return say(200, strconv.Itoa(n), "Cache-Control", "max-age=7200")
		}}
		machine := func(ahead time.Duration) *Handler {
			o := Options{}
			o.To = []string{"http://127.0.0.1:1"}
			h, err := New(o, Deps{Transport: up, Shared: shared, Ahead: func() time.Duration { return ahead }})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { h.Close() })
			h.Message([]byte(`{"id":"x","hello":true}`), false)
			return h
		}
		writer, reader := machine(c.writer), machine(c.reader)
		asked(t, writer, "GET", "http://a.example/")
		servertest.Eventually(t, "the answer is stored", func() bool { return shared.Stats().Objects > 0 })
		w := asked(t, reader, "GET", "http://a.example/")
		age, err := strconv.Atoi(w.Header().Get("Age"))
		if d := time.Duration(age)*time.Second - c.age; err != nil || !isHit(t, w) || d < 0 || d > 10*time.Second {
			t.Errorf("%+v: the age is %q; %v", c, w.Header().Get("Age"), w.Header()["Cache-Status"])
		}
	}
}
