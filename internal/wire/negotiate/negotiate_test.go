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

// picked is what Accept-Encoding asks of one set of codings, by the letter of RFC 9110, 12.5.3:
// of those that are there the one with the highest weight, the last in our order among equals,
// and identity where it weighs more or nothing else is left.
func picked(line string, available Set) (c Coding, ok bool) {
	weights := map[string]int{}
	for member := range strings.SplitSeq(line, ",") {
		name, weight, valid := parseMember(member)
		name = strings.ToLower(name)
		if name == "x-gzip" {
			name = "gzip"
		}
		if was, there := weights[name]; valid && (!there || weight > was) {
			weights[name] = weight
		}
	}
	of := func(name string) (w int, there bool) {
		if w, there = weights[name]; !there {
			w, there = weights["*"]
		}
		return w, there
	}
	best := 0
	for _, one := range []Coding{Gzip, Zstd, Brotli} {
		if w, _ := of(one.String()); available.Has(one) && w > 0 && w >= best {
			c, best = one, w
		}
	}
	if w, there := weights["identity"]; there && w > best {
		return Identity, true
	}
	w, there := of("identity")
	return c, c != Identity || !there || w > 0
}

func FuzzEncoding(f *testing.F) {
	for _, s := range []string{
		"gzip, deflate, br, zstd", "*;q=0", "identity;q=0.5,x-gzip;q=1.000", ";;q=,", "identity;q=1, *;q=0",
		"br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip;q=0.5", "GZIP, dcb, Dcz;q=0.001, dcb;q=0", "zstd;q=0.2, br;q=0.1, identity;q=0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		p := Of([]string{line})
		again := Of([]string{p.String()})
		if p != again {
			t.Fatalf("%q is %b, and %q is %b", line, p, p, again)
		}
		for set := range all + 1 {
			c, ok := p.Pick(set)
			if want, wantOK := picked(line, set); c != want || ok != wantOK {
				t.Fatalf("%q of %b: %v, %v; want %v, %v", line, set, c, ok, want, wantOK)
			}
		}
	})
}

// TestPreferences: there is one for each order of the codings, and each is that of its text.
func TestPreferences(t *testing.T) {
	seen := map[Preference]string{}
	weights := []string{"", ";q=0", ";q=0.3", ";q=0.6"}
	for n := range 4 * 4 * 4 * 4 * 2 * 2 {
		var line strings.Builder
		for _, name := range []string{"gzip", "zstd", "br", "identity"} {
			line.WriteString(name + weights[n%4] + ",")
			n /= 4
		}
		line.WriteString([]string{"", "dcb"}[n%2] + "," + []string{"", "dcz"}[n/2])
		p := Of([]string{line.String()})
		seen[p] = p.String()
	}
	seen[0] = ""
	if len(seen) != 128 {
		t.Errorf("%d preferences", len(seen))
	}
	for p, text := range seen {
		var lines []string
		if text != "" {
			lines = []string{text}
		}
		if got := Of(lines); got != p {
			t.Errorf("%b is %q, and that is %b", p, text, got)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	for name, line := range map[string]string{"browser": "gzip, deflate, br, zstd", "media": "identity;q=1, *;q=0", "weights": "br;q=1.0, gzip;q=0.8, *;q=0.1"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Of([]string{line})
			}
		})
	}
}
