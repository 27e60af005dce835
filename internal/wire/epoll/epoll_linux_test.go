package epoll

import (
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe is a pipe whose reading end is watched under a key and a generation.
func pipe(t *testing.T, s *Set, events uint32, key int32, generation uint32) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	if err := s.Add(int(r.Fd()), events, key, generation); err != nil {
		t.Fatal(err)
	}
	return r, w
}

func say(t *testing.T, w *os.File) {
	t.Helper()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
}

func wantEvent(t *testing.T, events []Event, key int32, generation, what uint32) {
	t.Helper()
	if len(events) != 1 || events[0].Key() != key || events[0].Generation() != generation || events[0].Events != what {
		t.Fatalf("got %v, want key %d of generation %d with %#x", events, key, generation, what)
	}
}

// TestSet: what is ready comes back under its key and generation, as long as it
// is watched.
func TestSet(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	events := make([]Event, 8)
	r, w := pipe(t, s, In, 7, 1<<31+3)
	if n := s.Poll(events); n != 0 {
		t.Fatalf("%d events before there was anything", n)
	}
	if n, err := s.Wait(events, 0); n != 0 || err != nil {
		t.Fatalf("%d events before there was anything, error %v", n, err)
	}
	say(t, w)
	for range 2 { // level-triggered
		n, err := s.Wait(events, -1)
		if err != nil {
			t.Fatal(err)
		}
		wantEvent(t, events[:n], 7, 1<<31+3, In)
	}
	if err := s.Change(int(r.Fd()), In|OneShot, 9, 4); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, events[:s.Poll(events)], 9, 4, In)
	if n := s.Poll(events); n != 0 {
		t.Fatalf("%d events after the one", n)
	}
	if err := s.Change(int(r.Fd()), In, 9, 5); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(int(r.Fd())); err != nil {
		t.Fatal(err)
	}
	if n := s.Poll(events); n != 0 {
		t.Fatalf("%d events of what is not watched any more", n)
	}
}

// TestCoarse: where epoll_pwait2 is missing, the older call is used from then on.
func TestCoarse(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.coarse = true
	events := make([]Event, 8)
	_, w := pipe(t, s, In, 1, 1)
	if n, err := s.Wait(events, 999_999); n != 0 || err != nil {
		t.Fatalf("%d events before there was anything, error %v", n, err)
	}
	say(t, w)
	n, err := s.Wait(events, -1)
	if err != nil {
		t.Fatal(err)
	}
	wantEvent(t, events[:n], 1, 1, In)
}

// TestWaker: a waker ends a wait, once for all calls before it.
func TestWaker(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	waker, err := s.NewWaker()
	if err != nil {
		t.Fatal(err)
	}
	events := make([]Event, 8)
	for range 3 {
		var woken sync.WaitGroup
		woken.Go(waker.Wake)
		n, err := s.Wait(events, -1)
		if err != nil {
			t.Fatal(err)
		}
		wantEvent(t, events[:n], WakeKey, 0, In)
		woken.Wait()
	}
	waker.Wake()
	waker.Wake()
	wantEvent(t, events[:s.Poll(events)], WakeKey, 0, In)
	if n := s.Poll(events); n != 0 {
		t.Fatalf("%d events after the waking", n)
	}
	if err := waker.Close(); err != nil {
		t.Fatal(err)
	}
	waker.Wake() // too late, and harmless
}

// TestPoller: Run works when there is something to do, and ends when that is
// done or the poller is closed.
func TestPoller(t *testing.T) {
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	waker, err := p.NewWaker()
	if err != nil {
		t.Fatal(err)
	}
	defer waker.Close()
	idle, over := make(chan struct{}), make(chan struct{})
	seen := 0
	go func() {
		defer close(over)
		events := make([]Event, 1)
		p.Run(func() (done bool) {
			for p.Poll(events) > 0 {
				seen++
			}
			idle <- struct{}{}
			return seen == 2
		})
	}()
	<-idle
	for range 2 {
		waker.Wake()
		<-idle
	}
	<-over
	if seen != 2 {
		t.Errorf("it was woken %d times", seen)
	}
	over = make(chan struct{})
	go func() {
		defer close(over)
		p.Run(func() bool { idle <- struct{}{}; return false })
	}()
	<-idle
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	<-over
}

// TestNoAllocation: a loop's rounds cost no memory.
func TestNoAllocation(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	events := make([]Event, 8)
	r, w := pipe(t, s, In, 1, 1)
	say(t, w)
	fd := int(r.Fd())
	if n := testing.AllocsPerRun(100, func() {
		_ = s.Poll(events)
		_, _ = s.Wait(events, 1)
		_ = s.Change(fd, In, 1, 2)
	}); n != 0 {
		t.Errorf("%v allocations in a round", n)
	}
}
