package config

import (
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]Address{
		":80": {Port: 80}, "127.0.0.1:8080": {Host: "127.0.0.1", Port: 8080}, "localhost:0": {Host: "localhost"},
		"[::1]:8080": {Host: "::1", Port: 8080}, "[::]:80": {Host: "::", Port: 80}, "[0:0::1]:1": {Host: "::1", Port: 1},
		"unix:/run/x.sock": {Unix: "/run/x.sock"}, "unix:x": {Unix: "x"}, "unix:@abstract": {Unix: "@abstract"},
	} {
		if got, err := ParseAddress(in); got != want || err != nil {
			t.Errorf("ParseAddress(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "8080", "localhost", "localhost:", "localhost:http", "a:65536", "a:-1", "::1:80", "[::1]", "[::1:80", "[1.2.3.4]:80",
		"[x]:80", "http://a:80", "a b:80", "unix:", "unix:" + strings.Repeat("x", 104), "a:80/", "/run/x.sock",
	} {
		if got, err := ParseAddress(in); err == nil {
			t.Errorf("ParseAddress(%q) = %+v, want an error", in, got)
		} else if CheckAddress(in) == nil {
			t.Errorf("CheckAddress(%q) is nil", in)
		}
	}
}

func TestAddressString(t *testing.T) {
	for _, s := range []string{":80", "127.0.0.1:8080", "[::1]:0", "unix:/x"} {
		a, err := ParseAddress(s)
		if err != nil || a.String() != s {
			t.Errorf("%q reads back as %q, %v", s, a, err)
		}
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{":80", ":80", true},
		{":80", ":81", false},
		{":0", ":0", false},
		{":80", "127.0.0.1:80", true},
		{":80", "0.0.0.0:80", true},
		{":80", "[::]:80", true},
		{":80", "[::1]:80", true},
		{"[::]:80", "127.0.0.1:80", false},
		{"[::]:80", "[::1]:80", true},
		{"[::]:80", "[0::0]:80", true},
		{"0.0.0.0:80", "[::]:80", false},
		{"0.0.0.0:80", "0.0.0.0:80", true},
		{"0.0.0.0:80", "[::ffff:127.0.0.1]:80", true},
		{"0.0.0.0:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "[::1]:80", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:80", "[::1]:80", false},
		{"localhost:80", "localhost:80", true},
		{"localhost:80", ":80", true},
		{"unix:a", "unix:a", true},
		{"unix:a", "unix:b", false},
		{"unix:a", ":80", false},
	} {
		a, err1 := ParseAddress(c.a)
		b, err2 := ParseAddress(c.b)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if a.overlaps(b) != c.want || b.overlaps(a) != c.want {
			t.Errorf("%s and %s: overlap %v and %v, want %v", c.a, c.b, a.overlaps(b), b.overlaps(a), c.want)
		}
	}
}
