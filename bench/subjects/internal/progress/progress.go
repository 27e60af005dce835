// Package progress tells how far a run is, and how long it will take.
package progress

import (
	"fmt"
	"io"
	"time"
)

// Meter prints a line for each step that is done. That a line cannot be
// printed is no reason to stop a measurement.
type Meter struct {
	out     io.Writer
	now     func() time.Time
	started time.Time
	total   time.Duration // that all steps are expected to take
	done    time.Duration // that the finished ones were expected to
	steps   int
	step    int
}

// New makes a meter for steps which are expected to take total together. now
// is time.Now, but in tests.
func New(out io.Writer, now func() time.Time, steps int, total time.Duration) *Meter {
	return &Meter{out: out, now: now, started: now(), total: total, steps: steps}
}

// Say prints a line that is no step.
func (m *Meter) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(m.out, format+"\n", args...)
}

// Step prints what a finished step, which was expected to take so long, has
// brought, and the time left: what remains of the plan, at the pace so far.
func (m *Meter) Step(expected time.Duration, format string, args ...any) {
	m.step++
	m.done += expected
	_, _ = fmt.Fprintf(m.out, "[%*d/%d, %s left] %s\n",
		len(fmt.Sprint(m.steps)), m.step, m.steps, clock(m.Left()), fmt.Sprintf(format, args...))
}

// Left is the time that the rest is expected to take.
func (m *Meter) Left() time.Duration {
	rest := m.total - m.done
	if rest <= 0 || m.done <= 0 {
		return max(rest, 0)
	}
	pace := float64(m.now().Sub(m.started)) / float64(m.done)
	return time.Duration(float64(rest) * pace)
}

// Took is the time since the meter was made.
func (m *Meter) Took() time.Duration { return m.now().Sub(m.started) }

// clock is d as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
