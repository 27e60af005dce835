package live

import (
	"strings"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	for got, want := range map[string]string{
		grouped(0):                      "0",
		grouped(999):                    "999",
		grouped(1000):                   "1,000",
		grouped(1234567):                "1,234,567",
		perSecond(0):                    "0",
		perSecond(0.25):                 "0.25",
		perSecond(9.999):                "10.00",
		perSecond(116485.4):             "116,485",
		perSecond(-1):                   "0",
		brief(999):                      "999 ns",
		brief(1000):                     "1.00 µs",
		brief(12345):                    "12.3 µs",
		brief(412 * time.Microsecond):   "412 µs",
		brief(1500 * time.Millisecond):  "1.50 s",
		brief(2 * time.Minute):          "120 s",
		clock(-time.Second):             "0 s",
		clock(59400 * time.Millisecond): "59 s",
		clock(59600 * time.Millisecond): "1:00 min",
		clock(3599 * time.Second):       "59:59 min",
		clock(3723 * time.Second):       "1:02:03 h",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		share float64
		want  string
	}{{0, "░░░░"}, {0.5, "██░░"}, {1, "████"}, {2, "████"}, {-1, "░░░░"}, {0.28, "█▏░░"}, {0.99, "████"}, {0.95, "███▊"}} {
		full, empty := bar(c.share, 4)
		if full+empty != c.want {
			t.Errorf("%v: %q, want %q", c.share, full+empty, c.want)
		}
	}
}

func TestCores(t *testing.T) {
	for _, c := range []struct {
		busy     float64
		n, width int
		want     string
	}{
		{1.5, 2, 40, "██████████ █████░░░░░"},
		{0.5, 1, 40, "█████░░░░░"},
		{1.5, 2, 9, "████ ██░░"},
		{32, 64, 30, "██████████░░░░░░░░░░"}, // one bar for all
		{3, 2, 9, "████ ████"},               // more than there are: it counted children that ended
	} {
		if got := strings.Join(cores(c.busy, c.n, c.width), ""); got != c.want {
			t.Errorf("%v of %d in %d: %q, want %q", c.busy, c.n, c.width, got, c.want)
		}
	}
}

func TestSparkline(t *testing.T) {
	var m minute
	if got, _ := m.line(10, noon()); got != "" {
		t.Errorf("nothing yet: %q", got)
	}
	at := func(s float64) time.Time { return noon().Add(time.Duration(s * float64(time.Second))) }
	m.add(at(0), 100)
	m.add(at(0.5), 300) // 200 on average
	m.add(at(1), 400)
	m.add(at(3), 0)
	if got, _ := m.line(10, at(3)); got != "▅█ ▁" {
		t.Errorf("with a gap: %q", got)
	}
	if got, highest := m.line(10, at(3)); sparkScale(got, highest) != " 0 to 400, 4 s" {
		t.Errorf("its scale: %q", sparkScale(got, highest))
	}
	if got, _ := m.line(2, at(3)); got != "▁" {
		t.Errorf("only the last two seconds, of which one is a gap: %q", got)
	}
	m.add(at(2), 400) // a clock that was set back
	if got, _ := m.line(10, at(3)); got != "▅█ ▅" {
		t.Errorf("after an older figure: %q", got)
	}
	if got, _ := m.line(10, at(6)); got != "▅█ ▅  " {
		t.Errorf("some seconds later: %q", got)
	}
	for s := range 3 * sparkSeconds {
		m.add(at(float64(10+s)), 1)
	}
	if got, _ := m.line(1000, at(10+3*sparkSeconds)); got != strings.Repeat("█", sparkSeconds) {
		t.Errorf("over a minute: %q", got)
	}
	m.add(at(100_000), 1)
	if got, _ := m.line(1000, at(100_000)); got != "█" {
		t.Errorf("after a long silence: %q", got)
	}
}
