package live

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/google/go-cmp/cmp"

	"millrace/lab/record"
)

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// noon is when the tests' measurements begin.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func fresh() model { return newModel("embed-vs-disk: is embedding faster?", noon(), 2, func() {}) }

// after feeds messages to a model.
func after(t *testing.T, m model, messages ...tea.Msg) model {
	t.Helper()
	for _, msg := range messages {
		next, _ := m.Update(msg)
		m = next.(model)
	}
	return m
}

// shown is the view without its colours and the blanks at ends of lines.
func shown(m model) string {
	lines := strings.Split(colours.ReplaceAllString(m.draw(), ""), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

func check(t *testing.T, m model, want string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimPrefix(want, "\n"), shown(m)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// ticks are figures of some seconds, four a second.
func ticks(seconds int) []tea.Msg {
	var all []tea.Msg
	for i := range seconds * 4 {
		at := time.Duration(i) * 250 * time.Millisecond
		all = append(all, record.Event{
			Time: noon().Add(at), Kind: record.EventTick, Arm: "embedded", Workload: "all seven paths",
			Done: 0.375, Left: 65 * time.Second,
			Rate: 20_000 * float64(1+i/4), Requests: uint64(1000 * i),
			P50: 412 * time.Microsecond, P90: 1234 * time.Microsecond, P99: 13_400 * time.Microsecond,
			TargetCPU: 1.5, GeneratorCPU: 0.48,
		})
	}
	return all
}

func verdicts() record.Event {
	return record.Event{Kind: record.EventLook, Text: "look 1 of 3", Verdicts: []record.Verdict{
		{Outcome: record.Better, Sentence: "embedded needs 31 % less CPU time per request than disk [29 %, 33 %] on all seven paths"},
		{Outcome: record.Equal, Sentence: "embedded and disk are equal in memory"},
		{Outcome: record.Worse, Sentence: "embedded is a larger executable than disk"},
		{Outcome: record.Undecided, Workload: "/", Metric: "rate", Arm: "embedded", Baseline: "disk"},
	}}
}

func TestView(t *testing.T) {
	wide, narrow, flat := tea.WindowSizeMsg{Width: 80, Height: 24}, tea.WindowSizeMsg{Width: 60, Height: 24}, tea.WindowSizeMsg{Width: 60, Height: 14}
	full := append(ticks(5), verdicts(), record.Event{Kind: record.EventNote, Text: "nginx is left out: install nginx"})
	for _, c := range []struct {
		name     string
		messages []tea.Msg
		want     string
	}{
		{"nothing yet", nil, `
embed-vs-disk: is embedding faster?
starting

0 s so far
Ctrl-C ends early and keeps what was measured
`},
		{"a step", []tea.Msg{
			record.Event{Time: noon(), Kind: record.EventStep, Text: "building lab/bench/subjects/nethttp"},
			second(noon().Add(75 * time.Second)),
		}, `
embed-vs-disk: is embedding faster?
building lab/bench/subjects/nethttp

1:15 min so far
Ctrl-C ends early and keeps what was measured
`},
		{"all figures", append([]tea.Msg{wide}, full...), `
embed-vs-disk: is embedding faster?
embedded · all seven paths · look 1 of 3

requests/s      100,000  ▂▄▅▇█ 0 to 100,000, 5 s
latency     p50 412 µs    p90 1.23 ms   p99 13.4 ms
errors                0  beside 19,000 answers
target CPU  ██████████ █████░░░░░ 1.50 of 2
load CPU    ████▊░░░░░ ░░░░░░░░░░ 0.48 of 2

+ embedded needs 31 % less CPU time per request than disk [29 %, 33 %] on all
  seven paths
= embedded and disk are equal in memory
- embedded is a larger executable than disk
? /, rate: embedded against disk: undecided
! nginx is left out: install nginx

█████████████████████▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  38 %  1:05 min left
Ctrl-C ends early and keeps what was measured
`},
		{"60 columns", append([]tea.Msg{narrow}, full...), `
embed-vs-disk: is embedding faster?
embedded · all seven paths · look 1 of 3

requests/s      100,000  ▂▄▅▇█ 0 to 100,000, 5 s
latency     p50 412 µs    p90 1.23 ms   p99 13.4 ms
errors                0  beside 19,000 answers
target CPU  ██████████ █████░░░░░ 1.50 of 2
load CPU    ████▊░░░░░ ░░░░░░░░░░ 0.48 of 2

+ embedded needs 31 % less CPU time per request than disk
  [29 %, 33 %] on all seven paths
= embedded and disk are equal in memory
- embedded is a larger executable than disk
? /, rate: embedded against disk: undecided
! nginx is left out: install nginx

█████████████▉░░░░░░░░░░░░░░░░░░░░░░░  38 %  1:05 min left
Ctrl-C ends early and keeps what was measured
`},
		{"few lines", append([]tea.Msg{flat}, full...), `
embed-vs-disk: is embedding faster?
embedded · all seven paths · look 1 of 3

requests/s      100,000  ▂▄▅▇█ 0 to 100,000, 5 s
latency     p50 412 µs    p90 1.23 ms   p99 13.4 ms
errors                0  beside 19,000 answers
target CPU  ██████████ █████░░░░░ 1.50 of 2
load CPU    ████▊░░░░░ ░░░░░░░░░░ 0.48 of 2

  and 4 more verdicts

█████████████▉░░░░░░░░░░░░░░░░░░░░░░░  38 %  1:05 min left
Ctrl-C ends early and keeps what was measured
`},
		{"errors, and nothing else known", []tea.Msg{
			record.Event{Time: noon(), Kind: record.EventTick, Arm: "A", Errors: 1234},
		}, `
embed-vs-disk: is embedding faster?
A

errors            1,234

0 s so far
Ctrl-C ends early and keeps what was measured
`},
		{"a target that stopped answering", []tea.Msg{
			record.Event{Time: noon(), Kind: record.EventTick, Arm: "A", Rate: 1000},
			record.Event{Time: noon().Add(time.Second), Kind: record.EventTick, Arm: "A"},
		}, `
embed-vs-disk: is embedding faster?
A

requests/s            0  █▁ 0 to 1,000, 2 s
errors                0

1 s so far
Ctrl-C ends early and keeps what was measured
`},
		{"the next arm begins without the last one's figures", append(ticks(2),
			record.Event{Time: noon().Add(2 * time.Second), Kind: record.EventStep, Arm: "disk", Text: "starting disk"},
		), `
embed-vs-disk: is embedding faster?
disk · starting disk

█████████████████████▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  38 %  1:05 min left
Ctrl-C ends early and keeps what was measured
`},
		{"time that is over", append(ticks(1), second(noon().Add(2*time.Minute))), `
embed-vs-disk: is embedding faster?
embedded · all seven paths

requests/s       20,000
latency     p50 412 µs    p90 1.23 ms   p99 13.4 ms
errors                0  beside 3,000 answers
target CPU  ██████████ █████░░░░░ 1.50 of 2
load CPU    ████▊░░░░░ ░░░░░░░░░░ 0.48 of 2

█████████████████████▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  38 %  about to end
Ctrl-C ends early and keeps what was measured
`},
		{"ending", []tea.Msg{ending{}}, `
embed-vs-disk: is embedding faster?
starting

0 s so far
ending, keeping what was measured… (Ctrl-C again stops at once)
`},
		{"done", append(ticks(5), finished{at: noon().Add(61 * time.Second)}), `
done in 1:01 min: embed-vs-disk: is embedding faster?
`},
		{"failed", []tea.Msg{finished{at: noon().Add(3 * time.Second), failed: true}}, `
failed after 3 s: embed-vs-disk: is embedding faster?
`},
		{"ended early", []tea.Msg{ending{}, finished{at: noon().Add(3 * time.Second), early: true}}, `
ended early after 3 s: embed-vs-disk: is embedding faster?
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			check(t, after(t, fresh(), c.messages...), c.want)
		})
	}
}

func TestInterrupt(t *testing.T) {
	cancelled := 0
	m := newModel("x", noon(), 1, func() { cancelled++ })
	ctrlC := tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	m = after(t, m, tea.KeyPressMsg{Code: 'c', Text: "c"})
	if m.ending || cancelled != 0 {
		t.Fatal("a plain c ended it")
	}
	next, cmd := m.Update(ctrlC)
	m = next.(model)
	if !m.ending || m.forced || cancelled != 1 || cmd != nil {
		t.Fatalf("first Ctrl-C: %+v, cancelled %d times", m, cancelled)
	}
	next, cmd = after(t, m, ending{}).Update(ctrlC) // the context's end is told, too
	m = next.(model)
	if !m.forced || cancelled != 1 || cmd == nil {
		t.Fatalf("second Ctrl-C: %+v, cancelled %d times", m, cancelled)
	}
	check(t, m, "stopped at once after 0 s: x\n")
}

// TestSecondScreen: what goes on is drawn where it leaves nothing behind, and the last
// line where it stays.
func TestSecondScreen(t *testing.T) {
	m := fresh()
	if !m.View().AltScreen {
		t.Error("the view is on the first screen")
	}
	if v := after(t, m, finished{at: noon()}).View(); v.AltScreen || !strings.Contains(v.Content, "done") {
		t.Errorf("at the end there is %+v", v)
	}
}

// TestQuit shows that the view ends with the work, and with nothing else.
func TestQuit(t *testing.T) {
	for _, msg := range []tea.Msg{second(noon()), record.Event{Kind: record.EventEnd}, ending{}, tea.WindowSizeMsg{}} {
		if _, cmd := fresh().Update(msg); cmd != nil {
			t.Errorf("%T ends the view", msg)
		}
	}
	_, cmd := fresh().Update(finished{at: noon()})
	if cmd == nil {
		t.Fatal("the end of the work does not end the view")
	}
	if _, ok := cmd().(tea.QuitMsg); !ok {
		t.Error("the end of the work does not end the view")
	}
}

// TestBounds has more of everything than is kept.
func TestBounds(t *testing.T) {
	m := fresh()
	var many []record.Verdict
	for i := range 1000 {
		m = after(t, m, record.Event{Kind: record.EventNote, Text: fmt.Sprint("note ", i)})
		many = append(many, record.Verdict{Sentence: "s"})
	}
	m = after(t, m, record.Event{Kind: record.EventLook, Verdicts: many, Text: strings.Repeat("long ", 10_000)})
	if len(m.notes) != maxNotes || m.notes[maxNotes-1] != "note 999" || len(m.verdicts) != maxVerdicts || len(m.step) > maxText+3 {
		t.Errorf("%d notes, %d verdicts, text of %d", len(m.notes), len(m.verdicts), len(m.step))
	}
}

// FuzzDraw holds that no text from outside commands the terminal, and that the
// view fits into any.
func FuzzDraw(f *testing.F) {
	f.Add("plain", 80, 24, 0.5)
	f.Add("\x1b[2J\x07 red \x1b]0;title\x07", 60, 10, 1e300)
	f.Add("日本語 日本語\nline\ttab\u202eright", 20, 1, -1.0)
	f.Add("\x9b31m\xff", 1, 3, 0.01)
	f.Fuzz(func(t *testing.T, text string, width, height int, figure float64) {
		if width < 1 || width > 500 || height < 1 || height > 200 {
			t.Skip()
		}
		e := record.Event{
			Time: noon(), Kind: record.EventTick, Text: text, Arm: text, Workload: text,
			Done: figure, Rate: figure, P50: time.Duration(figure), P90: 1, P99: 1 << 62, Requests: 1, Errors: 1 << 60, TargetCPU: figure, GeneratorCPU: figure,
			Verdicts: []record.Verdict{{Sentence: text}, {Metric: text}},
		}
		m := after(t, newModel(text, noon(), 1+len(text), nil), tea.WindowSizeMsg{Width: width, Height: height}, e, record.Event{Kind: record.EventNote, Text: text})
		for _, m := range []model{m, after(t, m, finished{at: noon()})} {
			drawn := m.draw()
			if !strings.HasSuffix(drawn, "\n") {
				t.Error("does not end with a line break")
			}
			if n := strings.Count(drawn, "\n"); n > max(height-1, 1) {
				t.Errorf("%d lines on a terminal of %d", n, height)
			}
			for l := range strings.SplitSeq(drawn, "\n") {
				if w := lipgloss.Width(l); w > max(narrowest, width-1) {
					t.Errorf("a line of %d columns on a terminal of %d: %q", w, width, l)
				}
			}
			if plain := colours.ReplaceAllString(drawn, ""); strings.ContainsFunc(plain, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
				t.Errorf("commands the terminal: %q", plain)
			}
		}
	})
}
