package accesslog

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// maxTop is how many names a sketch counts, maxTopName how long one may be: three
	// sketches of two windows then have at most half a megabyte.
	maxTop     = 256
	maxTopName = 256

	// topWindow is how long a window is. Two are read: what is shown is of the last
	// five to ten minutes.
	topWindow = 5 * time.Minute
)

// A Count is how many requests had a name, as far as the sample can say.
type Count struct {
	Name string
	N    uint64
	// Over is by how much N may be too large: what had been counted for the name
	// that this one took the place of.
	Over uint64
}

// sketch counts the names that occur most in a bounded space, by Space-Saving
// (Metwally, Agrawal and El Abbadi, Efficient Computation of Frequent and Top-k
// Elements in Data Streams, ICDT 2005): a new name takes the place of the rarest
// one and goes on from its count, so that no frequent name is missed.
type sketch struct {
	began       time.Time
	now, before map[string]*Count
}

// add counts a name, of which only the first maxTopName bytes are read.
func (s *sketch) add(at time.Time, name []byte, n uint64) {
	if s.now == nil || at.Sub(s.began) >= topWindow {
		s.before, s.now = s.now, make(map[string]*Count, maxTop)
		if at.Sub(s.began) >= 2*topWindow {
			s.before = nil
		}
		s.began = at
	}
	name = name[:min(len(name), maxTopName)]
	if c := s.now[string(name)]; c != nil {
		c.N += n
		return
	}
	c := &Count{Name: string(name), N: n}
	if len(s.now) >= maxTop {
		var rarest *Count
		for _, other := range s.now {
			if rarest == nil || other.N < rarest.N {
				rarest = other
			}
		}
		delete(s.now, rarest.Name)
		c.N, c.Over = n+rarest.N, rarest.N
	}
	s.now[c.Name] = c
}

// top lists the names that occurred most, at most n.
func (s *sketch) top(at time.Time, n int) []Count {
	sum := map[string]Count{}
	windows := []map[string]*Count{s.before, s.now}
	switch age := at.Sub(s.began); {
	case age >= 2*topWindow:
		windows = nil
	case age >= topWindow: // nothing has come since, which would have moved them on
		windows = windows[1:]
	}
	for _, window := range windows {
		for name, c := range window {
			one := sum[name]
			sum[name] = Count{name, one.N + c.N, one.Over + c.Over}
		}
	}
	list := make([]Count, 0, len(sum))
	for _, c := range sum {
		c.Name = printable(c.Name)
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Name, b.Name)) })
	return list[:min(len(list), n)]
}
