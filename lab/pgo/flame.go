package pgo

import (
	"fmt"
	"io"

	"millrace/internal/ops/chart"
)

// Flame writes the difference as a flame graph (SVG): a box's width is its
// share of the second profile's time, red where that grew, blue where it
// shrank. What is gone altogether has no width; the table of changes names it.
func (d *Difference) Flame(w io.Writer) error {
	f := chart.Flame{
		Title:      fmt.Sprintf("%s compared with %s", d.Other.Name, d.Base.Name),
		About:      "Width: share of the CPU time of " + d.Other.Name + ". Red grew, blue shrank.",
		Unit:       "%",
		Root:       d.Root.chart(),
		Difference: true,
	}
	if err := f.SVG(w, chart.Size{}); err != nil {
		return fmt.Errorf("drawing the flame graph: %w", err)
	}
	return nil
}

func (f *Frame) chart() chart.Frame {
	out := chart.Frame{Name: f.Name, Value: 100 * f.Value, Delta: 100 * f.Delta()}
	for _, c := range f.Children {
		out.Children = append(out.Children, c.chart())
	}
	return out
}
