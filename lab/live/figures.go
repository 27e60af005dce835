package live

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// sparkSeconds is how far back the sparkline looks.
const sparkSeconds = 60

// A minute is the mean rate in each of the last seconds.
type minute struct {
	last int64 // the newest second, in Unix time; 0: nothing yet
	sum  [sparkSeconds]float64
	n    [sparkSeconds]int
}

// add counts a rate seen at a time. One from before the newest second counts as
// of that: events come in order, but for clocks that are set back.
func (m *minute) add(at time.Time, rate float64) {
	second := at.Unix()
	switch {
	case m.last == 0 || second >= m.last+sparkSeconds:
		*m = minute{last: second}
	case second > m.last:
		for ; m.last < second; m.last++ {
			i := (m.last + 1) % sparkSeconds
			m.sum[i], m.n[i] = 0, 0
		}
	}
	i := m.last % sparkSeconds
	m.sum[i] += rate
	m.n[i]++
}

// line draws the last seconds, as many as fit, from zero to the highest, which it
// returns too. A second without a figure is a gap.
func (m *minute) line(width int, now time.Time) (drawn string, highest float64) {
	if m.last == 0 || width <= 0 {
		return "", 0
	}
	const steps = "▁▂▃▄▅▆▇█"
	glyphs := []rune(steps)
	end := max(m.last, now.Unix()-1) // the second that runs has no figure yet
	width = min(width, sparkSeconds)
	rates := make([]float64, 0, width)
	for s := end - int64(width) + 1; s <= end; s++ {
		rate := -1.0
		if i := s % sparkSeconds; s <= m.last && s > m.last-sparkSeconds && m.n[i] > 0 {
			rate = m.sum[i] / float64(m.n[i])
		}
		rates = append(rates, rate)
		highest = max(highest, rate)
	}
	var b strings.Builder
	for _, r := range rates {
		switch {
		case r < 0:
			b.WriteByte(' ')
		case highest == 0:
			b.WriteRune(glyphs[0])
		default:
			b.WriteRune(glyphs[min(len(glyphs)-1, int(r/highest*float64(len(glyphs))))])
		}
	}
	return strings.TrimLeft(b.String(), " "), highest
}

// sparkScale is what a sparkline's height and length stand for.
func sparkScale(drawn string, highest float64) string {
	if drawn == "" || highest <= 0 {
		return ""
	}
	return fmt.Sprintf(" 0 to %s, %d s", perSecond(highest), utf8.RuneCountInString(drawn))
}

// scaleRoom is how wide a sparkScale may be.
const scaleRoom = len(" 0 to 999,999,999, 60 s")

// grouped writes a count with commas: 1,234,567.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// perSecond writes a rate so that its digits mean something.
func perSecond(rate float64) string {
	if rate > 0 && rate < 10 {
		return strconv.FormatFloat(rate, 'f', 2, 64)
	}
	return grouped(uint64(max(0, rate) + 0.5))
}

// brief writes a latency in three digits.
func brief(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if v := float64(d) / float64(u.unit); v >= 1 {
			digits := 2
			if v >= 10 {
				digits--
			}
			if v >= 100 {
				digits--
			}
			return strconv.FormatFloat(v, 'f', digits, 64) + " " + u.name
		}
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}

// clock writes a time that a person waits: 45 s, 2:05, 1:02:03.
func clock(d time.Duration) string {
	s := int64((max(0, d) + time.Second/2) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d:%02d min", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d h", s/3600, s/60%60, s%60)
}

// bar fills cells by a share of them, to an eighth of a cell.
func bar(share float64, cells int) (full, empty string) {
	cells = max(0, cells)
	const parts = "▏▎▍▌▋▊▉"
	eighths := int(min(1, max(0, share))*float64(cells*8) + 0.5)
	full = strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		full += string([]rune(parts)[rest-1])
	}
	return full, strings.Repeat("░", cells-(eighths+7)/8)
}

// cores draws how much of each of n cores is busy, one group of cells for
// each; where so many do not fit, one bar stands for all.
func cores(busy float64, n, width int) []string {
	const widest = 10 // cells of one core: tenths
	each := min(widest, (width+1)/n-1)
	if each < 2 {
		full, empty := bar(busy/float64(n), min(width, 2*widest))
		return []string{full, empty}
	}
	var drawn []string // full and empty in turn
	for i := range n {
		full, empty := bar(busy-float64(i), each)
		if i < n-1 {
			empty += " "
		}
		drawn = append(drawn, full, empty)
	}
	return drawn
}
