package cli

import "testing"

// TestServedAt: a URL leads to the servers that listen at its host and port.
func TestServedAt(t *testing.T) {
	local := []string{"http://127.0.0.1:8080", "https://127.0.0.1:8443", "http+unix:/run/web.sock"}
	all := []string{"http://localhost:80", "https://localhost:443"} // as a listener of every address says it
	six := []string{"http://[::1]:8080"}
	for _, c := range []struct {
		addrs []string
		page  string
		want  bool
	}{
		{local, "http://127.0.0.1:8080/a?b", true},
		{local, "http://localhost:8080/", true},
		{local, "http://localhost.:8080/", true},
		{local, "https://127.0.0.1:8443/", true},
		{local, "ws://127.0.0.1:8080/live/", true},
		{local, "http://shop.example:8080/", true},
		{local, "http://127.0.0.1:8081/", false},
		{local, "http://127.0.0.2:8080/", false},
		{local, "http://127.0.0.1/", false},
		{local, "/a", false},
		{local, "*/posts/?", false},
		{local, "127.0.0.1:8080", false},
		{[]string{"http://10.1.2.3:80"}, "http://localhost/", false},
		{all, "http://shop.example/", true},
		{all, "https://10.1.2.3/", true},
		{all, "wss://shop.example/live/", true},
		{all, "http://shop.example:8080/", false},
		{six, "http://[::1]:8080/", true},
		{six, "http://[::2]:8080/", false},
		{six, "http://127.0.0.1:8080/", false},
		{nil, "http://127.0.0.1:8080/", false},
	} {
		if got := servedAt(c.addrs, c.page); got != c.want {
			t.Errorf("%s at %v: %t, want %t", c.page, c.addrs, got, c.want)
		}
	}
}
