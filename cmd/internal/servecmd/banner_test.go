package servecmd

import (
	"strings"
	"testing"
	"time"

	"millrace/internal/ops/dashboard"
)

func TestNamed(t *testing.T) {
	until, past := time.Now().AddDate(0, 2, 0), time.Now().AddDate(0, -1, 0)
	got := named([]dashboard.Certificate{
		{Name: "a.example", Until: until}, {Name: "b.example"}, {Name: "c.example", Error: "no", Until: until}, {Name: "d.example"},
	})
	if want := "a.example (good until " + until.Format(time.DateOnly) + "), b.example (no certificate yet), c.example (failed: see `millrace certs`), and 1 more"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := named([]dashboard.Certificate{{Name: "a.example", Until: past}}); got != "a.example (expired on "+past.Format(time.DateOnly)+")" {
		t.Error(got)
	}
	if named(nil) != "" {
		t.Error("no certificates are some")
	}
}

// The banner has at most ten lines; what a command of its own says of itself stays.
func TestShort(t *testing.T) {
	all := [][2]string{{"preset"}, {"ttl"}, {"keeps"}, {"names"}, {"images"}, {"limits"}, {"log"}, {"admin"}, {"off"}, {"stop"}}
	for n, want := range map[int]string{
		10: "preset ttl keeps names images limits log admin off stop",
		8:  "preset ttl keeps names images limits admin stop",
		3:  "preset ttl keeps names admin stop",
	} {
		var got []string
		rows := make([][2]string, len(all))
		copy(rows, all)
		for _, row := range short(rows, n) {
			got = append(got, row[0])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
