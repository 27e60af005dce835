package urlpath

import (
	"net/url"
	"slices"
	"testing"
)

func TestReadings(t *testing.T) {
	for target, want := range map[string][]string{
		"/a/b":                    {"/a/b"},
		"/a%2Fb":                  {"/a/b", "/a%2Fb"},
		"/a/..;x/b":               {"/a/..;x/b", "/b", "/a/../b"},
		"/a/..%5Cb":               {"/a/..\\b", "/b", "/a/../b"},
		"/a/b;x=1":                {"/a/b;x=1"},
		"/p/https%3A%2F%2Fa/x":    {"/p/https:/a/x", "/p/https://a/x", "/p/https:%2F%2Fa/x"},
		"/p//x":                   {"/p/x", "/p//x"},
		"/p/..%2fadmin":           {"/admin", "/p/../admin", "/p/..%2fadmin"},
		"/p/%2e%2e/admin":         {"/admin", "/p/../admin"},
		"/a/../secret//../k":      {"/k", "/a/../secret//../k", "/a/../secret/../k", "/secret/k"},
		"//":                      {"/", "//"},
		"/a/.":                    {"/a/", "/a/."},
		"/p%2f..%2f..%2fx/../y/.": {"/y/", "/p/../../x/../y/.", "/p%2f..%2f..%2fx/../y/."},
	} {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		got := Readings(u)
		if got[0] != want[0] || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

func FuzzReadings(f *testing.F) {
	for _, s := range []string{"/", "/a/../b//c/./", "//x", "/..%2f", "/a/../secret//../k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Path == "" || u.Path[0] != '/' {
			return
		}
		list := Readings(u)
		if clean, was := Clean(u.Path); list[0] != clean || !was && len(list) == 1 || !Several(u.Path, u.RawPath) && len(list) > 1 {
			t.Fatalf("%q is read as %q", target, list)
		}
		for _, p := range list {
			if p == "" || p[0] != '/' {
				t.Fatalf("%q is read as %q", target, list)
			}
		}
	})
}
