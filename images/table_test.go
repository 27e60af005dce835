package images

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/static/original"
	"millrace/store"
)

// What a table counts is what it takes of the heap, about.
func TestMemoryOfRecords(t *testing.T) {
	const records, body = 4000, 1000
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	table := newTable(nil)
	for i := range records {
		name := fmt.Sprintf("holidays/2026/%d/picture-%05d.jpg", i%10, i)
		f := original.File{Name: name, Size: 100_000, Modified: time.Unix(1_700_000_000, 0), CacheControl: "max-age=300"}
		rec, _ := table.record(f)
		for _, format := range []codec.Format{codec.WebP, codec.AVIF} {
			w := wanted{format: format2(format), id: fmt.Sprintf("%s embedded q80 n60", format)}
			v := table.variant(rec, w)
			head, err := json.Marshal(newMeta(f, w, &convert.Result{Format: w.Format, Data: make([]byte, body), Width: 640, Height: 480, Level: "embedded"}))
			if err == nil {
				err = json.Unmarshal(head, &v.meta)
			}
			if err == nil {
				err = table.hold(rec, v, &store.Object{Size: body, Body: bytes.NewReader(make([]byte, body))}, []string{"Accept"})
			}
			if err != nil {
				t.Fatal(err)
			}
			v.state = ready
		}
	}
	took, counted := heap()-before, table.memory.Held()
	runtime.KeepAlive(table)
	t.Logf("%d bytes for each original with two variants, %d counted", took/records, counted/records)
	if took > counted || took < counted/2 {
		t.Errorf("%d bytes are counted, and %d taken", counted, took)
	}
	table.close()
	if table.memory.Used() != 0 {
		t.Errorf("%d bytes are held after the end", table.memory.Used())
	}
}

// format2 is a format as an engine has it.
func format2(f codec.Format) format { return format{f, "image/" + string(f), "embedded", true} }

// Variants share the memory of their source: whoever is asked for gets what the
// others do not need, and never do all of them take more than there is.
func TestMemoryIsShared(t *testing.T) {
	const limit, pictures = 400_000, 60
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	memory := original.NewMemory(limit)
	r.table.memory = memory.Join() // nothing is in the table yet
	originals := memory.Join()
	large := append(photo(t, 64, 48, 1), make([]byte, 20_000)...) // half of it is held
	ask := func(i int) {
		t.Helper()
		if got := status(r.get(fmt.Sprintf("/%d.jpg", i), takesWebP)); got != "webp" {
			t.Fatalf("%d.jpg: %q", i, got)
		}
	}
	for i := range pictures {
		r.write(fmt.Sprintf("%d.jpg", i), large, time.Hour)
		ask(i)
		if used := memory.Used(); used > limit {
			t.Fatalf("%d bytes are held after %d pictures, of at most %d", used, i+1, limit)
		}
	}
	if held := r.table.memory.Held(); held < limit/2 {
		t.Errorf("%d bytes are held while the other needs none, of %d", held, limit)
	}
	originals.Add(limit / 2)
	for i := range pictures {
		ask(i)
	}
	if used, held := memory.Used(), r.table.memory.Held(); used > limit || held > limit/2 || held < limit/4 {
		t.Errorf("%d of %d bytes are held, %d of them of variants", used, limit, held)
	}
	if n := r.converter.count(); n != pictures {
		t.Errorf("%d conversions of %d pictures", n, pictures)
	}
	if res := r.get("/0.jpg", takesWebP); res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
}

// What the lane sends does not come by here: a crawler that asks for each picture once
// must not evict it.
func TestRecordsThatTheLaneSendsAreSpared(t *testing.T) {
	table := newTable(nil)
	defer table.close()
	named := func(i int) original.File {
		return original.File{Name: fmt.Sprintf("%d.jpg", i), Size: 100_000, Modified: time.Unix(1_700_000_000, 0)}
	}
	hot, _ := table.record(named(0))
	version := hot.gen.Now()
	for i := 1; i < 3*maxRecords; i++ {
		hot.used.Store(true) // as the lane does for lane.Rule.Used
		table.record(named(i))
		if n := table.recent.Len(); n > maxRecords {
			t.Fatalf("%d records", n)
		}
	}
	if !version.Valid() || table.records["0.jpg"] != hot {
		t.Error("evicted although the lane sends it")
	}
	hot.used.Store(false)
	for i := range maxRecords {
		table.record(named(3*maxRecords + i))
	}
	if table.records["0.jpg"] != nil {
		t.Error("not evicted although nobody asks for it")
	}
}
