package bytesize

import "testing"

func TestParse(t *testing.T) {
	for in, want := range map[string]Size{
		"0": 0, "4096": 4096, "64MiB": 64 << 20, "64 mib": 64 << 20, "1.5KiB": 1536, "10GB": 10e9, "7B": 7,
	} {
		got, err := Parse(in)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "12 parsecs", "NaN", "1e30GB", "Inf"} {
		if got, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %d, want an error", in, got)
		}
	}
}

func TestStringReadsBack(t *testing.T) {
	for _, s := range []Size{0, 1, 1023, 1024, 1536, 64 << 20, 3 << 40, 10e9} {
		got, err := Parse(s.String())
		if err != nil || got != s {
			t.Errorf("Parse(%q) = %d, %v; want %d", s.String(), got, err, s)
		}
	}
}
