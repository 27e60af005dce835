package live

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"millrace/lab/record"
)

const (
	labelWidth = 12 // "requests/s" and two blanks
	numberRoom = 11 // "999,999,999"
	narrowest  = 20 // what is drawn for anything narrower, cut off by the terminal
	widest     = 100
)

// styles are of the 16 colours that a person has chosen to be readable; the
// terminal's own rules (NO_COLOR, dumb terminals) take them away in the
// renderer. Nothing is said by colour alone.
type styles struct{ title, label, dim, good, bad, warn, full lipgloss.Style }

func newStyles() styles {
	s := lipgloss.NewStyle()
	return styles{
		title: s.Bold(true),
		label: s.Faint(true),
		dim:   s.Faint(true),
		good:  s.Foreground(lipgloss.Green),
		bad:   s.Bold(true).Foreground(lipgloss.Red),
		warn:  s.Foreground(lipgloss.Yellow),
		full:  s.Foreground(lipgloss.Cyan),
	}
}

// View draws the model on the terminal's second screen, where nothing is left of
// lines that broke when the terminal became narrower. The last line stays on the first.
func (m model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = m.end == nil && !m.forced
	return v
}

// draw is the view as text. It is never higher than the terminal, whose top
// lines would be lost, and ends with a line break: whatever is printed after
// the view begins there.
func (m model) draw() string {
	st := newStyles()
	width := min(widest, max(narrowest, m.width-1)) // the last column would wrap in some terminals
	if m.end != nil || m.forced {
		return cut(m.last(st), width) + "\n"
	}
	head := []string{cut(st.title.Render(m.title), width), cut(m.doing(), width)}
	body := m.figureLines(st, width)
	foot := []string{"", cut(m.progress(st, width), width), cut(m.keys(st), width)}

	room := m.height - len(head) - len(body) - len(foot) - 1
	findings := m.findings(st, width, room-1)
	if len(findings) > 0 {
		findings = append([]string{""}, findings...)
	}
	var lines []string
	for _, part := range [][]string{head, body, findings, foot} {
		lines = append(lines, part...)
	}
	if fit := max(1, m.height-1); len(lines) > fit { // a terminal of a few lines: what was last is worth most
		lines = lines[len(lines)-fit:]
	}
	return strings.Join(lines, "\n") + "\n"
}

// last is the one line that stays.
func (m model) last(st styles) string {
	took := clock(m.now.Sub(m.began))
	how := st.good.Render("done") + " in " + took
	switch {
	case m.forced:
		how = st.bad.Render("stopped at once") + " after " + took
	case m.end.early || m.ending:
		how = st.warn.Render("ended early") + " after " + took
	case m.end.failed:
		how = st.bad.Render("failed") + " after " + took
	}
	return how + ": " + m.title // in this order, so that a narrow terminal cuts the title
}

// doing is where the measurement is.
func (m model) doing() string {
	var parts []string
	for _, p := range []string{m.arm, m.workload, m.step} {
		if p != "" && (len(parts) == 0 || parts[len(parts)-1] != p) {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return "starting"
	}
	return strings.Join(parts, " · ")
}

// figureLines are the figures that are known.
func (m model) figureLines(st styles, width int) []string {
	s := m.slot
	label := func(name string) string {
		return st.label.Render(fmt.Sprintf("%-*s", labelWidth, name))
	}
	var lines []string
	add := func(line string) { lines = append(lines, cut(line, width)) }
	if s.rated {
		spark, highest := m.rates.line(width-labelWidth-numberRoom-2-scaleRoom, m.now)
		add(label("requests/s") + fmt.Sprintf("%*s", numberRoom, perSecond(s.rate)) + "  " + st.full.Render(spark) + st.dim.Render(sparkScale(spark, highest)))
	}
	if s.p50 > 0 {
		add(label("latency") + fmt.Sprintf("p50 %-8s  p90 %-8s  p99 %s", brief(s.p50), brief(s.p90), brief(s.p99)))
	}
	if s.rated || s.errors > 0 {
		count := fmt.Sprintf("%*s", numberRoom, grouped(s.errors))
		if s.errors > 0 {
			count = st.bad.Render(count)
		}
		add(label("errors") + count + m.among())
	}
	room := width - labelWidth - len(" 99.99 of 999")
	for _, c := range []struct {
		name string
		busy float64
	}{{"target CPU", s.target}, {"load CPU", s.generator}} {
		if c.busy <= 0 {
			continue
		}
		var b strings.Builder
		for i, piece := range cores(c.busy, m.cores, room) {
			if i%2 == 0 {
				b.WriteString(st.full.Render(piece))
			} else {
				b.WriteString(st.dim.Render(piece))
			}
		}
		add(label(c.name) + b.String() + fmt.Sprintf(" %.2f of %d", c.busy, m.cores))
	}
	if len(lines) > 0 {
		lines = append([]string{""}, lines...)
	}
	return lines
}

// among says how many requests the errors stand beside.
func (m model) among() string {
	if m.slot.requests == 0 {
		return ""
	}
	return "  beside " + grouped(m.slot.requests) + " answers"
}

// findings are what has been found and must be known, in at most room lines.
func (m model) findings(st styles, width, room int) []string {
	if room <= 0 {
		return nil
	}
	var lines []string
	for i, v := range m.verdicts {
		mark, style := verdictMark(st, v.Outcome)
		wrapped := hang(style.Render(mark)+" ", sentence(v), width)
		// One line must stay for how many there are more.
		more := len(m.verdicts) - i - 1
		if len(lines)+len(wrapped)+min(1, more) > room {
			lines = append(lines, cut(st.dim.Render(fmt.Sprintf("  and %d more verdicts", more+1)), width))
			break
		}
		lines = append(lines, wrapped...)
	}
	for _, n := range m.notes {
		wrapped := hang(st.warn.Render("!")+" ", n, width)
		if len(lines)+len(wrapped) > room {
			break
		}
		lines = append(lines, wrapped...)
	}
	return lines
}

func verdictMark(st styles, o record.Outcome) (string, lipgloss.Style) {
	switch o {
	case record.Better:
		return "+", st.good
	case record.Worse:
		return "-", st.bad
	case record.Equal:
		return "=", st.dim
	}
	return "?", st.dim
}

// sentence is a verdict in words.
func sentence(v record.Verdict) string {
	if s := printable(v.Sentence); s != "" {
		return s
	}
	return printable(fmt.Sprintf("%s, %s: %s against %s: %s", v.Workload, v.Metric, v.Arm, v.Baseline, v.Outcome))
}

// progress is how far it is, and how long it will take.
func (m model) progress(st styles, width int) string {
	var left string
	if remaining := m.left - m.now.Sub(m.leftAt); m.left > 0 {
		left = clock(remaining) + " left"
		if remaining < time.Second/2 {
			left = "about to end"
		}
	} else {
		left = clock(m.now.Sub(m.began)) + " so far"
	}
	if m.done <= 0 {
		return left
	}
	tail := fmt.Sprintf(" %3.0f %%  %s", m.done*100, left)
	const room = len(" 100 %  59:59 min left")
	full, empty := bar(m.done, max(4, width-room))
	return st.full.Render(full) + st.dim.Render(empty) + tail
}

// keys is what can be done.
func (m model) keys(st styles) string {
	if m.ending {
		return st.warn.Render("ending, keeping what was measured… ") + st.dim.Render("(Ctrl-C again stops at once)")
	}
	return st.dim.Render("Ctrl-C ends early and keeps what was measured")
}

// cut shortens a line to the width.
func cut(line string, width int) string {
	return lipgloss.NewStyle().Inline(true).MaxWidth(width).Render(line)
}

// hang breaks a text into lines that stand beside its mark.
func hang(mark, text string, width int) []string {
	indent := lipgloss.Width(mark)
	lines := strings.Split(lipgloss.Wrap(text, max(1, width-indent), " "), "\n")
	for i, l := range lines {
		if i == 0 {
			lines[i] = mark + l
		} else {
			lines[i] = strings.Repeat(" ", indent) + l
		}
	}
	return lines
}
