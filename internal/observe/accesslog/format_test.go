package accesslog

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var example = Record{
	Time:   time.Date(2026, 2, 3, 4, 5, 6, 78900000, time.FixedZone("", 3600)),
	Remote: "192.0.2.7", Host: "example.com",
	Method: "GET", Target: "/a?b=c", Proto: "HTTP/1.1",
	Referer: "https://example.org/", UserAgent: "Mozilla/5.0 (X11; Linux x86_64)",
	Status: 200, Bytes: 501, Duration: 1234567 * time.Nanosecond, Fast: true,
}

func line(f format, r *Record) string { return string(appendLine(nil, f, nil, r, &clock{})) }

func TestFormats(t *testing.T) {
	local := example.Time.Local()
	when := local.Format("02/Jan/2006:15:04:05 -0700")
	for _, tt := range []struct {
		format format
		record Record
		want   string
	}{
		{combined, example, `192.0.2.7 - - [` + when + `] "GET /a?b=c HTTP/1.1" 200 501 "https://example.org/" "Mozilla/5.0 (X11; Linux x86_64)"`},
		{common, example, `192.0.2.7 - - [` + when + `] "GET /a?b=c HTTP/1.1" 200 501`},
		{jsonLines, example, `{"time":"` + local.Format("2006-01-02T15:04:05.000Z07:00") + `","remote":"192.0.2.7","host":"example.com",` +
			`"method":"GET","target":"/a?b=c","proto":"HTTP/1.1","status":200,"bytes":501,"duration_us":1234,` +
			`"referer":"https://example.org/","user_agent":"Mozilla/5.0 (X11; Linux x86_64)","lane":"fast"}`},
		{combined, Record{Time: example.Time, Status: 400, Bytes: -1}, `- - - [` + when + `] "- - -" 400 0 "-" "-"`},
	} {
		if got := line(tt.format, &tt.record); got != tt.want+"\n" {
			t.Errorf("format %d:\n got %s\nwant %s", tt.format, got, tt.want)
		}
	}
}

// What a client sends must not be able to end a field, a line, or to reach a terminal.
func TestEscapes(t *testing.T) {
	for in, want := range map[string][2]string{
		"":                      {`-`, ``},
		`"><`:                   {`\x22><`, `\"><`},
		`a\b`:                   {`a\x5Cb`, `a\\b`},
		"a\r\nb":                {`a\x0D\x0Ab`, `a\u000D\u000Ab`},
		"\x00\x1b[2J\x7f":       {`\x00\x1B[2J\x7F`, `\u0000\u001B[2J\u007F`},
		"é":                     {`\xC3\xA9`, `é`},
		"\u009b2J\u2028\u2029":  {`\xC2\x9B2J\xE2\x80\xA8\xE2\x80\xA9`, `\u009B2J\u2028\u2029`},
		"\u202egnp\u2066\u200b": {`\xE2\x80\xAEgnp\xE2\x81\xA6\xE2\x80\x8B`, `\u202Egnp\u2066\u200B`},
		"\U000e0041":            {`\xF3\xA0\x81\x81`, `\uFFFD`},
		"\xff\xc3(\xe2\x82":     {`\xFF\xC3(\xE2\x82`, `\uFFFD\uFFFD(\uFFFD\uFFFD`},
		"\U0001F600":            {`\xF0\x9F\x98\x80`, "\U0001F600"},
	} {
		if got := string(appendText(nil, in, 100, &quoted)); got != want[0] {
			t.Errorf("text %q is written as %s, want %s", in, got, want[0])
		}
		if got := string(appendJSONString(nil, in, 100)); got != want[1] {
			t.Errorf("JSON string %q is written as %s, want %s", in, got, want[1])
		}
	}
	if got := string(appendText(nil, "/a b", 100, &bare)); got != `/a\x20b` {
		t.Errorf("a space in a bare field is written as %s", got)
	}
}

// The eight bytes at once agree with the table, at every place of every byte.
func TestPrefix(t *testing.T) {
	for _, set := range []*plainSet{&quoted, &bare} {
		for c := range 256 {
			for at := range 20 {
				s := []byte("abcdefghijklmnopqrst")
				s[at] = byte(c)
				want := len(s)
				if c < int(set.lowest) || c > '~' || c == '"' || c == '\\' {
					want = at
				}
				if got := set.prefix(string(s)); got != want {
					t.Fatalf("prefix(%q) = %d, want %d", s, got, want)
				}
			}
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in         string
		text, json string
	}{
		{"0123456789", "0123456789", "0123456789"},
		{"0123456789a", "0123456789…", "0123456789…"},
		{"012345\n", `012345\x0A`, "012345…"},
		{"0123456\n", "0123456…", "0123456…"},
		{"\n\n\n", `\x0A\x0A…`, `\u000A…`},
		{"0123456789" + strings.Repeat("x", 1e6), "0123456789…", "0123456789…"},
	} {
		if got := string(appendText(nil, tt.in, 10, &quoted)); got != tt.text {
			t.Errorf("text %.20q is cut to %s, want %s", tt.in, got, tt.text)
		}
		if got := string(appendJSONString(nil, tt.in, 10)); got != tt.json {
			t.Errorf("JSON string %.20q is cut to %s, want %s", tt.in, got, tt.json)
		}
	}
}

// maxLine must hold for the worst of everything: Write relies on it.
func TestLongestLine(t *testing.T) {
	for _, fill := range []string{"x", "\x00", "\xff", "\"", "é", "\u2028", "\U0001F600"} {
		s := strings.Repeat(fill, 10_000)
		r := Record{
			Time: time.Unix(math.MaxInt64, 999999999), Remote: s, Host: s, Method: s, Target: s, Proto: s,
			Referer: s, UserAgent: s, Status: math.MaxInt, Bytes: math.MaxInt64, Duration: math.MaxInt64,
		}
		for _, f := range []format{combined, common, jsonLines} {
			if n := len(line(f, &r)); n > maxLine {
				t.Errorf("format %d full of %q: %d bytes, want at most %d", f, fill, n, maxLine)
			}
			checkLine(t, f, &r)
		}
	}
}

func TestClockFollowsTime(t *testing.T) {
	var c, j clock
	now := example.Time
	for _, step := range []time.Duration{0, time.Millisecond, time.Second, -time.Second, 1000 * time.Hour} {
		now = now.Add(step)
		if got, want := string(c.common(now)), now.Local().Format(commonLayout); got != want {
			t.Errorf("after %v the time is %s, want %s", step, got, want)
		}
		date, zone := j.rfc3339(now)
		if got, want := string(date)+string(zone), now.Local().Format(time.RFC3339); got != want {
			t.Errorf("after %v the time is %s, want %s", step, got, want)
		}
	}
	for _, sec := range []int64{math.MinInt64, 0, math.MaxInt64} {
		if _, err := time.Parse(commonLayout, string(c.common(time.Unix(sec, 0)))); err != nil {
			t.Error(err)
		}
	}
}

var combinedLine = regexp.MustCompile(`^([^ "]+) - - \[([^]]+)\] "([^ "]+) ([^ "]+) ([^ "]+)" (\d+) (\d+)(?: "([^"]+)" "([^"]+)")?\n$`)

// unescape is what a reader of the text formats does; cut tells of a cut mark.
func unescape(t *testing.T, s string) (plain string, cut bool) {
	t.Helper()
	s, cut = strings.CutSuffix(s, cutMark)
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		v, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil || s[i+1] != 'x' {
			t.Fatalf("bad escape in %q", s)
		}
		b.WriteByte(byte(v))
		i += 3
	}
	return b.String(), cut
}

// checkField holds a field that was read back against the one that was written.
func checkField(t *testing.T, name, got, want string) {
	t.Helper()
	plain, cut := unescape(t, got)
	if want == "" {
		want = "-"
	}
	if cut && !strings.HasPrefix(want, plain) || !cut && plain != want {
		t.Errorf("%s %.100q was written as %.100s", name, want, got)
	}
}

// checkLine reads a line back and compares it with its record.
func checkLine(t *testing.T, f format, r *Record) {
	t.Helper()
	got := line(f, r)
	if strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\n") || strings.ContainsAny(got, "\r\x00\x1b\x7f") {
		t.Fatalf("not exactly one line: %q", got)
	}
	if len(got) > maxLine || !utf8.ValidString(got) {
		t.Fatalf("%d bytes, valid UTF-8 %t: %q", len(got), utf8.ValidString(got), got)
	}
	if f == jsonLines {
		checkJSON(t, got, r)
		return
	}
	m := combinedLine.FindStringSubmatch(got)
	if m == nil {
		t.Fatalf("does not parse: %q", got)
	}
	if _, err := time.Parse(commonLayout, m[2]); err != nil {
		t.Error(err)
	}
	checkField(t, "remote", m[1], r.Remote)
	checkField(t, "method", m[3], r.Method)
	checkField(t, "target", m[4], r.Target)
	checkField(t, "proto", m[5], r.Proto)
	if want := strconv.FormatInt(max(r.Bytes, 0), 10); m[7] != want {
		t.Errorf("bytes %s, want %s", m[7], want)
	}
	if f == combined {
		checkField(t, "referer", m[8], r.Referer)
		checkField(t, "user agent", m[9], r.UserAgent)
	}
}

func checkJSON(t *testing.T, got string, r *Record) {
	t.Helper()
	var o struct {
		Time                                time.Time
		Remote, Host, Method, Target, Proto string
		Status                              int
		Bytes                               int64
		DurationUS                          int64 `json:"duration_us"`
		Referer                             string
		UserAgent                           string `json:"user_agent"`
		Lane                                string
	}
	if err := json.Unmarshal([]byte(got), &o); err != nil {
		t.Fatalf("%v in %q", err, got)
	}
	if o.Bytes != max(r.Bytes, 0) || o.DurationUS != max(r.Duration, 0).Microseconds() || (o.Lane == "fast") != r.Fast {
		t.Errorf("bytes %d, duration %d µs, lane %s in the line of %+v", o.Bytes, o.DurationUS, o.Lane, r)
	}
	for _, field := range [][3]string{
		{"remote", o.Remote, r.Remote},
		{"host", o.Host, r.Host},
		{"method", o.Method, r.Method},
		{"target", o.Target, r.Target},
		{"proto", o.Proto, r.Proto},
		{"referer", o.Referer, r.Referer},
		{"user agent", o.UserAgent, r.UserAgent},
	} {
		// A range over a string sees U+FFFD for every byte that is not UTF-8.
		want := string([]rune(field[2]))
		plain, cut := strings.CutSuffix(field[1], cutMark)
		if field[1] != want && (!cut || !strings.HasPrefix(want, plain)) {
			t.Errorf("%s %.100q was written as %.100q", field[0], want, field[1])
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("192.0.2.1", "example.com", "GET", "/", "HTTP/1.1", "", "curl", int64(12), 200)
	f.Add("-", "a\"b", "G\nT", "/\" 200 1 \"", "\xff\xfe", "\u2028\x85", `\"\`, int64(-1), -200)
	f.Add("", "", "", strings.Repeat("é", 3000), "", strings.Repeat("\n", 600), strings.Repeat("\x80", 300), int64(math.MinInt64), 1000)
	f.Fuzz(func(t *testing.T, remote, host, method, target, proto, referer, agent string, n int64, status int) {
		r := Record{
			Time: time.Unix(n, n%1e9), Remote: remote, Host: host, Method: method, Target: target, Proto: proto,
			Referer: referer, UserAgent: agent, Status: status, Bytes: n, Duration: time.Duration(n), Fast: n%2 == 0,
		}
		for _, format := range []format{combined, common, jsonLines} {
			checkLine(t, format, &r)
		}
	})
}
