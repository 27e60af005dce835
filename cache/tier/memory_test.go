package tier

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
)

// heapInUse is what lives on the heap.
func heapInUse() int64 {
	var m runtime.MemStats
	for range 3 { // what pools held goes with the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// keep stores an answer with that many fields of its own.
func keep(m *Tiers, n, fields, body int) {
	header := http.Header{
		"Cache-Control": {"max-age=3600"}, "Date": {"Sun, 06 Nov 1994 08:49:37 GMT"},
		"Content-Length": {strconv.Itoa(body)}, "Via": {"1.1 millrace"},
	}
	for i := range fields {
		header["X-Field-"+strconv.Itoa(i)] = []string{"the value of " + strconv.Itoa(n)}
	}
	url := "http://a.example/some/longer/path/" + strconv.Itoa(n)
	now := time.Now()
	m.Put(strings.Clone(url), &object.Object{
		Status: 200, Fields: object.FieldsOf(header), Body: make([]byte, body), Size: int64(body), Stamp: now.UnixNano(),
		Facts: rfc9111.Facts{Received: now, Fresh: time.Hour, Source: "max-age"},
		Vary:  []string{}, By: []string{}, Owner: purge.Object{URL: url, Host: "a.example"},
	})
}

// The budget is what is really taken: many small answers, whose overhead is as
// large as they are, with few and with many fields.
func TestMemoryOfManyObjects(t *testing.T) {
	const budget = 16 << 20 // with 128 MiB the figures are the same, but for 2 % of fixed costs
	for name, c := range map[string]struct{ fields, body, objects int }{
		"1 KB":             {3, 1 << 10, 6_000},
		"almost nothing":   {0, 100, 8_000},
		"20 fields":        {20, 1 << 10, 4_000},
		"8 KB":             {8, 8 << 10, 2_000},
		"too many to hold": {3, 1 << 10, 16_000},
	} {
		before := heapInUse()
		h, err := New(Options{Budget: budget, Largest: 1 << 20, Evicted: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.objects {
			keep(h, i, c.fields, c.body)
		}
		held, said, n := heapInUse()-before, h.Bytes(), h.Entries()
		t.Logf("%s: %d objects of %d bytes, %d said: %.2f", name, n, held/n, said/n, float64(held)/float64(said))
		if ratio := float64(held) / float64(said); ratio < 0.85 || ratio > 1.15 {
			t.Errorf("%s: %d bytes are held, and %d said: %.2f", name, held, said, ratio)
		}
		if said > budget {
			t.Errorf("%s: %d bytes of a budget of %d", name, said, budget)
		}
		h.Close()
	}
}

// An answer that was asked for earlier and comes later does not replace the newer.
func TestLateAnswer(t *testing.T) {
	m, err := NewMemory(1<<20, func() {})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	newer := &object.Object{Status: 200, Facts: rfc9111.Facts{Received: now}}
	older := &object.Object{Status: 200, Facts: rfc9111.Facts{Received: now.Add(-time.Second)}}
	if !m.Put("k", newer) || m.Put("k", older) || m.Get("k").Objects[0] != newer {
		t.Error("the older one is there")
	}
}
