package jpeg

import (
	"math"
	"math/rand/v2"
	"testing"
)

// reference is the definition of the inverse transform (A.3.3) for size × size
// samples of the lowest coefficients, in row order.
func reference(coefficients *[64]int, size, x, y int) float64 {
	sum := 0.0
	for v := range size {
		for u := range size {
			if coefficients[v*8+u] == 0 {
				continue
			}
			scale := 1.0
			if u == 0 {
				scale /= math.Sqrt2
			}
			if v == 0 {
				scale /= math.Sqrt2
			}
			sum += scale * float64(coefficients[v*8+u]) *
				math.Cos(float64((2*x+1)*u)*math.Pi/float64(2*size)) *
				math.Cos(float64((2*y+1)*v)*math.Pi/float64(2*size))
		}
	}
	return min(max(sum/4+128, 0), 255)
}

func TestTransforms(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, size := range []int{8, 4, 2, 1} {
		worst, squares, n := 0.0, 0.0, 0
		for round := range 900 {
			var table [64]uint16
			for k := range table {
				table[k] = uint16(1 + random.IntN(40))
			}
			weights := weigh(&table, size)
			last := uint(random.IntN(64))
			reach := []int{2, 8, 30}[round%3]
			var coefficients [64]int
			var blk block
			for k := range last + 1 {
				v := random.IntN(2*reach+1) - reach
				if k == 0 {
					v = (random.IntN(2400) - 1200) / int(table[0])
				}
				coefficients[zigzag[k]] = v * int(table[k])
				blk[places[k]] += uint64(int64(v)) * weights[k]
			}
			c := component{size: size, stride: size + 3}
			dst := make([]byte, c.stride*(size-1)+size)
			c.draw(&blk, last, dst)
			if blk != (block{}) {
				t.Fatalf("size %d: a block up to coefficient %d is not zero afterwards", size, last)
			}
			for y := range size {
				for x := range size {
					d := math.Abs(float64(dst[y*c.stride+x]) - reference(&coefficients, size, x, y))
					worst = max(worst, d)
					squares += d * d
					n++
				}
			}
		}
		// Rounding alone has 0.5 and 1/12.
		if mean := squares / float64(n); worst > 0.9 || mean > 0.085 {
			t.Errorf("size %d: the worst error is %.3f, the mean square %.4f", size, worst, mean)
		}
	}
}

// TestTransformOverflow: coefficients that no encoder makes must not crash it.
func TestTransformOverflow(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for _, size := range []int{8, 4, 2, 1} {
		c := component{size: size, stride: size}
		dst := make([]byte, size*size)
		for range 1000 {
			var blk block
			for i := range blk {
				blk[i] = random.Uint64()
			}
			if size < 8 {
				clear(blk[16:])
			}
			if size < 4 {
				blk = block{blk[0], 0, 0, 0, blk[4]}
			}
			c.draw(&blk, 63, dst)
		}
	}
}
