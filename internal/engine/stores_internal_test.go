package engine

import (
	"errors"
	"log/slog"
	"testing"

	"millrace/internal/observe/meter"
)

// fakeServer is a shared server whose state a test sets.
type fakeServer struct {
	trouble error
	closed  bool
}

func (f *fakeServer) Trouble() error { return f.trouble }

func (f *fakeServer) Close() error {
	f.closed = true
	return nil
}

// TestSharedStores: a server is known as long as it is in use, for each use, and is down
// when one part of the process cannot use it.
func TestSharedStores(t *testing.T) {
	s := &sharedStores{meters: meter.New()}
	open := func(use string, f *fakeServer) *sharedUse {
		u := s.of(use, slog.New(slog.DiscardHandler))
		u.counters("redis")("10.0.0.1:6379")
		u.opened(f)
		return u
	}
	a, b := &fakeServer{}, &fakeServer{}
	first, second := open("cache of /", a), open("cache of /", b)
	second.waits(func() int { return 3 })
	if list := s.list(); len(list) != 1 || list[0].Trouble != "" || list[0].Waiting != 3 || s.degraded() != "" {
		t.Errorf("two that are the same: %+v, degraded %q", list, s.degraded())
	}
	b.trouble = errors.New("connection refused")
	other := open("rate limits", &fakeServer{})
	if got, want := s.degraded(), "redis (cache of /)"; got != want {
		t.Errorf("degraded: %q, want %q", got, want)
	}
	s.measure()
	if m := s.meters.Stores()[0]; m.Open.Load() != 2 || m.Down.Load() != 1 || m.Waiting.Load() != 3 {
		t.Errorf("%d open, %d down, %d waiting", m.Open.Load(), m.Down.Load(), m.Waiting.Load())
	}
	for _, u := range []*sharedUse{first, second, other} {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	}
	if !a.closed || !b.closed || len(s.list()) != 0 {
		t.Errorf("closed: %v and %v; %d are left", a.closed, b.closed, len(s.list()))
	}
	s.measure()
	if m := s.meters.Stores()[0]; m.Open.Load() != 0 || m.Down.Load() != 0 {
		t.Error("it is still in use")
	}
}
