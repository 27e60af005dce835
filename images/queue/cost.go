package queue

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// maxClasses bounds what is learned: classes come from the program, a few
	// dozen at most. What comes on top stays unknown.
	maxClasses = 256
	// samples is how many of its latest jobs say what a class costs. All their
	// pairs are compared at the end of each job: 120, some microseconds.
	samples = 16
	// fading is what a sample counts against the one after it: the last five
	// have more than half of the weight, so a machine that has become slower
	// is believed after about as many jobs.
	fading = 0.85
	// floor is the area in megapixels below which an image says little about
	// a megapixel: starting a process takes longer than its pixels.
	floor = 0.25
)

// costs are what is known of each class.
type costs map[Class]*model

// learn takes note of a job. Without a cost or an area there is nothing to learn.
func (c costs) learn(class Class, megapixels float64, cost time.Duration) {
	if cost <= 0 || megapixels <= 0 || math.IsInf(megapixels, 0) || math.IsNaN(megapixels) {
		return
	}
	m := c[class]
	if m == nil {
		if len(c) >= maxClasses {
			return
		}
		m = &model{}
		c[class] = m
	}
	m.add(sample{megapixels, float64(cost) / float64(time.Millisecond)})
}

// predict is the time a job of the class takes.
func (c costs) predict(class Class, megapixels float64) (time.Duration, bool) {
	m := c[class]
	if m == nil {
		return 0, false
	}
	if math.IsNaN(megapixels) {
		megapixels = 0
	}
	const most = 24 * time.Hour // what nobody waits for; keeps sums from overflowing
	ms := min(m.cost(megapixels), float64(most/time.Millisecond))
	return time.Duration(ms * float64(time.Millisecond)), true
}

// sample is one job: its area in megapixels and its wall time in milliseconds.
type sample struct{ area, ms float64 }

// model is a straight line through the samples of a class: a fixed part, and
// one by area. It is the line of Theil and Sen, the median of the slopes
// between all pairs of samples, with the weight of their age: a quarter of the
// weight may be outliers (the first job, which compiles the codec; one that
// ran while the machine was busy) without moving it far, which no mean
// survives, however it forgets.
type model struct {
	jobs    int
	ring    [samples]sample
	fixed   float64 // ms
	byArea  float64 // ms a megapixel
	weights [samples]float64
}

// cost is the milliseconds that an image of that many megapixels takes.
func (m *model) cost(megapixels float64) float64 { return m.fixed + m.byArea*max(megapixels, floor) }

func (m *model) add(s sample) {
	s.area = max(s.area, floor)
	m.ring[m.jobs%samples] = s
	m.jobs++
	known := m.ring[:min(m.jobs, samples)]
	for age := range known {
		m.weights[(m.jobs-1-age)%samples] = math.Pow(fading, float64(age))
	}
	var room [samples * (samples - 1) / 2]weighted
	if m.fit(known, room[:0]) {
		return
	}
	// No line can be told: the images were about equally large, or the noise
	// is more than what they differ by. Then all of it is by area.
	rates := room[:0]
	for i, s := range known {
		rates = append(rates, weighted{s.ms / s.area, m.weights[i]})
	}
	m.fixed, m.byArea = 0, median(rates)
}

// fit finds the line, unless there is none that makes sense.
func (m *model) fit(known []sample, slopes []weighted) bool {
	const minPairs = 3 // those of three samples: two are a line by accident
	for i, a := range known {
		for j, b := range known[:i] {
			if d := math.Abs(a.area - b.area); d >= floor && d >= max(a.area, b.area)/4 {
				slopes = append(slopes, weighted{(a.ms - b.ms) / (a.area - b.area), m.weights[i] * m.weights[j]})
			}
		}
	}
	if len(slopes) < minPairs {
		return false
	}
	slope := median(slopes)
	rests := slopes[:0]
	for i, s := range known {
		rests = append(rests, weighted{s.ms - slope*s.area, m.weights[i]})
	}
	fixed := median(rests)
	if slope <= 0 || fixed < 0 {
		return false
	}
	m.fixed, m.byArea = fixed, slope
	return true
}

type weighted struct{ value, weight float64 }

// median is the value that has half of the weight on either side; it sorts v,
// which is not empty.
func median(v []weighted) float64 {
	slices.SortStableFunc(v, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
	total := 0.0
	for _, w := range v {
		total += w.weight
	}
	sum := 0.0
	for i, w := range v {
		sum += w.weight
		switch half := total / 2; {
		case math.Abs(sum-half) < total*1e-9 && i+1 < len(v):
			return (w.value + v[i+1].value) / 2
		case sum > half:
			return w.value
		}
	}
	return v[len(v)-1].value
}
