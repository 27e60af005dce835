package opscmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"millrace/cmd/internal/cli"
	"millrace/internal/ops/dashboard"
	"millrace/lab/live"
)

// screen is what is shown, and how.
type screen struct {
	ask           func() figures
	panels        []dashboard.Panel
	trouble       error // why they are old
	at            string
	sort          string
	filter        string
	typing        bool // keys go to the filter
	width, height int  // height 0: as high as it needs
	down          int  // how many lines below the first are passed over
}

// sorts are what routes are sorted by, with the column of the traffic panel.
var sorts = []struct{ name, column string }{
	{"rate", "requests_per_second"}, {"p99", "p99_seconds"}, {"errors", "server_errors"}, {"sent", "bytes_per_second"},
}

// watch shows the figures, asked for each second, until a key or ctx ends it.
func watch(ctx context.Context, out *os.File, s *screen) error {
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(out), tea.WithoutSignalHandler()}
	if !live.IsTerminal(os.Stdin) {
		options = append(options, tea.WithInput(nil)) // Ctrl-C is a signal then
	}
	_, err := tea.NewProgram(s, options...).Run()
	if err != nil && (ctx.Err() == nil || errors.Is(err, tea.ErrProgramPanic)) {
		return fmt.Errorf("drawing: %w", err)
	}
	return nil
}

// due is the time to ask again.
type due struct{}

func (s *screen) later() tea.Cmd { return tea.Tick(every, func(time.Time) tea.Msg { return due{} }) }

// Init implements [tea.Model].
func (s *screen) Init() tea.Cmd { return s.later() }

// Update takes in a key, an answer, or the terminal's size.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if msg.Width > 0 && msg.Height > 0 { // 0 by 0 is a terminal that does not know
			s.width, s.height = msg.Width, msg.Height
		}
	case tea.KeyPressMsg:
		if s.key(cmp.Or(msg.Text, msg.String())) {
			return s, tea.Quit
		}
	case tea.PasteMsg:
		for _, c := range msg.Content {
			if s.typing && unicode.IsPrint(c) {
				s.typed(string(c))
			}
		}
	case due:
		return s, func() tea.Msg { return s.ask() }
	case figures:
		s.take(msg)
		return s, s.later()
	}
	return s, nil
}

// View draws it, on the terminal's second screen.
func (s *screen) View() tea.View {
	v := tea.NewView(strings.Join(s.fit(), "\n"))
	v.AltScreen = true
	return v
}

// take takes in an answer. What was known stays when there is none.
func (s *screen) take(f figures) {
	if s.trouble = f.err; f.err == nil {
		s.panels = f.panels
	}
}

// key does what a key means, and reports whether that is to end.
func (s *screen) key(k string) bool {
	switch {
	case k == "ctrl+c":
		return true
	case s.typing:
		s.typed(k)
	case k == "q" || k == "esc" && s.filter == "":
		return true
	case k == "esc":
		s.filter = ""
	case k == "/":
		s.typing = true
	case k == "s":
		at := slices.IndexFunc(sorts, func(one struct{ name, column string }) bool { return one.name == s.sort })
		s.sort = sorts[(at+1)%len(sorts)].name
	default:
		s.scroll(k)
	}
	return false
}

// scroll moves the lines below the first. fit keeps it where there are lines.
func (s *screen) scroll(k string) {
	page := max(1, s.height-3)
	switch k {
	case "down", "j":
		s.down++
	case "up", "k":
		s.down--
	case "pgdown", " ":
		s.down += page
	case "pgup":
		s.down -= page
	case "home", "g":
		s.down = 0
	}
	s.down = max(0, s.down)
}

// maxFilter bounds what may be typed, in runes.
const maxFilter = 60

func (s *screen) typed(k string) {
	switch {
	case k == "enter":
		s.typing = false
	case k == "esc":
		s.typing, s.filter = false, ""
	case k == "backspace":
		if r := []rune(s.filter); len(r) > 0 {
			s.filter = string(r[:len(r)-1])
		}
	case utf8.RuneCountInString(k) == 1 && utf8.RuneCountInString(s.filter) < maxFilter:
		s.filter += k
	}
}

// styles are of the 16 colours that a person has chosen to be readable. With NO_COLOR
// there are none; nothing is said by colour alone.
type styles struct{ title, dim, warn, bad lipgloss.Style }

func newStyles() styles {
	s := lipgloss.NewStyle()
	return styles{s.Bold(true), s.Faint(true), s.Foreground(lipgloss.Yellow), s.Bold(true).Foreground(lipgloss.Red)}
}

func (st *styles) level(l dashboard.Level, text string) string {
	switch l {
	case dashboard.Bad:
		return st.bad.Render(text)
	case dashboard.Warn:
		return st.warn.Render(text)
	}
	return text
}

// fit is lines, as many as the terminal has, the first one at the top and the keys at
// the bottom.
func (s *screen) fit() []string {
	all := s.lines()
	room := max(1, s.height-1)
	s.down = min(s.down, max(0, len(all)-room))
	all = append(all[:1:1], all[1+s.down:]...)
	more := max(0, len(all)-room)
	all = all[:len(all)-more]
	for len(all) < room {
		all = append(all, "")
	}
	return append(all, newStyles().dim.Render(cut(s.keys(more), s.width)))
}

// keys says what keys do. more is how many lines there are below the last one.
func (s *screen) keys(more int) string {
	if s.typing {
		return "routes with: " + s.filter + "▏  Enter keeps it, Esc shows all"
	}
	text := "q ends  s sorts (" + s.sort + ")  / chooses routes"
	if s.filter != "" {
		text += " (" + s.filter + ", Esc shows all)"
	}
	switch {
	case more > 0:
		text = "↓ " + cli.Count(more, "more line") + "  " + text
	case s.down > 0:
		text = "↑ there is more  " + text
	}
	return text
}

func (s *screen) panel(id string) *dashboard.Panel {
	for i := range s.panels {
		if s.panels[i].ID == id {
			return &s.panels[i]
		}
	}
	return &dashboard.Panel{}
}

// lines are all there is to show, what is wrong first.
func (s *screen) lines() []string {
	var out []string
	st := newStyles()
	now := map[string]string{}
	for _, row := range s.panel("now").Rows {
		name, _ := row.Values[0].(string)
		value, _ := row.Values[1].(string)
		now[name] = value
	}
	head := "millrace " + now["version"] + ", up " + now["up for"]
	out = append(out, st.title.Render(cut(head, s.width))+st.dim.Render(cut("  "+s.at, s.width-ansi.StringWidth(head))))
	if s.trouble != nil {
		out = append(out, st.level(dashboard.Bad, cut("! these figures are old: "+printable(s.trouble.Error()), s.width)))
	}
	for _, row := range s.panel("problems").Rows {
		what, _ := row.Values[0].(string)
		do, _ := row.Values[1].(string)
		line := cut("! "+printable(what), s.width)
		rest := ""
		if do != "" && !strings.Contains(do, "below") { // of the page
			rest = cut("  "+do, s.width-ansi.StringWidth(line))
		}
		out = append(out, st.level(row.Level, line)+st.dim.Render(rest))
	}
	out = append(out, s.figures(now)...)
	out = append(out, "")
	traffic := s.traffic()
	out = append(out, s.table(&st, traffic, "", []string{"site", "route", "job", "lane", "requests_per_second", "p50_seconds", "p99_seconds", "server_errors", "client_errors", "bytes_per_second"})...)
	for _, t := range []struct {
		id      string
		columns []string
	}{
		{"cache", []string{"route", "state", "hit_ratio", "misses", "errors", "upstream_p99_seconds", "objects", "memory_bytes"}},
		{"upstreams", []string{"server", "state", "running", "waiting", "latency_seconds", "requests", "failed"}},
		{"stores", []string{"server", "state", "use", "waiting", "errors", "p99_seconds", "hits", "misses"}},
		{"images", []string{"route", "variants_served", "converted", "failed", "waiting", "running", "took_p99_seconds"}},
		{"websockets", []string{"route", "open", "messages_in", "messages_out", "queued_bytes", "dropped", "lag_p99_seconds"}},
		{"plugins", []string{"module", "requests", "busy", "refused", "traps", "timeouts", "uploads"}},
		{"slow", []string{"time", "number", "status", "duration_seconds", "target", "mostly"}},
	} {
		if p := s.panel(t.id); len(p.Rows) > 0 {
			few := *p
			few.Rows = few.Rows[:min(len(few.Rows), maxRows)]
			out = append(out, "")
			out = append(out, s.table(&st, &few, p.Title, t.columns)...)
		}
	}
	return out
}

// maxRows is how many rows a table below the routes has.
const maxRows = 8

// figures are the numbers of the whole server, as many to a line as fit.
func (s *screen) figures(now map[string]string) (lines []string) {
	line := ""
	for _, f := range []struct{ label, name string }{
		{"requests", "requests per second"},
		{"p50", "p50"},
		{"p99", "p99"},
		{"5xx", "errors (5xx) per second"},
		{"sent", "sent per second"},
		{"connections", "open connections"},
		{"CPU", "CPU, in cores"},
		{"memory", "memory"},
		{"hot answers", "answers in the fast lane"},
		{"lanes", ""},
	} {
		text := f.label + " " + cmp.Or(now[f.name], "-")
		if f.name == "" {
			text = s.lanes()
		}
		switch {
		case text == "":
		case line == "":
			line = text
		case ansi.StringWidth(line)+len("   ")+ansi.StringWidth(text) > s.width:
			lines, line = append(lines, line), text
		default:
			line += "   " + text
		}
	}
	lines = append(lines, line)
	for i := range lines {
		lines[i] = cut(lines[i], s.width)
	}
	return lines
}

// lanes is how the requests of late were answered.
func (s *screen) lanes() string {
	sum, all := map[string]float64{}, 0.0
	p := s.panel("traffic")
	lane, rate := column(p, "lane"), column(p, "requests_per_second")
	if lane < 0 || rate < 0 {
		return ""
	}
	for _, row := range p.Rows {
		name, _ := row.Values[lane].(string)
		n, _ := row.Values[rate].(float64)
		sum[name] += n
		all += n
	}
	if all == 0 {
		return ""
	}
	text := "lanes"
	for _, name := range []string{"fast", "through", "slow"} {
		text += fmt.Sprintf(" %s %.0f%%", name, sum[name]/all*100)
	}
	return text
}

func column(p *dashboard.Panel, key string) int {
	return slices.IndexFunc(p.Columns, func(c dashboard.Column) bool { return c.Key == key })
}

// traffic are the routes that were chosen, in the order that was.
func (s *screen) traffic() *dashboard.Panel {
	p := *s.panel("traffic")
	key := ""
	for _, one := range sorts {
		if one.name == s.sort {
			key = one.column
		}
	}
	by := column(&p, key)
	words := strings.ToLower(s.filter)
	p.Rows = slices.DeleteFunc(slices.Clone(p.Rows), func(r dashboard.Row) bool {
		text := ""
		for _, v := range r.Values {
			if t, ok := v.(string); ok {
				text += strings.ToLower(t)
			}
		}
		return !strings.Contains(text, words)
	})
	if by >= 0 {
		slices.SortStableFunc(p.Rows, func(a, b dashboard.Row) int {
			x, _ := a.Values[by].(float64)
			y, _ := b.Values[by].(float64)
			return cmp.Compare(y, x)
		})
	}
	if len(p.Rows) == 0 {
		p.Empty = cmp.Or(p.Empty, "No request has come yet.")
		if s.filter != "" {
			p.Empty = "No route has " + s.filter + " in its site, path or job."
		}
	}
	return &p
}
