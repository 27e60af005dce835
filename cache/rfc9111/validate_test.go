package rfc9111

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/wire/field"
)

func TestConditional(t *testing.T) { // 4.3.1
	a, b := on(-time.Hour), on(-time.Minute)
	for _, c := range []struct {
		name   string
		stored []http.Header
		match  string
		since  string
	}{
		{"nothing", nil, "", ""},
		{"no validator", []http.Header{header("A: 1")}, "", ""},
		{"a tag", []http.Header{header(`Etag: "a"`)}, `"a"`, ""},
		{"a weak tag", []http.Header{header(`Etag: W/"a"`)}, `W/"a"`, ""},
		{"a tag without quotes", []http.Header{header("Etag: abc")}, "abc", ""},
		{"obs-text", []http.Header{header("Etag: \"a\xfc\"")}, "\"a\xfc\"", ""},
		{"a comma inside", []http.Header{header(`Etag: "a,b"`)}, `"a,b"`, ""},
		{"a star", []http.Header{header("Etag: *")}, "", ""},
		{"a list", []http.Header{header("Etag: a, b")}, "", ""},
		{"a quote inside", []http.Header{header(`Etag: "a"b"`)}, "", ""},
		{"two tags", []http.Header{header(`Etag: "a"`, `Etag: "b"`)}, "", ""},
		{"a date", []http.Header{header("Last-Modified: " + a)}, "", a},
		{"no date", []http.Header{header("Last-Modified: yesterday")}, "", ""},
		{"a tag and a date", []http.Header{header(`Etag: "a"`, "Last-Modified: "+a)}, `"a"`, a},
		{"several", []http.Header{header(`Etag: "a"`), header(`Etag: "b"`), header(`Etag: "a"`), header("X: 1")}, `"a", "b"`, ""},
		{"two dates", []http.Header{header("Last-Modified: " + a), header("Last-Modified: " + b)}, "", ""},
		{"a tag and two dates", []http.Header{header(`Etag: "a"`, "Last-Modified: "+a), header("Last-Modified: " + b)}, `"a"`, ""},
		{"the same date", []http.Header{header("Last-Modified: " + a), header("Last-Modified: " + a)}, "", a},
	} {
		client := header("If-Match: x", "If-None-Match: x", "If-Modified-Since: x", "If-Unmodified-Since: x", "If-Range: x", "Accept: y")
		h := field.Of(client)
		want := header("Accept: y")
		if c.match != "" {
			want.Set("If-None-Match", c.match)
		}
		if c.since != "" {
			want.Set("If-Modified-Since", c.since)
		}
		asks := c.match+c.since != ""
		if !asks {
			want = client
		}
		if got := Conditional(&h, c.stored); got != asks {
			t.Errorf("%s: %v", c.name, got)
		}
		if diff := cmp.Diff(want, http.Header(h.Header())); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	var many []http.Header
	for i := range 100 {
		many = append(many, header(fmt.Sprintf(`Etag: "%d"`, i)))
	}
	var h field.Lines
	if Conditional(&h, many); strings.Count(h.First("If-None-Match"), ",") != maxTags-1 {
		t.Errorf("asks for %q", h.First("If-None-Match"))
	}
}

func TestSelected(t *testing.T) { // 4.3.4
	a, b := "Last-Modified: "+on(-time.Hour), "Last-Modified: "+on(-time.Minute)
	stored := []http.Header{header(`Etag: "x"`, a), header(`Etag: W/"y"`, a), header(`Etag: "y"`, b), header("A: 1")}
	for _, c := range []struct {
		lines []string
		want  int
	}{
		{[]string{`Etag: "x"`}, 0},
		{[]string{`Etag: "y"`}, 2},
		{[]string{`Etag: W/"y"`}, 1},
		{[]string{`Etag: W/"x"`}, 0},
		{[]string{`Etag: "z"`, b}, -1},
		{[]string{`Etag: W/"z"`, b}, 2},
		{[]string{a}, 0},
		{[]string{b}, 2},
		{nil, -1},
	} {
		if got := Selected(header(c.lines...), stored); got != c.want {
			t.Errorf("%q: %d, want %d", c.lines, got, c.want)
		}
	}
	for _, only := range []string{`Etag: "z"`, "A: 1"} {
		if got := Selected(header(only), stored[:1]); got != 0 {
			t.Errorf("%s for the only one: %d", only, got)
		}
	}
	if got := Selected(header(`Etag: "z"`), nil); got != -1 {
		t.Errorf("for none: %d", got)
	}
}

func TestInvalidated(t *testing.T) { // 4.4
	for _, c := range []struct {
		method string
		status int
		lines  []string
		want   []string
	}{
		{"GET", 200, nil, nil},
		{"HEAD", 200, nil, nil},
		{"OPTIONS", 200, nil, nil},
		{"SEARCH", 200, nil, nil},
		{"POST", 500, nil, nil},
		{"POST", 404, nil, nil},
		{"POST", 103, nil, nil},
		{"POST", 200, nil, []string{"http://h.example/d/a?b"}},
		{"PUT", 303, nil, []string{"http://h.example/d/a?b"}},
		{"DELETE", 204, nil, []string{"http://h.example/d/a?b"}},
		{"M-SEARCH", 200, nil, []string{"http://h.example/d/a?b"}},
		{"get", 200, nil, []string{"http://h.example/d/a?b"}}, // methods have a case
		{"POST", 201, []string{"Location: c#x", "Content-Location: /e"}, []string{"http://h.example/d/a?b", "http://h.example/d/c", "http://h.example/e"}},
		{"POST", 201, []string{"Location: http://H.example:80/c", "Content-Location: /d/a?b"}, []string{"http://h.example/d/a?b", "http://H.example:80/c"}},
		{"POST", 201, []string{"Location: https://h.example/c", "Content-Location: //other.example/"}, []string{"http://h.example/d/a?b"}},
		{"POST", 201, []string{"Location: http://h.example:81/c", "Content-Location: ://"}, []string{"http://h.example/d/a?b"}},
		{"POST", 201, []string{"Location: /c", "Location: /d"}, []string{"http://h.example/d/a?b"}},
	} {
		target, err := url.Parse("http://h.example/d/a?b#f")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range Invalidated(c.method, target, c.status, field.Of(header(c.lines...))) {
			got = append(got, u.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %d %q: %s", c.method, c.status, c.lines, diff)
		}
		if target.Fragment != "f" {
			t.Error("the target has changed")
		}
	}
}
