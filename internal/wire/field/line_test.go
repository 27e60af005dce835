package field

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFields: a map and lines are changed alike.
func TestFields(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"A", "B", "Vary"}
	for range 2000 {
		m, l := Map{}, Lines{}
		for i := range 12 {
			name, value := names[random.IntN(len(names))], fmt.Sprintf("%d, x%d", i, random.IntN(3))
			what := random.IntN(4)
			for _, h := range []Fields{m, &l} {
				switch what {
				case 0:
					h.Set(name, value)
				case 1, 2:
					h.Add(name, value)
				default:
					h.Delete(name)
				}
			}
			if m.Has(name) != l.Has(name) || m.Lists(name, "X1") != l.Lists(name, "X1") {
				t.Fatalf("%v and %v differ in %s", m, l, name)
			}
			if m.Has(name) && l.First(name) != m[name][0] {
				t.Fatalf("%v and %v begin differently", m, l)
			}
		}
		var lines Lines
		for name, values := range m {
			for _, v := range values {
				lines.Add(name, v)
			}
		}
		SortLines(lines)
		SortLines(l)
		if !slices.Equal(lines, l) {
			t.Fatalf("%v, and %v", m, l)
		}
	}
}

// TestMapIsItsOwn: values that somebody else has as well stay as they are.
func TestMapIsItsOwn(t *testing.T) {
	shared := append(make([]string, 0, 4), "a")
	m := Map{"A": shared}
	m.Add("A", "b")
	m["B"] = shared
	m.Add("B", "c")
	if got := m["A"]; len(got) != 2 || got[1] != "b" || shared[0] != "a" {
		t.Error(m)
	}
}

// TestOnly: two lines are not one, whatever the first says.
func TestOnly(t *testing.T) {
	for _, c := range []struct {
		want  string
		lines []string
	}{{"", nil}, {"", []string{""}}, {"a", []string{"a"}}, {"", []string{"a", "b"}}, {"", []string{"", "b"}}, {"", []string{"a", ""}}} {
		l := Lines{{"Other", "x"}}
		for _, value := range c.lines {
			l = append(l, Line{"Name", value}, Line{"Other", "x"})
		}
		if got := l.Only("Name"); got != c.want {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
	}
}
