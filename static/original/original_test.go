package original

import "testing"

func TestShorten(t *testing.T) {
	for usual, want := range map[string]string{
		"":                                    "max-age=5",
		"max-age=300":                         "max-age=5",
		"public, max-age=31536000, immutable": "public, max-age=5",
		"Private, Max-Age=600":                "Private, max-age=5",
		"max-age=0, must-revalidate":          "must-revalidate, max-age=0",
		"max-age=60, s-maxage=1":              "max-age=1",
		"no-cache":                            "no-cache",
		"private, no-store":                   "private, no-store",
		"max-age=60, stale-if-error=600":      "max-age=5",
		"max-age=soon":                        "max-age=5",
		`max-age=999, x="a, no-store`:         "no-store",
	} {
		if got := Shorten(usual, 5); got != want {
			t.Errorf("%q becomes %q, want %q", usual, got, want)
		}
	}
}
