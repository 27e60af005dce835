package convert

import "testing"

// BenchmarkConvert is what a worker does for a photograph: it reads, decodes and
// encodes. The experiment pgo-proof takes its CPU profile, since workers are processes
// that nobody can ask for theirs.
func BenchmarkConvert(b *testing.B) {
	c, source := embedded(b), asJPEG(b, photograph(320, 240))
	for b.Loop() {
		convertTo(b, c, source, Spec{})
	}
}
