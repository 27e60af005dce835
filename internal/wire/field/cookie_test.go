package field

import (
	"net/http"
	"slices"
	"testing"
)

// FuzzCookies: cookies are read as net/http reads them.
func FuzzCookies(f *testing.F) {
	for _, s := range []string{"a=1", `a="1"; b=2;a=3`, "a", "=a", "a = 1", "a=b c", "a=\x01;a=2", ";;a=1", `a="`, "\ta=1\r\n"} {
		f.Add(s, "a", "b=1; a=2")
	}
	f.Fuzz(func(t *testing.T, line, name, second string) {
		if !Token(name) {
			return
		}
		lines := Lines{{"Cookie", line}, {"X", "a=1"}, {"Cookie", second}}
		r := http.Request{Header: http.Header{"Cookie": {line, second}}}
		var want []string
		for _, c := range r.CookiesNamed(name) {
			want = append(want, c.Value)
		}
		if got := slices.Collect(lines.Cookies(name)); !slices.Equal(got, want) {
			t.Errorf("%q and %q have %q, want %q", line, second, got, want)
		}
		if first := lines.Cookie(name); len(want) > 0 && first != want[0] {
			t.Errorf("the first of %q is %q", want, first)
		}
	})
}
