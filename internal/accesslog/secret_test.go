package accesslog

import "testing"

func TestWithoutSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"/ws":                          "/ws",
		"/ws?token=abc.def":            "/ws?token=...",
		"/sse?channel=a&token=x&b=1":   "/sse?channel=a&token=...&b=1",
		"/?access_token=x":             "/?access_token=...",
		"/?tokens=x&my_token=y&token=": "/?tokens=x&my_token=y&token=",
		"/token=x":                     "/token=x",
	} {
		if got := WithoutSecrets(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
