package dashboard

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"millrace/internal/ops/chart"
)

// The bounds of what is kept of profiles.
const (
	maxProfiles     = 4
	maxProfileBytes = 8 << 20 // as it is sent; a busy server's of five minutes has 2 MB
	maxStack        = 64      // as deep as a flame graph is drawn
	hottest         = 15
)

// Profiles are the last CPU profiles. The zero value has none.
type Profiles struct {
	mu   sync.Mutex
	kept []*stacks // the youngest first
}

// stacks is a CPU profile as a tree.
type stacks struct {
	taken   time.Time
	seconds float64 // CPU time
	root    *frame
	own     map[string]float64 // share of the time, by function
}

// frame is a function below its callers; its value is a share of all CPU time.
type frame struct {
	name     string
	value    float64
	children map[string]*frame
}

// errNoSamples is a profile of a server that did nothing.
var errNoSamples = errors.New("the profile has no samples")

// Add keeps a CPU profile in pprof's format.
func (p *Profiles) Add(data []byte, taken time.Time) error {
	if len(data) > maxProfileBytes {
		return fmt.Errorf("keeping a CPU profile: it has more than %d MiB", maxProfileBytes>>20)
	}
	s, err := parseProfile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("keeping a CPU profile: %w", err)
	}
	s.taken = taken
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = slices.Insert(p.kept, 0, s)
	p.kept = p.kept[:min(len(p.kept), maxProfiles)]
	return nil
}

func parseProfile(r io.Reader) (*stacks, error) {
	parsed, err := profile.Parse(r)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(parsed.SampleType, func(t *profile.ValueType) bool { return t.Type == "cpu" && t.Unit == "nanoseconds" })
	if at < 0 {
		return nil, errors.New("it is not a CPU profile")
	}
	total := 0.0
	for _, s := range parsed.Sample {
		total += float64(s.Value[at])
	}
	if total == 0 {
		return nil, errNoSamples
	}
	out := &stacks{seconds: total / 1e9, root: &frame{name: "all"}, own: map[string]float64{}}
	for _, s := range parsed.Sample {
		out.add(s, float64(s.Value[at])/total)
	}
	return out, nil
}

// add puts a sample into the tree.
func (s *stacks) add(sample *profile.Sample, share float64) {
	var names []string // the innermost first
	for _, l := range sample.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	if len(names) > 0 {
		s.own[names[0]] += share
	}
	f := s.root
	f.value += share
	for _, name := range slices.Backward(names[max(0, len(names)-maxStack):]) {
		next := f.children[name]
		if next == nil {
			next = &frame{name: name}
			if f.children == nil {
				f.children = map[string]*frame{}
			}
			f.children[name] = next
		}
		next.value += share
		f = next
	}
}

// chart is the frame as it is drawn, in percent, beside what it was before, which
// may be nil. Functions have their package's last name: paths would leave no room for them.
func (f *frame) chart(before *frame) chart.Frame {
	out := chart.Frame{Name: f.name[strings.LastIndexByte(f.name, '/')+1:], Value: 100 * f.value, Delta: 100 * f.value}
	if before != nil {
		out.Delta -= 100 * before.value
	}
	for _, c := range f.children {
		var was *frame
		if before != nil {
			was = before.children[c.name]
		}
		out.Children = append(out.Children, c.chart(was))
	}
	slices.SortStableFunc(out.Children, func(a, b chart.Frame) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// two are the last profile and the one that it is compared with: the nth before it,
// from 1 on. Both may be nil.
func (p *Profiles) two(nth int) (last, before *stacks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) > 0 {
		last = p.kept[0]
	}
	if nth > 0 && nth < len(p.kept) {
		before = p.kept[nth]
	}
	return last, before
}

// flame draws the last profile or, with nth above 0, in what it differs from an
// earlier one. It reports false where there is none.
func (p *Profiles) flame(w io.Writer, nth int) (bool, error) {
	last, before := p.two(nth)
	if last == nil || nth > 0 && before == nil {
		return false, nil
	}
	f := chart.Flame{
		Title: "CPU profile of " + last.taken.Local().Format(time.DateTime),
		About: fmt.Sprintf("Width: share of %.1f seconds of CPU time.", last.seconds),
		Unit:  "%",
	}
	if before != nil {
		f.About += " Red: more than in the profile of " + before.taken.Local().Format(time.DateTime) + ", blue: less."
		f.Root, f.Difference = last.root.chart(before.root), true
	} else {
		f.Root = last.root.chart(nil)
	}
	if err := f.SVG(w, chart.Size{}); err != nil {
		return true, fmt.Errorf("drawing a profile: %w", err)
	}
	return true, nil
}

// profileID is the panel that has the flame graph on its own page.
const profileID = "profile"

// panel lists the functions in which most time was spent.
func (p *Profiles) panel() Panel {
	out := Panel{
		ID: profileID, Title: "CPU profile",
		Columns: []Column{{Key: "function", Name: "function"}, {Key: "own_share", Name: "own time", Unit: Share}, {Key: "change", Name: "change", Unit: Share}},
		Empty:   "No CPU profile has been taken since the start. /debug/pprof/profile?seconds=10 on this listener takes one, and so does SIGUSR2.",
	}
	last, before := p.two(1)
	if last == nil {
		return out
	}
	out.Note = fmt.Sprintf("Taken %s, %.1f s of CPU time.", last.taken.Local().Format(time.DateTime), last.seconds)
	if before != nil {
		out.Note += " The change is since the profile of " + before.taken.Local().Format(time.DateTime) + "."
	}
	type hot struct {
		name      string
		own, more float64
	}
	var all []hot
	for name, share := range last.own {
		h := hot{name, share, math.NaN()}
		if before != nil {
			h.more = share - before.own[name]
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b hot) int {
		return cmp.Or(cmp.Compare(b.own, a.own), strings.Compare(a.name, b.name))
	})
	for _, h := range all[:min(len(all), hottest)] {
		row := Row{Values: []any{h.name, h.own, nil}}
		if before != nil {
			row.Values[2] = h.more
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
