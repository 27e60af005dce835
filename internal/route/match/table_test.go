package match

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(file, []byte("# moved\n/a\t/b # here\r\n\n/over /file\n/away https://other.example/x?y=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	moved, faults := TableOptions{File: file, Values: map[string]string{"/over": "/values"}}.Compile(nil)
	if faults != nil {
		t.Fatal(faults)
	}
	lang, faults := TableOptions{Key: "{header.accept-language}", Values: map[string]string{"de": "/de"}, Default: "/en"}.Compile(nil)
	if faults != nil {
		t.Fatal(faults)
	}
	in := &Scope{Tables: map[string]*Table{"moved": moved, "lang": lang}}
	for _, c := range []struct{ target, to, want string }{
		{"/a", "{table.moved}", "/b"},
		{"/over", "{table.moved}", "/values"},
		{"/away", "{table.moved}", "https://other.example/x?y=1"},
		{"/none", "{table.moved}", "/"},
		{"/a", "/x{table.moved}", "/x/b"},
		{"/a", "{table.lang}{path}", "/de/a"},
		{"/a?q=1%202&r=3", "/{query.q}", "/1%202"},
		{"/a", "/?c={cookie.c}", "/?c=%2F%2Fevil.test"},
		{"/a", "/{cookie.c}", "/evil.test"},
		{"/a", "{cookie.c}", "/evil.test"},
	} {
		to, err := NewTemplate(c.to, nil, in)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, c.target, http.NoBody)
		r.Header.Set("Accept-Language", "de")
		r.Header.Set("Cookie", "c=//evil.test")
		if got, ok := to.Location(Of(r), nil); !ok || got != c.want {
			t.Errorf("%s by %s: %s, want %s", c.target, c.to, got, c.want)
		}
	}
	if to, _ := NewTemplate("{table.lang}/{cookie.c}{host}", nil, in); to != nil {
		headers, more := to.Says()
		if strings.Join(headers, " ") != "Accept-Language Cookie Host" || more {
			t.Errorf("it says %v, %v", headers, more)
		}
	}
}

func TestTableRefuses(t *testing.T) {
	for _, o := range []TableOptions{
		{},
		{File: "/nowhere"},
		{File: "/"},
		{Values: map[string]string{"a": "b c"}},
		{Values: map[string]string{"a": "//evil.test"}},
		{Values: map[string]string{"a": "x"}, Key: "{1}"},
		{Values: map[string]string{"a": "x"}, Key: "{table.x}"},
		{Values: map[string]string{"a": "x"}, Default: "\n"},
	} {
		if _, faults := o.Compile(nil); faults == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for _, text := range []string{"a", "a b c", "a b\na c", "a //b", strings.Repeat("x", maxTableLine+1)} {
		if err := (&Table{values: map[string]string{}}).parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add("/a /b\n# c\n/d https://x/ # y")
	f.Fuzz(func(t *testing.T, text string) {
		table := &Table{values: map[string]string{}}
		if table.parse(strings.NewReader(text)) != nil {
			return
		}
		for k, v := range table.values {
			if k == "" || tableValue(v) != nil {
				t.Errorf("%q: %q", k, v)
			}
		}
	})
}
