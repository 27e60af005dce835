package plan

import (
	"strings"
	"testing"
)

// said are conditions as a rule has them, on one line.
func said(list ...Cond) string {
	var texts []string
	for _, c := range list {
		texts = append(texts, strings.TrimSpace(Rule{If: c, Do: To("/")}.Node().String()))
	}
	return strings.ReplaceAll(strings.Join(texts, "; "), "\n", ", ")
}

// TestComparisons: what a rule says of comparisons with texts and expressions.
func TestComparisons(t *testing.T) {
	for _, c := range []struct {
		of                        Comparison
		value, protocol           string
		paths, methods, addresses string
	}{
		{Comparison{Text: "on"}, "on", "protocol: https", "path: 'on'", "method: ['ON']", "!"},
		{Comparison{Text: "on", Not: true}, "!on", "protocol: http", "except: ['~^on$']", "method: ['!ON']", "!"},
		{Comparison{Expr: "^on$"}, "on", "protocol: https", "regex: '^on$'", "method: ['ON']", "!"},
		{Comparison{Expr: "."}, "~.", "protocol: https", "regex: .", "!", "!"},
		{Comparison{Expr: ".*"}, "~.*", "", "regex: '.*'", "!", "!"},
		{Comparison{Expr: "x"}, "~x", "never", "regex: x", "method: [X]", "!"},
		{Comparison{Expr: "(?i)^a|b"}, "~(?i)^a|b", "never", "regex: '(?i)^a|b'", "method: [A, B]", "!"},
		{Comparison{Expr: "^(GET|POST)$", Not: true}, "!~^(GET|POST)$", "", "except: ['~^(GET|POST)$']", "method: ['!GET', '!POST']", "!"},
		{Comparison{Text: "10.0.0.1"}, "10.0.0.1", "never", "path: '10.0.0.1'", "!", "address: ['10.0.0.1']"},
		{Comparison{Expr: `^10\.1\.`}, `~^10\.1\.`, "never", `regex: '^10\.1\.'`, "!", "address: ['10.1.0.0/16']"},
		{Comparison{Expr: `^10\.1`}, `~^10\.1`, "never", `regex: '^10\.1'`, "!", "!"},
		{Comparison{Expr: `^::1$`, Not: true}, `!::1`, "", "except: ['~^::1$']", "!", "address: ['!::1']"},
		{Comparison{Text: "a*"}, `~^a\*$`, "never", `regex: '^a\*$'`, "!", "!"},
	} {
		if got := c.of.Value(); got != c.value {
			t.Errorf("%+v: value %s, want %s", c.of, got, c.value)
		}
		got := "never"
		for _, w := range c.of.Protocol("on", "") {
			got = said(w.Cond)
		}
		if want := strings.TrimPrefix(c.protocol+", route: /", ", "); got != want && got != c.protocol {
			t.Errorf("%+v: protocol %s, want %s", c.of, got, want)
		}
		if got := said(c.of.Paths()); got != c.paths+", route: /" {
			t.Errorf("%+v: paths %s, want %s", c.of, got, c.paths)
		}
		for want, read := range map[string]func() (Cond, error){c.methods + " ": c.of.Methods, c.addresses: c.of.Addresses} {
			cond, err := read()
			got := said(cond)
			if err != nil {
				got = "!, route: /"
			}
			if got != strings.TrimSpace(want)+", route: /" {
				t.Errorf("%+v: %s, want %s", c.of, got, want)
			}
		}
	}
}

// TestHosts: of the names that a site is known to have those are written for which a
// comparison holds.
func TestHosts(t *testing.T) {
	site := func(others bool, names ...string) *Site {
		return NewSite(&Config{}, &Server{Names: names, Any: others})
	}
	for _, c := range []struct {
		site *Site
		of   Comparison
		want string
	}{
		{site(false, "a.example", "www.a.example"), Comparison{Text: "a.example"}, "host: [a.example], route: /"},
		{site(false, "a.example", "www.a.example"), Comparison{Expr: "example"}, "host: [a.example, www.a.example], route: /"},
		{site(false, "a.example", "www.a.example", "www.b.example"), Comparison{Expr: `^www\.(.*)$`}, "host: [www.a.example], route: / a.example; host: [www.b.example], route: / b.example"},
		{site(false, "a.example"), Comparison{Expr: `^www\.`}, ""},
		{site(false, "a.example"), Comparison{Text: "b.example"}, ""},
		{site(true, "a.example"), Comparison{Text: "B.example"}, "host: [b.example], route: /"},
		{site(false, "*.example"), Comparison{Expr: `^www\.`}, `header: {Host: '~(?i)^www\.'}, route: /`},
		{site(false, "a.example"), Comparison{Text: "a.example", Not: true}, `header: {Host: '!~(?i)^a\.example\.?(?::\d+)?$'}, route: /`},
	} {
		var got []string
		for _, w := range c.site.Hosts(c.of) {
			got = append(got, strings.TrimSuffix(said(w.Cond)+" "+w.Groups[1], " "))
		}
		if got := strings.Join(got, "; "); got != c.want {
			t.Errorf("%+v of %q: %s, want %s", c.of, c.site.Server.Names, got, c.want)
		}
	}
}

// TestLiteral: an expression is a text if it has ^, $ and nothing of its own.
func TestLiteral(t *testing.T) {
	for expr, want := range map[string]string{`^a$`: "a", `^a\.b$`: "a.b", `^/a-b$`: "/a-b", `^a.b$`: "", `^a`: "", `a$`: "", `(?i)^a$`: "", `^a|b$`: "", `^\d$`: ""} {
		if got, ok := Literal(expr); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q %v, want %q", expr, got, ok, want)
		}
	}
}
