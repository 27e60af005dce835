package frame

import (
	"bytes"
	"testing"
)

func TestPieces(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abc"), 10_000)
	for _, step := range []int{1, 7, chunkSize - 1, chunkSize, chunkSize + 1, len(all)} {
		var p Pieces
		taken := 0
		for rest := all; len(rest) > 0; rest = rest[min(step, len(rest)):] {
			if !p.Add(rest[:min(step, len(rest))], func(n int) bool { taken += n; return true }) {
				t.Fatal("refused although there was memory")
			}
		}
		if p.Size() != len(all) || taken >= len(all)+chunkSize {
			t.Errorf("by %d: %d bytes of %d, %d taken", step, p.Size(), len(all), taken)
		}
		for _, i := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, len(all) - 1, len(all)} {
			if got := p.appendTo(nil, i); !bytes.Equal(got, all[i:]) {
				t.Errorf("by %d, from %d: %d bytes, want %d", step, i, len(got), len(all)-i)
			}
		}
		if given := p.Free(); given != taken || p.Size() != 0 || len(p.from(0)) != 0 {
			t.Errorf("by %d: %d given back of %d, %d bytes are left", step, given, taken, p.Size())
		}
	}
	var p Pieces
	if p.Add(all, func(int) bool { return len(p.chunks) < 2 }) || p.Free() != 2*chunkSize {
		t.Error("more was taken than allowed")
	}
}
