package experiment

import "testing"

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := Median(c.in); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.in, got, c.want)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[float64]string{500: "500 ns", 1234: "1.23 µs", 138_000: "138 µs", 12_340_000: "12.3 ms", 2.5e9: "2.50 s"} {
		if got := Duration(in); got != want {
			t.Errorf("%v: %s, want %s", in, got, want)
		}
	}
}

func TestCapital(t *testing.T) {
	for in, want := range map[string]string{"": "", "over": "Over", "“small” costs": "“small” costs", "é": "É", "net/http is": "net/http is"} {
		if got := Capital(in); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
