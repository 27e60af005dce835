package purge

import (
	"fmt"
	"testing"
)

// million is how many objects are stored. A purge does not look at them.
const million = 1_000_000

func filled(b *testing.B) (*Index, []Object) {
	index := New(DefaultMost)
	objects := make([]Object, million)
	for i := range objects {
		objects[i] = Object{URL: fmt.Sprintf("http://example.com/page/%d", i), Tags: []string{fmt.Sprint("tag", i%DefaultMost)}, At: index.Now()}
	}
	for i := range DefaultMost {
		index.Purge(Selector{Tag: fmt.Sprint("tag", i)})
	}
	return index, objects
}

// BenchmarkPurgeTag with 100,000 tags remembered, a million objects stored, and
// the oldest half given up every 50,000.
func BenchmarkPurgeTag(b *testing.B) {
	index, _ := filled(b)
	names := make([]string, 4*DefaultMost)
	for i := range names {
		names[i] = fmt.Sprint("other", i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		index.Purge(Selector{Tag: names[i%len(names)]})
		i++
	}
}

// BenchmarkStateUnchanged is what every hit pays.
func BenchmarkStateUnchanged(b *testing.B) {
	index, objects := filled(b)
	o := objects[0]
	o.At = index.Now()
	var checked Time
	index.State(&o, &checked)
	b.ReportAllocs()
	for b.Loop() {
		if index.State(&o, &checked) != Valid {
			b.Fatal("purged")
		}
	}
}

// BenchmarkStateParallel is the same from all processors.
func BenchmarkStateParallel(b *testing.B) {
	index, _ := filled(b)
	o := Object{URL: "http://example.com/", At: index.Now()}
	var checked Time
	index.State(&o, &checked)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			index.State(&o, &checked)
		}
	})
}

// BenchmarkStateChanged is what a hit pays once after a purge of a tag.
func BenchmarkStateChanged(b *testing.B) {
	index, _ := filled(b)
	o := Object{URL: "http://example.com/page", Host: "example.com", Tags: []string{"a", "b", "c", "d"}, At: index.Now()}
	index.Purge(Selector{Tag: "x"})
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			var checked Time
			if index.State(&o, &checked) != Valid {
				b.Error("purged")
			}
		}
	})
}

// BenchmarkStatePatterns is what it pays when all of 256 globs are new to it.
func BenchmarkStatePatterns(b *testing.B) {
	index := New(0)
	o := Object{URL: "http://example.com/page/with/a/path.json?and=query&of=parameters", Host: "example.com", At: index.Now()}
	for i := range mostPatterns {
		index.Purge(Selector{Glob: fmt.Sprintf("*/a*h?%d*", i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		var checked Time
		if index.State(&o, &checked) != Valid {
			b.Fatal("purged")
		}
	}
}

// BenchmarkSave of 100,000 tags.
func BenchmarkSave(b *testing.B) {
	index, _ := filled(b)
	for b.Loop() {
		b.SetBytes(int64(len(index.Save())))
	}
}
