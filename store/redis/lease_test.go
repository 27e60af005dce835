package redis

import (
	"testing"
	"time"
)

// TestLease: one holds a lease at a time; it ends with a note or none, or by itself, and
// nobody ends another's.
func TestLease(t *testing.T) {
	s := start(t)
	r := open(t, Options{URL: s.url()})
	hold := func(name, want string, d time.Duration) {
		t.Helper()
		if holder, err := r.Hold(t.Context(), "key", name, d); err != nil || holder != want {
			t.Errorf("%s wants it: %q has it, %v", name, holder, err)
		}
	}
	is := func(holder, note string) {
		t.Helper()
		if h, n, err := r.Holder(t.Context(), "key"); err != nil || h != holder || n != note {
			t.Errorf("the holder is %q with the note %q, %v; want %q and %q", h, n, err, holder, note)
		}
	}
	release := func(name, note string) {
		t.Helper()
		if err := r.Release(t.Context(), "key", name, note); err != nil {
			t.Error(err)
		}
	}
	is("", "")
	hold("one", "one", time.Minute)
	hold("two", "one", time.Minute)
	hold("one", "one", time.Minute)
	release("two", "")
	is("one", "")
	release("one", "alone")
	is("one", "alone")
	release("one", "") // of what has ended
	is("one", "alone")
	hold("two", "two", time.Minute)
	release("two", "")
	is("", "")
	hold("one", "one", 50*time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	hold("two", "two", time.Minute)
	release("one", "none")
	is("two", "")
}
