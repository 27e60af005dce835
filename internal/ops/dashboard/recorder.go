package dashboard

import (
	"slices"
	"time"

	"millrace/internal/observe/meter"
)

const (
	// history is how many seconds are remembered for the drawings.
	history = 300

	// window is how often the readings move on from which rates and percentiles are
	// counted: they are about the last 10 to 20 seconds. Shorter, and the p99 of a
	// quiet route would be that of a single request.
	window = 10 * time.Second
)

// heatBounds are the upper ends of the heat strip's rows; the last row has no end.
var heatBounds = [...]time.Duration{
	10 * time.Microsecond, 30 * time.Microsecond, 100 * time.Microsecond, 300 * time.Microsecond,
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second,
}

// heatRows is the number of rows.
const heatRows = len(heatBounds) + 1

// second is what one second brought.
type second struct {
	at               time.Time
	requests, failed uint64 // failed: with a 5xx
	bytes            uint64
	cpu              time.Duration
	p50, p99         time.Duration
	memory           uint64
	connections      int64
	heat             [heatRows]uint64
}

// reading is all counters of one moment.
type reading struct {
	at   time.Time
	cpu  time.Duration
	jobs map[*meter.Job]*[3]meter.Reading // by lane, as in laneNames
	sum  meter.Reading

	caches  map[*meter.Cache]looked
	scarce  map[string]uint64 // by what it is
	refused []uint64          // as refusals has them
}

var laneNames = [...]string{"fast", "through", "slow"}

// recorder reads the counters once a second as long as clients are connected. That costs
// some ten microseconds for a few routes, so it goes on while nobody looks, and the first
// page shows the last five minutes. It belongs to one goroutine but for what State guards.
type recorder struct {
	meters *meter.Meters

	seconds    []second // the youngest last
	base, next *reading // what rates are counted from, and will be
	last       *reading
}

func newRecorder(m *meter.Meters, now time.Time) *recorder {
	r := &recorder{meters: m}
	r.last = r.read(now)
	r.base, r.next = r.last, r.last
	return r
}

func (r *recorder) read(now time.Time) *reading {
	out := &reading{
		at: now, jobs: map[*meter.Job]*[3]meter.Reading{}, caches: map[*meter.Cache]looked{}, scarce: map[string]uint64{},
	}
	for _, one := range scarcities(r.meters) {
		out.scarce[one.what] = one.n
	}
	for _, j := range r.meters.Jobs() {
		of := &[3]meter.Reading{j.Fast.Read(), j.Through.Read(), j.Slow.Read()}
		for i := range of {
			out.sum.Merge(&of[i])
		}
		out.jobs[j] = of
	}
	for _, one := range refusals(r.meters) {
		out.refused = append(out.refused, one.n.Load())
	}
	for _, c := range r.meters.Caches() {
		out.caches[c] = looked{hits: c.Hit.Load() + c.Stale.Load() + c.Coalesced.Load() + c.Validated.Load(), misses: c.Miss.Load()}
	}
	return out
}

// record takes in one more second.
func (r *recorder) record(now time.Time) {
	read := r.read(now)
	cpu, memory := usage()
	read.cpu = cpu
	if gap := now.Sub(r.last.at); gap >= window { // there was no client: all of it is of the last second
		r.last.at = now.Add(-time.Second)
		r.last.cpu = cpu - time.Duration(float64(cpu-r.last.cpu)/gap.Seconds())
		r.base, r.next = r.last, r.last
	}
	diff := read.sum.Since(&r.last.sum)
	s := second{
		at: now, requests: diff.Requests(), failed: diff.Between(500, 599), bytes: diff.Bytes,
		p50: diff.Latency.Quantile(0.5), p99: diff.Latency.Quantile(0.99),
		memory: memory, connections: r.meters.Connections.Load(),
	}
	if r.last.cpu > 0 {
		s.cpu = cpu - r.last.cpu
	}
	below := uint64(0)
	for i, bound := range heatBounds {
		n := diff.Latency.CountWithin(bound)
		s.heat[i] = n - below
		below = n
	}
	s.heat[heatRows-1] = diff.Latency.Count() - below
	if len(r.seconds) == history {
		r.seconds = slices.Delete(r.seconds, 0, 1)
	}
	r.seconds = append(r.seconds, s)
	r.last = read
	if now.Sub(r.next.at) >= window {
		r.base, r.next = r.next, read
	}
}

// lately is what has come since base, and in how long.
func (r *recorder) lately() (meter.Reading, time.Duration) {
	return r.last.sum.Since(&r.base.sum), max(r.last.at.Sub(r.base.at), time.Second)
}

// of is what a job has counted in a lane: in all, and lately.
func (r *recorder) of(j *meter.Job, lane int) (all, lately meter.Reading) {
	now := r.last.jobs[j]
	if now == nil {
		return all, lately
	}
	all = now[lane]
	if before := r.base.jobs[j]; before != nil {
		return all, all.Since(&before[lane])
	}
	return all, all
}
