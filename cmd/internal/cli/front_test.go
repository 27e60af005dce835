package cli

import (
	"strings"
	"testing"
)

func TestFrontAddresses(t *testing.T) {
	for in, want := range map[string]Site{
		"http://127.0.0.1:8080":                        {"http://127.0.0.1:8080", false},
		"https://localhost:8443":                       {"https://localhost:8443", true},
		"http://127.0.0.1:80 https://localhost:443":    {"http://127.0.0.1:80", true},
		"http+unix:/run/web.sock":                      {"http://localhost", false},
		"http://[::1]:8080 http+unix:/run/web.sock":    {"http://[::1]:8080", false},
		"https+unix:/run/a.sock http://127.0.0.1:8080": {"https://localhost", true},
	} {
		f, err := NewFront(strings.Fields(in))
		if err != nil || f.Site != want {
			t.Errorf("%s: %+v, %v; want %+v", in, f, err, want)
		}
	}
	if _, err := NewFront(nil); err == nil {
		t.Error("a front without an address")
	}
	plain, secure := Site{BaseURL: "http://127.0.0.1:80"}, Site{"https://a", true}
	for _, c := range []struct {
		at                  Site
		text, asked, purged string
	}{
		{plain, "/x", "http://127.0.0.1:80/x", "http://127.0.0.1:80/x"},
		{plain, "https://b/x", "http://b/x", "b/x"},
		{plain, "http://b/x", "http://b/x", "http://b/x"},
		{plain, "//b/x", "//b/x", "//b/x"},
		{secure, "https://b/x", "https://b/x", "https://b/x"},
	} {
		if a, p := c.at.Asked(c.text), c.at.Purged(c.text); a != c.asked || p != c.purged {
			t.Errorf("%s at %+v: asked for as %s, purged as %s", c.text, c.at, a, p)
		}
	}
}
