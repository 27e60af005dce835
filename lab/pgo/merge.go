package pgo

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sort"
	"time"

	"github.com/google/pprof/profile"
)

// MaxMerged is how large a merged profile may get unless asked otherwise: it
// is checked in with the source, and each build reads it.
const MaxMerged = 300 << 10

// maxParts is how many profiles are merged at once. A person weighs a handful
// of workloads against each other, not hundreds.
const maxParts = 100

// A Part is a profile with its weight among the others.
type Part struct {
	Profile *Profile
	Weight  float64 // > 0; only ratios matter: 3 and 1 is the same as 75 and 25
}

// Merged is what [Merge] made.
type Merged struct {
	Profile *Profile
	Data    []byte // as to be written to a file (gzip)

	Cut     bool    // stacks were cut to what the compiler reads
	Stacks  int     // different stacks in the parts, after cutting
	Dropped int     // of these, the rarest, left out for the size
	Lost    float64 // share of the CPU time that was in them
}

// Merge makes one profile of several. Each part has exactly the share of the
// whole that its weight says, however long it was recorded and however busy the
// server was. What the compiler does not read is dropped: addresses, mappings,
// labels, folders of files, counts beside the CPU time, when and for how long it
// was taken. When that is still more than maxBytes (0: [MaxMerged]), stacks are
// cut to their innermost two places, which are all that the compiler of Go 1.26
// reads, and then the rarest of them go.
//
// The same parts give the same bytes.
func Merge(parts []Part, maxBytes int) (*Merged, error) {
	maxBytes = cmp.Or(maxBytes, MaxMerged)
	if len(parts) == 0 {
		return nil, errors.New("merging profiles: there is none")
	}
	if len(parts) > maxParts {
		return nil, fmt.Errorf("merging profiles: %d are more than %d", len(parts), maxParts)
	}
	var weights float64
	for _, p := range parts {
		if !(p.Weight > 0) || math.IsInf(p.Weight, 0) {
			return nil, fmt.Errorf("merging profiles: %s has the weight %v; it must be above 0", p.Profile.Name, p.Weight)
		}
		weights += p.Weight
	}
	if math.IsInf(weights, 0) {
		return nil, errors.New("merging profiles: the weights are too large")
	}
	var slim []*profile.Profile
	for _, p := range parts {
		if !hasStartLines(p.Profile.p) {
			return nil, fmt.Errorf("merging %s: its functions have no start lines, without which the compiler cannot use it: was it recorded from a program built with Go before 1.20?", p.Profile.Name)
		}
		scaled, err := scale(reduce(p.Profile), p.Weight/weights)
		if err != nil {
			return nil, fmt.Errorf("merging %s: %w", p.Profile.Name, err)
		}
		slim = append(slim, scaled)
	}
	all, err := profile.Merge(slim)
	if err != nil {
		return nil, fmt.Errorf("merging profiles: %w", err)
	}
	all.TimeNanos, all.DurationNanos = 0, 0
	return fit(all, maxBytes)
}

// mergedTotal is the CPU time of a merged profile: enough for its parts'
// samples to keep six digits, little enough for short numbers in the file.
const mergedTotal = 100 * time.Second

// scale gives a profile its share of mergedTotal.
func scale(p *profile.Profile, share float64) (*profile.Profile, error) {
	var total int64
	for _, s := range p.Sample {
		total += s.Value[0]
	}
	return p, p.ScaleN([]float64{float64(mergedTotal) * share / float64(total)})
}

func hasStartLines(p *profile.Profile) bool {
	return slices.ContainsFunc(p.Function, func(f *profile.Function) bool { return f.StartLine != 0 })
}

// reduce is a copy of a profile with no more than the compiler reads: the CPU
// time by stack, the functions' names and start lines, the lines of calls.
func reduce(in *Profile) *profile.Profile {
	p := in.p.Copy()
	p.SampleType = []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}
	p.DefaultSampleType = ""
	p.PeriodType, p.Period = &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, 0 // a scaled sample is none
	p.Comments, p.DropFrames, p.KeepFrames, p.DocURL = nil, "", "", ""
	for _, s := range p.Sample {
		s.Value = []int64{s.Value[in.cpu]}
		s.Label, s.NumLabel, s.NumUnit = nil, nil, nil
	}
	for _, l := range p.Location {
		l.Mapping, l.Address, l.IsFolded = nil, 0, false
		for i := range l.Line {
			l.Line[i].Column = 0
		}
	}
	for _, f := range p.Function {
		// The name alone keeps assembly apart from Go; folders are those of
		// the machine that built the server.
		f.Filename = path.Base(f.Filename)
	}
	p.Mapping = nil
	return p
}

// fit encodes a profile so that it has at most so many bytes.
func fit(p *profile.Profile, maxBytes int) (*Merged, error) {
	data, err := encoded(p, len(p.Sample))
	out := &Merged{Stacks: len(p.Sample), Data: data}
	if err == nil && len(data) > maxBytes {
		for _, s := range p.Sample {
			s.Location = s.Location[:min(len(s.Location), readPlaces)]
		}
		out, err = dropRarest(p.Compact(), maxBytes)
	}
	if err == nil {
		out.Profile, err = Parse("merged", bytes.NewReader(out.Data))
	}
	if err != nil {
		return nil, fmt.Errorf("writing the merged profile: %w", err)
	}
	return out, nil
}

// dropRarest leaves out as few stacks as the size allows.
func dropRarest(p *profile.Profile, maxBytes int) (*Merged, error) {
	slices.SortStableFunc(p.Sample, func(a, b *profile.Sample) int { return cmp.Compare(b.Value[0], a.Value[0]) })
	out := &Merged{Cut: true, Stacks: len(p.Sample)}
	var err error
	// The size grows with the number of stacks, so the first number that is
	// too large is found by halving.
	keep := sort.Search(len(p.Sample), func(n int) bool {
		data, encodeErr := encoded(p, n+1)
		if encodeErr != nil {
			err = encodeErr
		}
		return encodeErr != nil || len(data) > maxBytes
	})
	if err != nil {
		return nil, err
	}
	if keep == 0 {
		return nil, fmt.Errorf("%d bytes are not enough for a single stack", maxBytes)
	}
	var total, lost float64
	for i, s := range p.Sample {
		total += float64(s.Value[0])
		if i >= keep {
			lost += float64(s.Value[0])
		}
	}
	out.Dropped, out.Lost = len(p.Sample)-keep, lost/total
	out.Data, err = encoded(p, keep)
	return out, err
}

// encoded is a profile's n most frequent stacks as a file.
func encoded(p *profile.Profile, n int) ([]byte, error) {
	all := p.Sample
	p.Sample = all[:n]
	some := p.Compact() // a copy
	p.Sample = all
	var b bytes.Buffer
	err := some.Write(&b)
	return b.Bytes(), err
}
