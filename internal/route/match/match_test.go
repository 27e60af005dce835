package match

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"millrace/internal/wire/urlpath"
)

func TestPath(t *testing.T) {
	for _, c := range []struct{ pattern, path, captures string }{
		{"", "/x", "/x"},
		{"/a", "/a", "/a"},
		{"/a", "/a/", ""},
		{"/a/", "/a", "/a|"},
		{"/a/", "/a/b/c", "/a/b/c|b/c"},
		{"/a/", "/ab", ""},
		{"/a/*.png", "/a/b.png", "/a/b.png|b"},
		{"/a/*.png", "/a/b/c.png", ""},
		{"/a/**.png", "/a/b/c.png", "/a/b/c.png|b/c"},
		{"/*/x/*", "/1/x/2", "/1/x/2|1|2"},
		{"~^/b/([0-9]+)$", "/b/12", "/b/12|12"},
		{"~^/b/([0-9]+)$", "/b/12x", ""},
		{`~\.php$`, "/x.php", ".php"},
	} {
		p, err := NewPath(c.pattern)
		if expression, is := strings.CutPrefix(c.pattern, "~"); is {
			p, err = NewExpression(expression)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Matches(c.path); got != (c.captures != "") {
			t.Errorf("%s matches %s: %v", c.pattern, c.path, got)
		} else if got && strings.Join(p.Captures(c.path), "|") != c.captures {
			t.Errorf("%s of %s captures %q, want %s", c.pattern, c.path, p.Captures(c.path), c.captures)
		}
	}
	for _, bad := range []string{"a", "/a?b", "(", `^(?!x)`, `(a)\1`, strings.Repeat("a", maxExpression+1)} {
		_, err := NewExpression(bad)
		if strings.HasPrefix(bad, "/") || bad == "a" {
			_, err = NewPath(bad)
		}
		if err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestWithin: a rule is for what all of its patterns are for.
func TestWithin(t *testing.T) {
	w := When{Regex: `\.jpg$`, Within: []string{"/media/", "~[0-9]"}, Except: []string{"/media/own/"}}
	m, faults := w.Compile(nil)
	if faults != nil {
		t.Fatal(faults)
	}
	for path, want := range map[string]bool{"/media/1.jpg": true, "/media/x.jpg": false, "/other/1.jpg": false, "/media/own/1.jpg": false, "/media/1.png": false} {
		if m.Covers(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
		if _, ok := m.Captures(path); ok != want {
			t.Errorf("captures of %s: %v", path, !want)
		}
	}
	for _, bad := range []string{"", "x", "~("} {
		if _, faults := (&When{Within: []string{bad}}).Compile(nil); faults["within"] == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// TestExcept: a rule is not for what it excepts, whatever its path says.
func TestExcept(t *testing.T) {
	w := When{Path: "/a/", Except: []string{"/a/b", "/a/c/", "/a/*.png", "~^/a/[0-9]+$"}}
	m, faults := w.Compile(nil)
	if faults != nil {
		t.Fatal(faults)
	}
	for path, want := range map[string]bool{"/a/": true, "/a/x": true, "/a/b": false, "/a/b/x": true, "/a/c": false, "/a/c/d": false, "/a/x.png": false, "/a/x/y.png": true, "/a/12": false, "/a/12x": true, "/b": false} {
		if got := m.Covers(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
		if _, got := m.Captures(path); got != want {
			t.Errorf("captures of %s: %v", path, got)
		}
	}
	for _, bad := range []string{"", "x", "~(", "/a?b"} {
		if _, faults := (&When{Except: []string{bad}}).Compile(nil); faults["except"] == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// A redirect never leads to another host than the one that its operator wrote.
func TestLocationStaysOnItsHost(t *testing.T) {
	for _, c := range []struct{ pattern, to, path, want string }{
		{"/a/", "/{1}", "/a//evil.test", "/evil.test"},
		{"/a/**", "{1}", "/a/evil.test", "/evil.test"},
		{"/a/", "/{1}", `/a/\evil.test`, "/%5Cevil.test"},
		{"/a/", "https://example.org/{1}", "/a/b c\r\nX: y", "https://example.org/b%20c%0D%0AX:%20y"},
		{"/a/", "/?q={1}", "/a/x&y", "/?q=x%26y"},
		{"/a/", "https://{host}{path}", "/a/b", "https://example.com/a/b"},
		{"/a/", "/b/{rest}", "/a//evil.test", "/b/a//evil.test"},
		{"/", "{rest}", "//evil.test", "/evil.test"},
		{"/a/", "/?q={rest}", "/a/b&c", "/?q=a%2Fb%26c"},
	} {
		p, err := NewPath(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		to, err := NewTemplate(c.to, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL.Path = c.path
		if got, ok := to.Location(Of(r), p.Captures(c.path)); !ok || got != c.want {
			t.Errorf("%s of %s to %s is %q, want %q", c.pattern, c.path, c.to, got, c.want)
		}
	}
}

func TestTemplateNamesWhatIsThere(t *testing.T) {
	p, err := NewExpression(`^/(?P<year>\d+)/(\w+)$`)
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{"/{year}/{2}": true, "/{3}": false, "/{month}": false, "/{1": false, "/{0}": true, "/{path}?{query}": true} {
		if _, err := NewTemplate(text, p, nil); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWhen(t *testing.T) {
	for _, c := range []struct {
		when When
		set  func(*http.Request)
		want bool
	}{
		{When{Method: []string{"POST"}}, nil, false},
		{When{Method: []string{"!POST"}}, nil, true},
		{When{Host: []string{"*.example.com"}}, nil, false},
		{When{Host: []string{"EXAMPLE.com"}}, nil, true},
		{When{Header: map[string]string{"accept": "*json*"}}, func(r *http.Request) { r.Header.Set("Accept", "text/json; q=1") }, true},
		{When{Header: map[string]string{"accept": "*json*"}}, nil, false},
		{When{Header: map[string]string{"X": ""}}, nil, true},
		{When{Header: map[string]string{"X": "*"}}, nil, false},
		{When{Header: map[string]string{"X": "!*"}}, nil, true},
		{When{Header: map[string]string{"X": "!a"}}, func(r *http.Request) { r.Header["X"] = []string{"b", "a"} }, false},
		{When{Header: map[string]string{"X": "~^a+$"}}, func(r *http.Request) { r.Header.Set("X", "aaa") }, true},
		{When{Query: map[string]string{"q": "1"}}, func(r *http.Request) { r.URL.RawQuery = "q=1" }, true},
		{When{Cookie: map[string]string{"c": "1"}}, func(r *http.Request) { r.Header.Set("Cookie", "a=2; c=1") }, true},
		{When{Address: []string{"192.0.2.0/24"}}, nil, true},
		{When{Address: []string{"!192.0.2.1"}}, nil, false},
		{When{Address: []string{"10.0.0.0/8"}}, nil, false},
		{When{Protocol: "https"}, nil, false},
		{When{Protocol: "http"}, nil, true},
	} {
		m, faults := c.when.Compile(nil)
		if faults != nil {
			t.Fatal(faults)
		}
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody) // from 192.0.2.1
		if c.set != nil {
			c.set(r)
		}
		if got := m.Matches(Of(r)); got != c.want {
			t.Errorf("%+v: %v", c.when, got)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("/a/**", "/{1}", "/a/b")
	f.Add("/", "https://x/{1}?{query}", "//x")
	f.Fuzz(func(t *testing.T, pattern, text, path string) {
		p, err := NewPath(pattern)
		if err != nil || !strings.HasPrefix(path, "/") || !p.Matches(path) {
			return
		}
		to, err := NewTemplate(text, p, nil)
		if err != nil {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL = &url.URL{Path: path}
		if got, _, ok := to.Path(Of(r), p.Captures(path)); ok {
			if clean, was := urlpath.Clean(got); !was {
				t.Fatalf("%q of %q is rewritten to %q, which is not the clean %q", pattern, path, got, clean)
			}
		}
		to.Location(Of(r), p.Captures(path))
	})
}
