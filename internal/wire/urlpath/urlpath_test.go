package urlpath

import (
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "": "/", "/a": "/a", "/a/": "/a/", "//": "/", "//a": "/a", "/a//b": "/a/b",
		"/a/../b": "/b", "/a/..": "/", "/..": "/", "/../..": "/", "/a/./b": "/a/b", "/a/.": "/a/",
		"/a/b/..": "/a/", "/a/b/../": "/a/", "/.hidden": "/.hidden", "/...": "/...", "a/b": "/a/b",
	} {
		got, ok := Clean(in)
		if got != want || ok != (in == want) {
			t.Errorf("Clean(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"/", "/a/../b//c/./", "//x", "/..%2f", ".."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		got, _ := Clean(p)
		if again, ok := Clean(got); !ok || again != got {
			t.Fatalf("Clean(%q) = %q, which is not clean: %q", p, got, again)
		}
		if !strings.HasPrefix(got, "/") || strings.Contains(got, "//") {
			t.Fatalf("Clean(%q) = %q", p, got)
		}
		for s := range strings.SplitSeq(got, "/") {
			if s == "." || s == ".." {
				t.Fatalf("Clean(%q) = %q keeps a dot segment", p, got)
			}
		}
	})
}

func TestMade(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "/a//b": "/a/b", "/a..b": "/a..b", "/...": "/...", "/%2e%2e/a": "/%2e%2e/a", "/a/..b": "/a/..b",
		"/a/../b": "", "/..": "", "/a/.": "", `/a/..\b`: "", `/a\..`: "", "/a\x00b": "", "..": "",
	} {
		if got, ok := Made(in); got != want || ok != (want != "") {
			t.Errorf("Made(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]bool{
		"/": true, "/.well-known/a": true, "/a..b/": true, "/a:b@c,d+e=f!$&'()*~_-.": true, "/ä": true,
		"/a//b": false, "/a/../b": false, "/a/.": false, `/a\b`: false, "/a;b": false, "/%2e": false, "a": false,
	} {
		if Plain(in) != want {
			t.Errorf("Plain(%q) is not %v", in, want)
		}
	}
}
