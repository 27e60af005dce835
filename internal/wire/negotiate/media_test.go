package negotiate

import (
	"fmt"
	"strings"
	"testing"
)

const (
	chrome    = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
	oldSafari = "image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5"
)

func TestMedia(t *testing.T) {
	offers := []string{"image/avif", "image/webp"}
	for _, c := range []struct {
		lines string // separated by |; "-" is not a header
		want  string
	}{
		{"-", ""},
		{"", ""},
		{chrome, "image/avif:1000 image/webp:1000"},
		{"image/webp,image/avif", "image/avif:1000 image/webp:1000"},                                                 // equals: our order
		{"text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,image/apng,*/*;q=0.8", "image/webp:1000"}, // a picture opened by itself
		{"image/png|image/webp", "image/webp:1000"},
		{"image/avif|image/webp", "image/avif:1000 image/webp:1000"},
		// Wildcards say nothing, neither yes nor no.
		{oldSafari, ""},
		{"*/*", ""},
		{"image/*", ""},
		{"image/*;q=0, image/webp", "image/webp:1000"},
		{"*/*;q=0, image/webp;q=0.1", "image/webp:100"},
		{"image/webp*", ""},
		// Weights.
		{"image/avif;q=0.5, image/webp;q=0.9", "image/webp:900 image/avif:500"},
		{"image/avif;q=0, image/webp", "image/webp:1000"},
		{"image/avif;q=0.000,image/webp;q=0.001", "image/webp:1"},
		{"image/avif;q=0,*/*", ""},
		{"image/webp ; q=0.4 , image/avif\t;\tQ=1.0", "image/avif:1000 image/webp:400"},
		{"IMAGE/WebP", "image/webp:1000"},
		{"image/webp;q=0.2,image/webp;q=0.7", "image/webp:700"},
		// Parameters.
		{"image/avif;v=b", "image/avif:1000"},
		{"image/avif;v=b;q=0.3", "image/avif:300"},
		{"image/avif;v=b;q=0, image/avif", "image/avif:1000"},
		{"image/avif;q=0, image/avif;v=b", ""},
		{"image/avif;q=0;ext=1, image/avif;v=b", ""}, // an accept-ext does not make it special
		{"image/webp;;q=0.5;", "image/webp:500"},
		{"image/webp;level", "image/webp:1000"},
		{`image/webp;x="a,b;q=0";q=0.5, image/avif`, "image/avif:1000 image/webp:500"},
		{`text/html;x="image/webp,image/avif", image/avif`, "image/avif:1000"},
		{`text/html;x="\",image/webp"`, ""},
		// Malformed members are as if they were not there.
		{"image/webp;q=2, image/avif", "image/avif:1000"},
		{"image/webp;q=0.1234", ""},
		{"image/webp;q=", ""},
		{"image/webp;q", ""},
		{"image/webp;q =1", ""},
		{"image/webp;q= 1", ""},
		{"image/webp;q=1;q=1", ""},
		{"image/webp;q=-1", ""},
		{"image/webp;q=.5", ""},
		{"image/webp;q=0;q", ""},
		{`image/webp;q="1"`, ""},
		{`image/webp;x="`, ""},
		{`image/avif;x=", image/webp`, ""},
		{`image/avif;x=",|image/webp`, "image/webp:1000"},
		{",,;,/,image/webp,", "image/webp:1000"},
		{"image / webp", ""},
		{"image/webp image/avif", ""},
		{"webp", ""},
	} {
		var lines []string
		if c.lines != "-" {
			lines = strings.Split(c.lines, "|")
		}
		if got := media(Media(nil, lines, offers)); got != c.want {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
	}
}

func TestWeight(t *testing.T) {
	for _, c := range []struct {
		lines string // separated by |; "-" is not a header
		offer string
		want  int
	}{
		{"-", "image/jpeg", 1000},
		{"", "image/jpeg", 0},
		{"image/webp", "image/jpeg", 0},
		{"image/jpeg;q=0.4", "image/jpeg", 400},
		{"image/webp, */*;q=0.3", "image/jpeg", 300},
		{"*/*;q=0.3, image/*;q=0.2", "image/jpeg", 200},
		{"*/*|image/*;q=0.2|image/JPEG;q=0.1", "image/jpeg", 100},
		{"*/*, image/jpeg;q=0", "image/jpeg", 0},
		{"text/*, */*;q=0.5", "image/jpeg", 500},
		{chrome, "image/png", 1000},
		{oldSafari, "image/jpeg", 800},
	} {
		var lines []string
		if c.lines != "-" {
			lines = strings.Split(c.lines, "|")
		}
		if got := Weight(lines, c.offer); got != c.want {
			t.Errorf("%q of %q: %d, want %d", c.offer, c.lines, got, c.want)
		}
	}
}

func media(list []Medium) string {
	var s []string
	for _, m := range list {
		s = append(s, fmt.Sprintf("%s:%d", m.Type, m.Weight))
	}
	return strings.Join(s, " ")
}

func TestMediaAppends(t *testing.T) {
	before := []Medium{{"x", 1}}
	got := media(Media(before, []string{"image/webp, image/avif;q=0.5"}, []string{"image/avif", "image/webp"}))
	if want := "x:1 image/webp:1000 image/avif:500"; got != want {
		t.Errorf("%q, want %q: what was there is not sorted in", got, want)
	}
}

func TestMediaDoesNotAllocate(t *testing.T) {
	lines, offers := []string{chrome}, []string{"image/avif", "image/webp"}
	n := testing.AllocsPerRun(100, func() {
		var room [2]Medium
		if len(Media(room[:0], lines, offers)) != 2 {
			t.Error("both are in there")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzMedia(f *testing.F) {
	for _, s := range []string{chrome, oldSafari, "*/*", `image/webp;q=0;v="a,\"b"; x=",image/avif`, ";;q=,", "image/webp;q=0.5,IMAGE/webp;q=1.000"} {
		f.Add(s, "image/avif")
	}
	offers := []string{"image/avif", "image/webp"}
	f.Fuzz(func(t *testing.T, one, two string) {
		got := Media(nil, []string{one, two}, offers)
		for i, m := range got {
			if m.Weight < 1 || m.Weight > 1000 || i > 0 && m.Weight > got[i-1].Weight {
				t.Fatalf("%q, %q: weights of %v", one, two, got)
			}
			if !strings.Contains(strings.ToLower(one+"\n"+two), m.Type) {
				t.Fatalf("%q, %q: %s was not named", one, two, m.Type)
			}
		}
		// Lines are one list (RFC 9110, 5.3), and their order says nothing.
		if !strings.Contains(one+two, `"`) {
			if joined := Media(nil, []string{two + " ,\t" + one}, offers); media(joined) != media(got) {
				t.Fatalf("%q, %q: %v as lines, %v as one", one, two, got, joined)
			}
		}
	})
}

func BenchmarkMedia(b *testing.B) {
	offers := []string{"image/avif", "image/webp"}
	for _, c := range []struct{ name, line string }{{"chrome", chrome}, {"safari", oldSafari}, {"curl", "*/*"}} {
		b.Run(c.name, func(b *testing.B) {
			lines := []string{c.line}
			var room [2]Medium
			b.ReportAllocs()
			for b.Loop() {
				Media(room[:0], lines, offers)
			}
		})
	}
}
