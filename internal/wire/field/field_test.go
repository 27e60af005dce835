package field_test

import (
	"bufio"
	"math"
	"mime"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"millrace/internal/wire/field"
)

func TestList(t *testing.T) {
	for _, c := range []struct {
		lines       []string
		names, list []string
	}{
		{nil, nil, nil},
		{[]string{""}, nil, nil},
		{[]string{" , ,\t"}, nil, nil},
		{[]string{"close,\tTE ", "upgrade"}, []string{"close", "TE", "upgrade"}, []string{"close", "TE", "upgrade"}},
		{[]string{`a="b, c", d`}, []string{`a="b`, `c"`, "d"}, []string{`a="b, c"`, "d"}},
		{[]string{`a="\", b`, "c"}, []string{`a="\"`, "b", "c"}, []string{`a="\", b`, "c"}},
	} {
		if got := slices.Collect(field.Members(c.lines)); !slices.Equal(got, c.names) {
			t.Errorf("Members(%q) = %q, want %q", c.lines, got, c.names)
		}
		if got := slices.Collect(field.QuotedMembers(c.lines)); !slices.Equal(got, c.list) {
			t.Errorf("QuotedMembers(%q) = %q, want %q", c.lines, got, c.list)
		}
	}
	for range field.QuotedMembers([]string{"a, b"}) {
		break // must not go on
	}
	for range field.Members([]string{"a, b"}) {
		break
	}
}

func TestUnquote(t *testing.T) {
	for _, c := range []struct {
		in, want string
		ok       bool
	}{
		{"token", "token", true},
		{"", "", false},
		{"two words", "two words", false},
		{`""`, "", true},
		{`"two words"`, "two words", true},
		{`"a\"b\\c\d"`, `a"b\cd`, true},
		{`"`, "", false},
		{`"open`, "", false},
		{`"open\"`, "", false},
		{`"a"b`, "a", false},
		{`"a"b"`, "a", false},
	} {
		got, ok := field.Unquote(c.in)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("Unquote(%s) = %q, %v, want %q, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

// FuzzToken has net/textproto as its oracle, which net/http reads headers with.
func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "Host", "a b", "a:", "!#$%&'*+-.^_`|~", "caf\xc3\xa9", "x\x00", "(", "{}", "\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		every := s != ""
		for i := range len(s) {
			every = every && field.TokenByte(s[i])
		}
		if field.Token(s) != every {
			t.Fatalf("Token(%q) = %v, but its bytes say %v", s, !every, every)
		}
		if strings.ContainsAny(s, ": \r\n") { // would be another line, or is let through by net/textproto
			return
		}
		_, err := textproto.NewReader(bufio.NewReader(strings.NewReader(s + ": v\r\n\r\n"))).ReadMIMEHeader()
		if field.Token(s) != (err == nil) {
			t.Errorf("Token(%q) = %v, net/textproto says %v", s, field.Token(s), err)
		}
	})
}

// FuzzLower has strings.ToLower as its oracle, as far as that is about ASCII.
func FuzzLower(f *testing.F) {
	for _, s := range []string{"", "a", "Accept-Encoding", "\xff\xfeA", "\u212a", "\u0130X", "[@Z{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		low := field.Lower(s)
		if len(low) != len(s) {
			t.Fatalf("Lower(%q) = %q", s, low)
		}
		for i := range len(s) {
			want := s[i]
			if want < utf8.RuneSelf {
				want = strings.ToLower(s[i : i+1])[0]
			}
			if low[i] != want {
				t.Fatalf("Lower(%q) = %q, wrong at byte %d", s, low, i)
			}
		}
	})
}

// FuzzList has strings.Split and httpguts as its oracles.
func FuzzList(f *testing.F) {
	for _, s := range []string{"", "a", "a,b", " a ,, b\t", `a="x,y", b`, `"`, `"\"",a`, `\",a`, "a;b=c,d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines := []string{s}
		var want []string
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.Trim(part, " \t"); part != "" {
				want = append(want, part)
			}
		}
		names := slices.Collect(field.Members(lines))
		if !slices.Equal(names, want) {
			t.Fatalf("Members(%q) = %q, want %q", s, names, want)
		}
		for _, name := range names {
			if field.Token(name) && !field.Has(lines, strings.ToUpper(name)) {
				t.Errorf("%q is not found in %q", strings.ToUpper(name), s)
			}
		}
		list := slices.Collect(field.QuotedMembers(lines))
		if !strings.Contains(s, `"`) && !slices.Equal(list, names) {
			t.Errorf("QuotedMembers(%q) = %q, want %q", s, list, names)
		}
		for i, member := range list {
			if !field.Closed(member) && i < len(list)-1 {
				t.Errorf("QuotedMembers(%q): %q was cut within a quoted string", s, member)
			}
		}
	})
}

// FuzzCut puts together again what was cut, and has strings.Cut as its oracle
// where there are no quotes.
func FuzzCut(f *testing.F) {
	for _, s := range []string{"", ",", "a,b", `"a,b",c`, `"a\",b",c`, `a\",b`, `"a`, `a",",`, `"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		before, after, found := field.Cut(s, ',')
		if found && (before+","+after != s || !field.Closed(before) || field.Closed(after) != field.Closed(s)) || !found && (before != s || after != "") {
			t.Fatalf("Cut(%q) = %q, %q, %v", s, before, after, found)
		}
		if !found && field.Closed(s) {
			if _, _, again := field.Cut(s+",", ','); !again {
				t.Errorf("%q is closed, but a comma behind it is not found", s)
			}
		}
		if strings.Contains(s, `"`) {
			return
		}
		if b, a, ok := strings.Cut(s, ","); b != before || a != after || ok != found || !field.Closed(s) {
			t.Errorf("Cut(%q) = %q, %q, %v, strings.Cut %q, %q, %v", s, before, after, found, b, a, ok)
		}
	})
}

// FuzzQuote has package mime as its oracle, which reads parameters.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "token", "two words", `a"b\c`, "\\", "tab\t", "caf\u00e9", "[::1]:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := string(field.AppendQuote(nil, s))
		if back, ok := field.Unquote(quoted); back != s || !ok {
			t.Fatalf("Unquote(%s) = %q, %v, want %q", quoted, back, ok, s)
		}
		if text, rest, ok := field.CutQuoted(quoted + ";x"); quoted[0] == '"' && (text != s || rest != ";x" || !ok) {
			t.Fatalf("CutQuoted(%s;x) = %q, %q, %v", quoted, text, rest, ok)
		}
		if !field.Closed(quoted) {
			t.Errorf("%s is not closed", quoted)
		}
		if !field.Value(s) || strings.ContainsAny(s, "\r\n") {
			return
		}
		_, params, err := mime.ParseMediaType("text/plain; p=" + quoted)
		if err != nil || params["p"] != s {
			t.Errorf("mime reads %s as %q (%v), want %q", quoted, params["p"], err, s)
		}
	})
}

// FuzzWeight has the grammar and strconv as its oracles.
func FuzzWeight(f *testing.F) {
	for _, s := range []string{"", "0", "1", "0.5", "1.", "1.000", "1.001", "0.1234", "2", "-0", ".5", "0,5", "1e0"} {
		f.Add(s)
	}
	grammar := regexp.MustCompile(`^(0(\.[0-9]{0,3})?|1(\.0{0,3})?)$`)
	f.Fuzz(func(t *testing.T, s string) {
		w, ok := field.Weight(s)
		if ok != grammar.MatchString(s) {
			t.Fatalf("Weight(%q): ok = %v", s, ok)
		}
		if !ok {
			return
		}
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || int(math.Round(x*1000)) != w {
			t.Errorf("Weight(%q) = %d, strconv says %v (%v)", s, w, x, err)
		}
	})
}
