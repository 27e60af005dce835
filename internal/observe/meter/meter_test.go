package meter

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"
)

func TestCounter(t *testing.T) {
	var c Counter
	var wg sync.WaitGroup
	for shard := range uint32(20) {
		wg.Go(func() {
			for range 1000 {
				c.Add(shard, 2)
			}
		})
	}
	wg.Wait()
	c.Add(math.MaxUint32, 5)
	if got := c.Load(); got != 40005 {
		t.Errorf("counted %d, want 40005", got)
	}
}

func TestGauge(t *testing.T) {
	var g Gauge
	g.Add(3)
	g.Add(-5)
	if got := g.Load(); got != -2 {
		t.Errorf("the gauge is %d, want -2", got)
	}
	g.Set(7)
	if got := g.Load(); got != 7 {
		t.Errorf("the gauge is %d, want 7", got)
	}
}

func TestTraffic(t *testing.T) {
	var tr Traffic
	for shard, code := range []int{200, 304, 200, 599, 99, -1, 1000, 404, 511, 100, 299} {
		tr.Observe(uint32(shard), code, 10, time.Millisecond)
	}
	tr.Observe(3, 200, -1, time.Millisecond)
	want := []CodeCount{{0, 5}, {100, 1}, {200, 3}, {304, 1}, {404, 1}, {511, 1}}
	if got := tr.Codes(); !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	lat := tr.Latency()
	if tr.Bytes() != 110 || tr.Requests() != 12 || lat.Count() != 12 {
		t.Errorf("%d bytes, %d requests, %d times; want 110, 12, 12", tr.Bytes(), tr.Requests(), lat.Count())
	}
}

func TestEveryKnownCodeHasItsOwnCount(t *testing.T) {
	if !slices.IsSorted(knownCodes[:]) {
		t.Error("knownCodes is not sorted: Codes would not be either")
	}
	var tr Traffic
	for _, code := range knownCodes[1:] {
		tr.Observe(0, code, 0, 0)
	}
	for i, c := range tr.Codes() {
		if c != (CodeCount{knownCodes[i+1], 1}) {
			t.Errorf("code %d was counted as %v", knownCodes[i+1], c)
		}
	}
}

// A Traffic exists per job and lane; the bound is that of the comment at shards.
func TestTrafficIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Traffic{}); size > 20<<10 {
		t.Errorf("a Traffic has %d bytes, want at most 20 KiB", size)
	}
}

// What is counted on the hot path must never share a cache line across shards.
func TestShardsArePadded(t *testing.T) {
	var c Counter
	var tr Traffic
	for name, gap := range map[string]uintptr{
		"counter":   uintptr(unsafe.Pointer(&c.shard[1].n)) - uintptr(unsafe.Pointer(&c.shard[0].n)),
		"traffic":   uintptr(unsafe.Pointer(&tr.shard[1].codes[0])) - uintptr(unsafe.Pointer(&tr.shard[0].bytes)),
		"histogram": uintptr(unsafe.Pointer(&tr.latency.shard[1].counts[0])) - uintptr(unsafe.Pointer(&tr.latency.shard[0].nanos)),
	} {
		if gap < cacheLine {
			t.Errorf("%s: shards are %d bytes apart, want at least %d", name, gap, cacheLine)
		}
	}
}

func TestJobs(t *testing.T) {
	m := New()
	var wg sync.WaitGroup
	got := make([]*Job, 30)
	for i := range got {
		wg.Go(func() { got[i] = m.Job([]string{"static", "cache", "redirect"}[i%3]) })
	}
	wg.Wait()
	var names []string
	for _, j := range m.Jobs() {
		names = append(names, j.Name)
	}
	if want := []string{"cache", "redirect", "static"}; !reflect.DeepEqual(names, want) {
		t.Errorf("jobs %v, want %v", names, want)
	}
	for i, j := range got {
		if j != got[i%3] || j == nil {
			t.Errorf("call %d got other counters than call %d", i, i%3)
		}
	}
}

func TestJobsAreBounded(t *testing.T) {
	m := New()
	first := m.Job("first")
	var last *Job
	for i := range maxNames * 2 {
		last = m.Job(fmt.Sprint("made up ", i))
	}
	if n := len(m.Jobs()); n != maxNames+1 {
		t.Errorf("%d jobs, want %d", n, maxNames+1)
	}
	if last.Name != overflow || last != m.Job("one more") {
		t.Errorf("the last job is counted as %q, want %q", last.Name, overflow)
	}
	if m.Job("first") != first {
		t.Error("a job that exists was lost when the registry became full")
	}
}

func TestNoAllocations(t *testing.T) {
	m := New()
	j := m.Job("static")
	if n := testing.AllocsPerRun(1000, func() {
		m.Sent.Writev.Add(9, 100)
		m.Connections.Add(1)
		j.Fast.Observe(9, 200, 100, time.Millisecond)
	}); n != 0 {
		t.Errorf("counting a request allocates %v times", n)
	}
}

func TestRoutes(t *testing.T) {
	m := New()
	a, b := m.Route("a.example", "/", "static"), m.Route("b.example", "/", "static")
	if a == b || a != m.Route("a.example", "/", "static") {
		t.Error("a route's counters are not its own")
	}
	m.Job("none")
	for i := range 2 * maxNames {
		m.Route("c.example", fmt.Sprintf("/%03d/", i), "proxy").Slow.Observe(0, 200, 1, time.Millisecond)
	}
	var sum Reading
	routes := 0
	for _, j := range m.Jobs() {
		if j.Name == "proxy" {
			r := j.Slow.Read()
			sum.Merge(&r)
			routes++
		}
	}
	if routes != maxNames-2+1 || sum.Requests() != 2*maxNames || sum.Bytes != 2*maxNames {
		t.Errorf("%d routes with %d requests and %d bytes", routes, sum.Requests(), sum.Bytes)
	}
	if !slices.IsSortedFunc(m.Jobs(), func(a, b *Job) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Error("jobs are not in the order of their names")
	}
}

func TestReadingSince(t *testing.T) {
	var tr Traffic
	tr.Observe(0, 200, 10, time.Millisecond)
	before := tr.Read()
	tr.Observe(1, 404, 5, time.Second)
	tr.Observe(2, 503, 5, time.Second)
	now := tr.Read()
	diff := now.Since(&before)
	if diff.Requests() != 2 || diff.Between(400, 499) != 1 || diff.Between(500, 599) != 1 || diff.Bytes != 10 || diff.Latency.Count() != 2 {
		t.Errorf("%d requests, %v, %d bytes", diff.Requests(), diff.Codes(), diff.Bytes)
	}
}
