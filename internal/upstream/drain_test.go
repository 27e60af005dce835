package upstream

import (
	"errors"
	"testing"
)

// TestDrain: a server that is drained gets no request, not even by its cookie, and
// the last one cannot be drained.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *wires) {
		a, b := w.counting("a:80"), w.counting("b:80")
		p := newPool(t, Options{To: hosts(2), Balance: "round_robin"}, w)
		if err := p.Drain("http://a", true); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, _, err := get(t, p); err != nil {
				t.Fatal(err)
			}
		}
		if a.Load() != 0 || b.Load() != 10 || !p.Servers()[0].Drained {
			t.Errorf("the drained one got %d requests, the other %d", a.Load(), b.Load())
		}
		if err := p.Drain("http://b", true); !errors.Is(err, ErrLastServer) {
			t.Errorf("draining the last one: %v", err)
		}
		if err := p.Drain("http://c", true); !errors.Is(err, ErrNoServer) {
			t.Errorf("draining one that is not there: %v", err)
		}
		if err := p.Drain("http://a", false); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			get(t, p)
		}
		if a.Load() != 5 {
			t.Errorf("the one that is back got %d of 10", a.Load())
		}
	})
}
