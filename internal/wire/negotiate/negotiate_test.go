package negotiate

import (
	"strings"
	"testing"
)

const all = Set(1<<Gzip | 1<<Zstd | 1<<Brotli)

func TestEncoding(t *testing.T) {
	gz := Set(0).With(Gzip)
	for _, c := range []struct {
		lines     string // separated by |; "-" is not a header
		available Set
		want      Coding
		ok        bool
	}{
		{"-", all, Identity, true},
		{"", all, Identity, true},
		{"gzip, deflate, br, zstd", all, Brotli, true},
		{"gzip, deflate, br, zstd", gz, Gzip, true},
		{"gzip, zstd", all, Zstd, true},
		{"gzip|br", all, Brotli, true},
		{"gzip;q=1.0, br;q=0.9", all, Gzip, true},
		{"gzip;q=0.999,br;q=1", all, Brotli, true},
		{"br;q=0", all, Identity, true},
		{"br;q=0.000, gzip;q=0.001", all, Gzip, true},
		{"GZIP", all, Gzip, true},
		{"x-gzip", all, Gzip, true},
		{"*", all, Brotli, true},
		{"*;q=0.5, gzip;q=0.6", all, Gzip, true},
		{"br;q=0, *", all, Zstd, true},
		{"*;q=0", all, Identity, false},
		{"identity;q=0", 0, Identity, false},
		{"identity;q=0, gzip", all, Gzip, true},
		{"identity;q=0, *;q=0", all, Identity, false},
		{"identity, *;q=0", all, Identity, true},
		{"*;q=0, gzip", 0, Identity, false},
		{"identity, gzip;q=0.5", all, Identity, true},
		{"identity;q=0.5, gzip;q=0.5", all, Gzip, true},
		{"identity;q=0.5, *;q=0.1", all, Identity, true},
		{"gzip ; q=0.5 , br;q=0.4", all, Gzip, true},
		{"gzip;Q=0.5, br;q=0.4", all, Gzip, true},
		// Malformed members are as if they were not there.
		{"br;q=2, gzip", all, Gzip, true},
		{"br;q=1.001, gzip", all, Gzip, true},
		{"br;q=0.1234, gzip", all, Gzip, true},
		{"br;q=, gzip", all, Gzip, true},
		{"br;q, gzip", all, Gzip, true},
		{"br;quality=1, gzip", all, Gzip, true},
		{"br;q=-1, gzip", all, Gzip, true},
		{"br;q=0x, gzip", all, Gzip, true},
		{";q=1,, gzip", all, Gzip, true},
		{"br gzip", all, Identity, true},
	} {
		var lines []string
		if c.lines != "-" {
			lines = strings.Split(c.lines, "|")
		}
		got, ok := Encoding(lines, c.available)
		if got != c.want || ok != c.ok {
			t.Errorf("%q of %b: %v, %v; want %v, %v", c.lines, c.available, got, ok, c.want, c.ok)
		}
	}
}

func TestEncodingDoesNotAllocate(t *testing.T) {
	lines := []string{"gzip, deflate, br;q=0.9, zstd"}
	if n := testing.AllocsPerRun(100, func() { Encoding(lines, all) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzEncoding(f *testing.F) {
	for _, s := range []string{"gzip, deflate, br, zstd", "*;q=0", "identity;q=0.5,x-gzip;q=1.000", ";;q=,"} {
		f.Add(s, uint8(all))
	}
	f.Fuzz(func(t *testing.T, line string, available uint8) {
		set := Set(available)
		c, ok := Encoding([]string{line}, set)
		if c >= Codings || !set.Has(c) {
			t.Fatalf("%q: chose %d, which is not there", line, c)
		}
		if c != Identity && (!ok || !strings.Contains(line, "*") && !strings.Contains(strings.ToLower(line), c.String())) {
			t.Fatalf("%q: chose %v, which nobody asked for", line, c)
		}
	})
}
