package pgo

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// TestDiff: shares are each profile's own, so twice the load is not a change, and
// what chance explains is marked.
func TestDiff(t *testing.T) {
	base := newBuilder().add(500, "main.f", "main.main").add(500, "main.g", "main.main").profile(t, "base")
	same := newBuilder().add(5000, "main.f", "main.main").add(5000, "main.g", "main.main").profile(t, "same")
	if d := Diff(base, same); d.Moved > 1e-9 || !d.Changes[0].Noise {
		t.Errorf("the same at ten times the load: %+v", d)
	}
	other := newBuilder().add(800, "main.f", "main.main").add(490, "main.g", "main.main").add(10, "main.new", "main.f", "main.main").profile(t, "other")
	d := Diff(base, other)
	first := d.Changes[0]
	if first.Func != "main.g" || first.Noise || math.Abs(first.Delta()-(490.0/1300-0.5)) > 1e-9 {
		t.Errorf("%+v", first)
	}
	for _, c := range d.Changes {
		if c.Func == "main.main" && (c.Delta() != 0 || math.Abs(c.Below-1) > 1e-9 || !c.Noise) {
			t.Errorf("%+v", c)
		}
		if c.Func == "main.f" && math.Abs(c.Below-810.0/1300) > 1e-9 {
			t.Errorf("%+v", c)
		}
	}
	if want := 0.5 - 490.0/1300; math.Abs(d.Moved-want) > 1e-9 {
		t.Errorf("%v moved, want %v", d.Moved, want)
	}
}

// TestDiffTree: boxes carry both sides, small ones go, depth is bounded.
func TestDiffTree(t *testing.T) {
	deep := append(slices.Repeat([]string{"main.rec"}, 3*maxDepth), "main.main")
	base := newBuilder().add(99_999, "main.f", "main.main").add(1, "main.tiny", "main.main").profile(t, "base")
	other := newBuilder().add(600, "main.f", "main.main").add(400, deep...).profile(t, "other")
	d := Diff(base, other)
	if len(d.Root.Children) != 1 {
		t.Fatalf("%d boxes below all", len(d.Root.Children))
	}
	main := d.Root.Children[0]
	if main.Name != "main.main" || math.Abs(main.Delta()) > 1e-9 || len(main.Children) != 2 {
		t.Fatalf("%+v", main)
	}
	f, rec := main.Children[0], main.Children[1]
	if f.Name != "main.f" || math.Abs(f.Delta()+0.39999) > 1e-9 || rec.Name != "main.rec" || math.Abs(rec.Delta()-0.4) > 1e-9 {
		t.Errorf("%+v %+v", f, rec)
	}
	depth := 0
	for at := d.Root; len(at.Children) > 0; at = at.Children[len(at.Children)-1] {
		depth++
	}
	if depth != maxDepth {
		t.Errorf("%d deep, want %d", depth, maxDepth)
	}
	var svg strings.Builder
	if err := d.Flame(&svg); err != nil || !strings.Contains(svg.String(), "<svg") || !strings.Contains(svg.String(), "main.rec") {
		t.Errorf("flame graph: %v", err)
	}
}

// TestDiffRecursion: a function that calls itself is not below itself twice.
func TestDiffRecursion(t *testing.T) {
	p := newBuilder().add(10, "main.rec", "main.rec", "main.rec", "main.main").profile(t, "x")
	for _, c := range Diff(p, p).Changes {
		if c.Below > 1+1e-9 {
			t.Errorf("%s has %v below it", c.Func, c.Below)
		}
	}
}
