package picture

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// The benchmarks' pictures have 4 megapixels. The figure that matters is time
// a megapixel; on a busy machine, that of the quickest run says most.
const benchWidth, benchHeight = 2448, 1632

func BenchmarkLimited420(b *testing.B) {
	for _, c := range models() {
		run(b, c.name, scene(c), func(p *Picture) { p.Limited420() })
	}
}

func BenchmarkNRGBA(b *testing.B) {
	for _, c := range models() {
		run(b, c.name, scene(c), func(p *Picture) { p.NRGBA() })
	}
}

func BenchmarkOrient(b *testing.B) {
	for _, c := range []kind{{"420", YCbCr, Sub420, false, false}, {"NRGBA", NRGBA, Sub444, false, false}} {
		p := scene(c)
		for _, o := range []int{2, 3, 6} {
			run(b, fmt.Sprintf("%s/%d", c.name, o), p, func(p *Picture) { p.Orient(o) })
		}
	}
}

func BenchmarkResize(b *testing.B) {
	for _, c := range []kind{
		{"420", YCbCr, Sub420, false, false},
		{"NRGBA", NRGBA, Sub444, false, false},
		{"transparent", NRGBA, Sub444, false, true},
	} {
		p := scene(c)
		for _, w := range []int{1800, benchWidth / 2, 800, 200} {
			run(b, fmt.Sprintf("%s/%d", c.name, w), p, func(p *Picture) { p.Resize(w, w*benchHeight/benchWidth) })
		}
	}
}

func BenchmarkGraphic(b *testing.B) {
	run(b, "NRGBA", scene(kind{"NRGBA", NRGBA, Sub444, false, false}), func(p *Picture) { p.Graphic() })
}

func run(b *testing.B, name string, p *Picture, f func(*Picture)) {
	b.Run(name, func(b *testing.B) {
		best := time.Duration(math.MaxInt64)
		for b.Loop() {
			start := time.Now()
			f(p)
			best = min(best, time.Since(start))
		}
		b.ReportMetric(float64(best.Nanoseconds())/(benchWidth*benchHeight/1e6), "best-ns/MP")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(benchWidth*benchHeight/1e6), "ns/MP")
		b.ReportMetric(0, "ns/op")
	})
}

// scene is as smooth as photographs are, with noise of a few steps: branches
// are predicted as well as there.
func scene(k kind) *Picture {
	seed := uint32(1)
	return pictureOf(benchWidth, benchHeight, k, func(plane, x, y int) byte {
		seed = seed*1664525 + 1013904223
		if k.model == NRGBA || k.model == CMYK {
			plane, x = x%4, x/4
		}
		if k.model == NRGBA && plane == 3 {
			return byte(min(255, max(0, x-y/2))) // transparent, soft, opaque
		}
		return byte(128 + 60*math.Sin(float64(x+plane*40)/150)*math.Cos(float64(y)/90) + float64(seed>>29))
	})
}
