package opscmd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"millrace/internal/ops/dashboard"
)

// example is a screen with a route for each number.
func example(width, height int) screen {
	traffic := dashboard.Panel{ID: "traffic", Columns: []dashboard.Column{
		{Key: "site", Name: "site"},
		{Key: "route", Name: "route"},
		{Key: "job", Name: "job"},
		{Key: "lane", Name: "lane"},
		{Key: "requests_per_second", Name: "rate", Unit: dashboard.Rate},
		{Key: "p99_seconds", Name: "p99", Unit: dashboard.Seconds},
		{Key: "server_errors", Name: "5xx", Unit: dashboard.Count},
		{Key: "bytes_per_second", Name: "sent/s", Unit: dashboard.ByteRate},
	}}
	for i := range 30 {
		traffic.Rows = append(traffic.Rows, dashboard.Row{Values: []any{
			"example.org", fmt.Sprintf("/route/%d/with/a/long/path/\x1b[2J", i), "proxy", []string{"fast", "slow"}[i%2],
			float64(100 - i), float64(i), float64(i % 3), nil,
		}})
	}
	return screen{
		width: width, height: height, sort: "rate", at: "unix:/run/x.sock",
		panels: []dashboard.Panel{
			{ID: "problems", Rows: []dashboard.Row{{Level: dashboard.Bad, Values: []any{"the upstream is down", "See the log below."}}}},
			{ID: "now", Rows: []dashboard.Row{{Values: []any{"requests per second", "12 /s", 12.0}}, {Values: []any{"version", "v1", nil}}}},
			traffic,
			{ID: "upstreams", Title: "Upstreams", Columns: []dashboard.Column{{Key: "server", Name: "server"}}, Rows: []dashboard.Row{{Values: []any{"http://127.0.0.1:1"}}}},
		},
	}
}

// plain are lines without their styles.
func plain(lines []string) []string {
	return strings.Split(ansi.Strip(strings.Join(lines, "\n")), "\n")
}

// No line is wider than the terminal, none is lost below its end, and what clients
// choose does not reach it.
func TestFits(t *testing.T) {
	for _, size := range [][2]int{{20, 5}, {40, 10}, {80, 24}, {160, 50}} {
		s := example(size[0], size[1])
		lines := plain(s.fit())
		if len(lines) != size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			if ansi.StringWidth(l) > size[0] {
				t.Errorf("%v: too wide: %q", size, l)
			}
			if strings.ContainsAny(l, "\x1b\n") {
				t.Errorf("%v: a control character in %q", size, l)
			}
		}
		if !strings.HasPrefix(lines[1], "! the upstream is d") || strings.Contains(lines[1], "below") {
			t.Errorf("%v: what is wrong does not come first: %q", size, lines[1])
		}
	}
	wide := example(160, 0)
	if text := strings.Join(plain(wide.lines()), "\n"); !strings.Contains(text, "lanes fast 50% through 0% slow 50%") || !strings.Contains(text, "Upstreams\nserver\nhttp://127.0.0.1:1") {
		t.Errorf("the screen is\n%s", text)
	}
}

func TestKeys(t *testing.T) {
	s := example(160, 50)
	first := func() string { return s.traffic().Rows[0].Values[1].(string)[:9] }
	if first() != "/route/0/" {
		t.Error("by rate the first is", first())
	}
	s.key("s")
	if s.sort != "p99" || first() != "/route/29" {
		t.Error("by p99 the first is", first())
	}
	for _, k := range []string{"/", "r", "o", "u", "t", "e", "/", "7", "q", "backspace", "enter"} {
		if s.key(k) {
			t.Errorf("%s ends it while a filter is typed", k)
		}
	}
	if s.filter != "route/7" || len(s.traffic().Rows) != 1 {
		t.Errorf("%q leaves %d routes", s.filter, len(s.traffic().Rows))
	}
	if s.key("esc") || s.filter != "" {
		t.Error("Esc does not show all again")
	}
	if !s.key("q") || !s.key("ctrl+c") {
		t.Error("q does not end it")
	}
}

// TestMessages: what the terminal and the server say reaches the screen.
func TestMessages(t *testing.T) {
	s := example(80, 24)
	s.ask = func() figures { return figures{err: errors.New("gone")} }
	send := func(msg tea.Msg) tea.Cmd {
		_, cmd := s.Update(msg)
		return cmd
	}
	send(tea.WindowSizeMsg{Width: 60, Height: 12})
	send(tea.WindowSizeMsg{}) // a terminal that does not know
	if v := s.View(); s.width != 60 || strings.Count(v.Content, "\n") != 11 || !v.AltScreen {
		t.Errorf("on 60 by 12 there is %q", v.Content)
	}
	send(tea.PasteMsg{Content: "not typed"})
	for _, k := range []tea.Key{{Text: "/", Code: '/'}, {Text: "r", Code: 'r'}, {Text: " ", Code: tea.KeySpace}, {Code: tea.KeyBackspace}, {Text: "O", Code: 'o', Mod: tea.ModShift}} {
		send(tea.KeyPressMsg(k))
	}
	if send(tea.PasteMsg{Content: "ut\x1be"}); s.filter != "rOute" {
		t.Errorf("the filter is %q", s.filter)
	}
	send(tea.KeyPressMsg{Code: tea.KeyEnter})
	if send(tea.KeyPressMsg{Text: " ", Code: tea.KeySpace}); s.down != 9 {
		t.Errorf("a blank goes %d lines down", s.down)
	}
	if send(tea.KeyPressMsg{Code: tea.KeyPgUp}); s.down != 0 {
		t.Errorf("Page Up goes to %d", s.down)
	}
	if send(send(due{})()) == nil || s.trouble == nil {
		t.Error("the server is not asked again")
	}
	if cmd := send(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}); cmd == nil || cmd() != tea.Quit() {
		t.Error("Ctrl-C does not end it")
	}
}

// A server that does not answer leaves the last figures, and a line about it.
func TestTrouble(t *testing.T) {
	s := example(80, 24)
	s.take(figures{err: errors.New("connection refused")})
	lines := plain(s.lines())
	if !strings.Contains(lines[1], "these figures are old: connection refused") || len(lines) < 10 {
		t.Errorf("the screen is %q", lines)
	}
}

// TestScroll: what does not fit can be reached, the first line stays, and the screen
// says that there is more.
func TestScroll(t *testing.T) {
	s := example(80, 10)
	all := plain(s.lines())
	screen := func() []string { return plain(s.fit()) }
	if last := screen()[9]; !strings.HasPrefix(last, fmt.Sprintf("↓ %d more lines", len(all)-9)) {
		t.Errorf("the last line is %q", last)
	}
	s.key("j")
	if lines := screen(); lines[0] != all[0] || lines[1] != all[2] || len(lines) != 10 {
		t.Errorf("one line down is %q", lines)
	}
	for range 100 {
		s.key("pgdown")
	}
	if lines := screen(); lines[0] != all[0] || lines[8] != all[len(all)-1] || !strings.HasPrefix(lines[9], "↑ there is more") {
		t.Errorf("the end is %q", lines)
	}
	s.key("up")
	if lines := screen(); lines[8] != all[len(all)-2] {
		t.Errorf("one line up is %q", lines)
	}
	s.key("home")
	if lines := screen(); lines[1] != all[1] {
		t.Errorf("the beginning is %q", lines)
	}
}

// TestAddress: of a server that is too wide for the terminal the name and the port
// stay readable, and columns on the right make room for them.
func TestAddress(t *testing.T) {
	for _, tt := range []struct {
		address string
		width   int
		want    string
	}{
		{"http://127.0.0.1:5000", 24, "http://127.0.0.1:5000"},
		{"http://127.0.0.1:5000", 20, "127.0.0.1:5000"},
		{"https://[2001:db8:1234:5678::9abc]:8443", 31, "[2001:db8:1234:5678::9abc]:8443"},
		{"https://[2001:db8:1234:5678::9abc]:8443", 24, "[2001:db8…78::9abc]:8443"},
		{"http://web-7.internal.example.org:5001", 24, "web-7.internal.exa…:5001"},
		{"http://application-server-number-one.internal.example.org:5001", 31, "application-…r-number-one…:5001"},
		{"http://application-server-number-two:5001", 24, "applicati…umber-two:5001"},
		{"unix:/run/application/with/a/long/path.sock", 24, "unix:/run/ap…g/path.sock"},
		{"http://example.org", 12, "example.org"},
		{"unix:/run/サーバ/アプリ.sock", 18, "unix:/run…リ.sock"},
		{"http://example.org:8080", 6, "examp…"},
		{"", 5, ""},
	} {
		if got := cutAddress(tt.address, tt.width); got != tt.want {
			t.Errorf("%s in %d is %q, want %q", tt.address, tt.width, got, tt.want)
		}
	}
	s := screen{width: 80, height: 24, panels: []dashboard.Panel{{ID: "upstreams", Title: "Upstreams", Columns: []dashboard.Column{
		{Key: "server", Name: "server"},
		{Key: "state", Name: "state"},
		{Key: "running", Name: "running", Unit: dashboard.Count},
		{Key: "waiting", Name: "waiting for the pool", Unit: dashboard.Count},
		{Key: "latency_seconds", Name: "time", Unit: dashboard.Seconds},
		{Key: "requests", Name: "requests", Unit: dashboard.Count},
		{Key: "failed", Name: "failed", Unit: dashboard.Count},
	}, Rows: []dashboard.Row{{Values: []any{"http://application-server-number-one.internal.example.org:5001", "up", 1.0, 0.0, 0.02, 123456.0, 7.0}}}}}}
	if text := strings.Join(plain(s.lines()), "\n"); !strings.Contains(text, "number-one…:5001  up") || !strings.Contains(text, "failed") {
		t.Errorf("the screen is\n%s", text)
	}
	s.width = 40
	if text := strings.Join(plain(s.lines()), "\n"); !strings.Contains(text, "-one…:5001  up") {
		t.Errorf("the narrow screen is\n%s", text)
	}
}
