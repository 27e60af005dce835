package field

import "testing"

func TestNormal(t *testing.T) {
	for _, c := range []struct{ scheme, host, want string }{
		{"http", "a.test", "a.test"},
		{"http", "A.Test", "a.test"},
		{"http", "a.test:", "a.test"},
		{"http", "a.test:80", "a.test"},
		{"http", "a.test:443", "a.test:443"},
		{"https", "a.test:443", "a.test"},
		{"https", "a.test:80", "a.test:80"},
		{"http", "a.test.", "a.test"},
		{"http", "A.TEST.:80", "a.test"},
		{"http", "a.test.:8080", "a.test:8080"},
		{"http", "a.test..", "a.test.."},
		{"http", ".", "."},
		{"http", "", ""},
		{"http", ":80", ""},
		{"http", "[::1]", "[::1]"},
		{"http", "[::1]:80", "[::1]"},
		{"http", "[2001:DB8::1]:81", "[2001:db8::1]:81"},
		{"http", "[::1]:", "[::1]"},
		{"http", "\u212a.test", "\u212a.test"}, // no ASCII letter, whatever Unicode folds it to
	} {
		if got := NormalAuthority(c.scheme, c.host); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.scheme, c.host, got, c.want)
		}
	}
}

// FuzzNormal: what is normal stays so, or a key would not be what is sent.
func FuzzNormal(f *testing.F) {
	for _, s := range []string{"A.test.:80", "a.:", "..:", "[::1]:80", ":", "a:80:80", "::", "a.:80."} {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, host string, secure bool) {
		scheme := "http"
		if secure {
			scheme = "https"
		}
		once := NormalAuthority(scheme, host)
		if twice := NormalAuthority(scheme, once); twice != once {
			t.Fatalf("%q becomes %q, then %q", host, once, twice)
		}
	})
}
