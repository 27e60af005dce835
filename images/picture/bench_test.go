package picture

import (
	"fmt"
	"testing"
)

// The benchmarks' pictures have 4 megapixels; the figure that matters is ns/MP.
const benchWidth, benchHeight = 2448, 1632

func BenchmarkLimited420(b *testing.B) {
	for _, c := range models() {
		run(b, c.name, noise(benchWidth, benchHeight, c, 1), func(p *Picture) { p.Limited420() })
	}
}

func BenchmarkNRGBA(b *testing.B) {
	for _, c := range models() {
		run(b, c.name, noise(benchWidth, benchHeight, c, 1), func(p *Picture) { p.NRGBA() })
	}
}

func BenchmarkOrient(b *testing.B) {
	for _, c := range []kind{{"420", YCbCr, Sub420, false, false}, {"NRGBA", NRGBA, Sub444, false, false}} {
		p := noise(benchWidth, benchHeight, c, 1)
		for _, o := range []int{2, 3, 6} {
			run(b, fmt.Sprintf("%s/%d", c.name, o), p, func(p *Picture) { p.Orient(o) })
		}
	}
}

func BenchmarkResize(b *testing.B) {
	for _, c := range []kind{
		{"420", YCbCr, Sub420, false, false},
		{"NRGBA", NRGBA, Sub444, false, false}, {"transparent", NRGBA, Sub444, false, true},
	} {
		p := noise(benchWidth, benchHeight, c, 1)
		for _, w := range []int{1800, benchWidth / 2, 800, 200} {
			run(b, fmt.Sprintf("%s/%d", c.name, w), p, func(p *Picture) { p.Resize(w, w*benchHeight/benchWidth) })
		}
	}
}

func BenchmarkGraphic(b *testing.B) {
	run(b, "NRGBA", noise(benchWidth, benchHeight, kind{"NRGBA", NRGBA, Sub444, false, false}, 1), func(p *Picture) { p.Graphic() })
}

func run(b *testing.B, name string, p *Picture, f func(*Picture)) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			f(p)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(benchWidth*benchHeight/1e6), "ns/MP")
		b.ReportMetric(0, "ns/op")
	})
}
