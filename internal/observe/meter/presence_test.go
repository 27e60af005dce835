package meter

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// keeping begins an Upkeep with a turn each second, and counts its turns.
func keeping(t *testing.T, p *Presence, more func() bool, first func()) (turns func() int) {
	t.Helper()
	stop, over := make(chan struct{}), make(chan struct{})
	var n atomic.Int64
	go func() {
		defer close(over)
		p.Keep(stop, Upkeep{
			Every: func() time.Duration { return time.Second },
			Turn:  func(time.Time) bool { n.Add(1); return more != nil && more() },
			First: first,
		})
	}()
	t.Cleanup(func() { close(stop); <-over })
	return func() int {
		synctest.Wait()
		return int(n.Swap(0))
	}
}

// TestPresence: turns begin with the first client and end with the one after the last.
func TestPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Presence
		turns := keeping(t, &p, nil, nil)
		time.Sleep(time.Hour)
		if n := turns(); n > 1 {
			t.Errorf("%d turns before the first client", n)
		}
		for range 3 {
			p.Add(1)
			time.Sleep(10*time.Second + time.Millisecond)
			if n := turns(); n != 10 {
				t.Errorf("%d turns in 10 s with a client", n)
			}
			p.Add(1)
			p.Add(-1)
			time.Sleep(10 * time.Second)
			if n := turns(); n != 10 {
				t.Errorf("%d turns in 10 s with one of two clients", n)
			}
			p.Add(-1)
			time.Sleep(time.Hour)
			if n := turns(); n < 1 || n > 2 {
				t.Errorf("%d turns after the last client, want one or two", n)
			}
		}
	})
}

// TestPresenceShort: what a client has left behind that came and went between two turns is
// seen by one.
func TestPresenceShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Presence
		turns := keeping(t, &p, nil, nil)
		time.Sleep(time.Minute)
		turns()
		p.Add(1)
		p.Add(-1)
		time.Sleep(time.Minute)
		if n := turns(); n < 1 || n > 2 {
			t.Errorf("%d turns, want one or two", n)
		}
	})
}

// TestPresenceMore: an Upkeep that has more to do goes on without clients, and one that is
// poked takes one more turn, however often.
func TestPresenceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Presence
		left := 5
		turns := keeping(t, &p, func() bool { left--; return left > 0 }, nil)
		time.Sleep(time.Minute)
		if n := turns(); n != 5 {
			t.Errorf("%d turns, want 5", n)
		}
		for range 10 {
			p.Poke()
		}
		time.Sleep(time.Minute)
		if n := turns(); n < 1 || n > 2 {
			t.Errorf("%d turns after Poke, want one or two", n)
		}
	})
}

// TestPresenceFirst: First is over before the Add of any client returns, is called once for
// all, and again after the next sleep.
func TestPresenceFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Presence
		var firsts atomic.Int64
		var begun, goOn chan struct{}
		keeping(t, &p, nil, func() {
			close(begun)
			<-goOn
			firsts.Add(1)
		})
		for range 2 {
			begun, goOn = make(chan struct{}), make(chan struct{})
			firsts.Store(0)
			time.Sleep(time.Minute)
			p.Poke()
			seen := make(chan int64, 2)
			come := func() {
				p.Add(1)
				seen <- firsts.Load()
			}
			go come()
			<-begun
			go come()
			for range 100 {
				runtime.Gosched() // so that the second one is there, too
			}
			close(goOn)
			if a, b := <-seen, <-seen; a != 1 || b != 1 {
				t.Errorf("First was called %d times when one client was there, %d when the other was", a, b)
			}
			p.Add(-2)
		}
	})
}

// TestPresenceNone: nil counts nothing.
func TestPresenceNone(t *testing.T) {
	var p *Presence
	p.Add(1)
	p.Add(-1)
}
