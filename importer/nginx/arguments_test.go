package nginx

import (
	"strings"
	"testing"
)

// TestCheck: a line that has swallowed the next one is an error, with its place.
func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"http {\nserver {\nlisten 80\nserver_name a;\n}\n}": `nginx.conf:3: listen has no parameter "server_name": is there a ";" missing?`,
		"location /a {\nallow 10.0.0.1\ndeny all;\n}":       `nginx.conf:2: allow has 3 arguments: is there a ";" missing?`,
		"server { root; }": "nginx.conf:1: root has 0 arguments",
		"server { listen 443 ssl http2 backlog=9 so_keepalive=on; return 301 /; location / { allow all; } set $a b; }": "",
		"map $a $b { root 1 2 3; }": "",
	} {
		list, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = Check(list)
		if got := err; want == "" && got != nil || want != "" && (got == nil || !strings.HasSuffix(got.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for name, want := range map[string]string{"roott": "root", "proxy_pas": "proxy_pass", "lsiten": "listen", "acess_log": "access_log", "tryfiles": "try_files", "modsecurity": "", "root": ""} {
		if got := meant(name); got != want {
			t.Errorf("%s is meant as %q, want %q", name, got, want)
		}
	}
}
