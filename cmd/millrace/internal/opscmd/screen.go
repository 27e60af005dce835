package opscmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/internal/ops/dashboard"
)

// screen is what is shown, and how.
type screen struct {
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
	case "page down", " ":
		s.down += page
	case "page up":
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

// styler gives texts a look; none of them changes their width.
type styler interface {
	title(string) string
	dim(string) string
	level(dashboard.Level, string) string
}

type plain struct{}

func (plain) title(s string) string                    { return s }
func (plain) dim(s string) string                      { return s }
func (plain) level(_ dashboard.Level, s string) string { return s }

// coloured uses the 16 colours that a person has chosen to be readable (ECMA-48, SGR).
type coloured struct{}

const plainAgain = "\x1b[0m"

func (coloured) title(s string) string { return "\x1b[1m" + s + plainAgain }
func (coloured) dim(s string) string   { return "\x1b[2m" + s + plainAgain }
func (coloured) level(l dashboard.Level, s string) string {
	switch l {
	case dashboard.Bad:
		return "\x1b[1;31m" + s + plainAgain
	case dashboard.Warn:
		return "\x1b[33m" + s + plainAgain
	}
	return s
}

// fit is lines, as many as the terminal has, the first one at the top and the keys at
// the bottom.
func (s *screen) fit(st styler) []string {
	all := s.lines(st)
	room := max(1, s.height-1)
	s.down = min(s.down, max(0, len(all)-room))
	all = append(all[:1:1], all[1+s.down:]...)
	more := max(0, len(all)-room)
	all = all[:len(all)-more]
	for len(all) < room {
		all = append(all, "")
	}
	return append(all, st.dim(cut(s.keys(more), s.width)))
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
		text = fmt.Sprintf("↓ %d more lines  ", more) + text
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
func (s *screen) lines(st styler) []string {
	var out []string
	now := map[string]string{}
	for _, row := range s.panel("now").Rows {
		name, _ := row.Values[0].(string)
		value, _ := row.Values[1].(string)
		now[name] = value
	}
	head := "millrace " + now["version"] + ", up " + now["up for"]
	out = append(out, st.title(cut(head, s.width))+st.dim(cut("  "+s.at, s.width-utf8.RuneCountInString(head))))
	if s.trouble != nil {
		out = append(out, st.level(dashboard.Bad, cut("! these figures are old: "+s.trouble.Error(), s.width)))
	}
	for _, row := range s.panel("problems").Rows {
		what, _ := row.Values[0].(string)
		do, _ := row.Values[1].(string)
		line := cut("! "+printable(what), s.width)
		rest := ""
		if do != "" && !strings.Contains(do, "below") { // of the page
			rest = cut("  "+do, s.width-utf8.RuneCountInString(line))
		}
		out = append(out, st.level(row.Level, line)+st.dim(rest))
	}
	out = append(out, s.figures(now)...)
	out = append(out, "")
	traffic := s.traffic()
	out = append(out, s.table(st, traffic, "", []string{"site", "route", "job", "lane", "requests_per_second", "p50_seconds", "p99_seconds", "server_errors", "client_errors", "bytes_per_second"})...)
	for _, t := range []struct {
		id      string
		columns []string
	}{
		{"cache", []string{"route", "state", "hit_ratio", "misses", "errors", "upstream_p99_seconds", "objects", "memory_bytes"}},
		{"upstreams", []string{"server", "state", "running", "waiting", "latency_seconds", "requests", "failed"}},
		{"images", []string{"route", "variants_served", "converted", "failed", "waiting", "running", "took_p99_seconds"}},
		{"websockets", []string{"route", "open", "messages_in", "messages_out", "queued_bytes", "dropped", "lag_p99_seconds"}},
		{"slow", []string{"time", "number", "status", "duration_seconds", "target", "mostly"}},
	} {
		if p := s.panel(t.id); len(p.Rows) > 0 {
			few := *p
			few.Rows = few.Rows[:min(len(few.Rows), maxRows)]
			out = append(out, "")
			out = append(out, s.table(st, &few, p.Title, t.columns)...)
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
		case utf8.RuneCountInString(line)+len("   ")+utf8.RuneCountInString(text) > s.width:
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
