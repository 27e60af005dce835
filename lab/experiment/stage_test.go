package experiment

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/lab/record"
)

func TestStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []record.Event
		res := &record.Result{}
		s := NewStage(Env{Mode: record.Quick, Watch: func(e record.Event) { events = append(events, e) }}, res)
		time.Sleep(20 * time.Second) // building, which says nothing about the rest
		s.Note("left out: %d", 1)
		s.Note("left out: %d", 1)
		s.Emit(record.Event{Kind: record.EventSample})
		if len(res.Notes) != 1 || len(events) != 2 || events[1].Time.IsZero() {
			t.Fatalf("%v, %v", res.Notes, events)
		}
		time.Sleep(10 * time.Second)
		if left := s.Left(); left <= 0 || left >= time.Minute {
			t.Errorf("%v are left after 30 s of a quick run", left)
		}
	})
	NewStage(Env{}, &record.Result{}).Note("nobody watches") // no panic
}

func TestPart(t *testing.T) {
	var got record.Event
	s := NewStage(Env{Watch: func(e record.Event) { got = e }}, &record.Result{})
	watch := s.Part(0.2, 0.6, time.Second)
	watch(record.Event{Done: 0.5, Left: time.Second})
	if got.Done != 0.4 || got.Left != 2*time.Second {
		t.Errorf("%+v", got)
	}
	watch(record.Event{Done: 1})
	if got.Done < 0.599 || got.Done > 0.601 || got.Left != 0 {
		t.Errorf("%+v", got)
	}
}

var errTest = errors.New("test")

func TestEach(t *testing.T) {
	var done atomic.Int64
	if err := Each(100, 7, func(int) error { done.Add(1); return nil }); err != nil || done.Load() != 100 {
		t.Errorf("%d of 100, %v", done.Load(), err)
	}
	if err := Each(100, 7, func(int) error { return errTest }); !errors.Is(err, errTest) {
		t.Error(err)
	}
}
