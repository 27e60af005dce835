package php

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fpm starts a real php-fpm, and returns its socket.
func fpm(t *testing.T) string {
	t.Helper()
	var program string
	for _, pattern := range []string{"/usr/sbin/php-fpm*", "/usr/local/sbin/php-fpm*", "/usr/bin/php-fpm*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			program = found[0]
		}
	}
	if program == "" {
		t.Skip("php-fpm is not installed")
	}
	path := socket(t)
	user := ""
	if os.Getuid() == 0 {
		user = "user = root\n"
	}
	config := filepath.Join(t.TempDir(), "fpm.conf")
	text := fmt.Sprintf("[global]\nerror_log = %s.log\ndaemonize = no\n[www]\n%slisten = %s\npm = static\npm.max_children = 2\nphp_admin_value[post_max_size] = 20M\nphp_admin_flag[display_errors] = off\n", path, user, path)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-F", "-R", "-n", "-y", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // killed, it would leave its workers behind
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for range 600 {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		time.Sleep(50 * time.Millisecond)
	}
	log, _ := os.ReadFile(path + ".log")
	t.Fatalf("php-fpm does not listen after 30 s: %s", log)
	return ""
}

// frontController answers as WordPress and its like do.
const frontController = `<?php
switch (strtok($_SERVER['REQUEST_URI'], '?')) {
case '/cookies': setcookie('a', '1'); setcookie('b', '2', 0, '/', '', true, true); echo 'ok'; break;
case '/redirect': header('Location: /elsewhere'); break;
case '/permanent': header('Location: /elsewhere', true, 301); break;
case '/unchanged': http_response_code(304); break;
case '/missing': http_response_code(404); echo 'not here'; break;
case '/upload': echo strlen(file_get_contents('php://input')); break;
case '/form': echo $_POST['name'], ' ', $_FILES['file']['size'] ?? 'none'; break;
case '/endless': for ($i = 0; $i < 3000; $i++) { echo str_repeat('x', 1000); } break;
case '/noisy': error_log('it complains'); echo 'ok'; break;
case '/fatal': nothing_like_that(); break;
case '/auth': echo $_SERVER['PHP_AUTH_USER'] ?? 'nobody'; break;
default: echo json_encode([$_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? null, $_GET]);
}
`

// A real php-fpm, with what applications do.
func TestFPM(t *testing.T) {
	dir := folder(t, "index.php", "a.txt")
	if err := os.WriteFile(filepath.Join(dir, "index.php"), []byte(frontController), 0o644); err != nil {
		t.Fatal(err)
	}
	path := fpm(t)
	for _, keep := range []int{0, 1} {
		srv := front(t, nil, dir, Options{To: []string{path}, Idle: keep})
		for _, c := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"GET", "/post/1?x=1", "", 200, `["GET","\/post\/1?x=1","\/index.php",null,{"x":"1"}]`},
			{"GET", "/index.php/a/b", "", 200, `["GET","\/index.php\/a\/b","\/index.php","\/a\/b",[]]`},
			{"DELETE", "/x", "", 200, `["DELETE","\/x","\/index.php",null,[]]`},
			{"GET", "/cookies", "", 200, "ok"},
			{"GET", "/redirect", "", 302, ""},
			{"GET", "/permanent", "", 301, ""},
			{"GET", "/unchanged", "", 304, ""},
			{"GET", "/missing", "", 404, "not here"},
			{"POST", "/upload", strings.Repeat("u", 8<<20), 200, "8388608"},
			{"POST", "/form", "name=me", 200, "me none"},
			{"GET", "/endless", "", 200, strings.Repeat("x", 3_000_000)},
			{"HEAD", "/endless", "", 200, ""},
			{"GET", "/noisy", "", 200, "ok"},
			{"GET", "/fatal", "", 500, ""},
			{"GET", "/auth", "", 200, "me"},
		} {
			resp, body := get(t, srv.URL+c.path, func(r *http.Request) {
				r.Method = c.method
				r.SetBasicAuth("me", "secret")
				if c.body != "" {
					r.Body, r.ContentLength = reading(c.body), int64(len(c.body))
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
			})
			if resp.StatusCode != c.status || body != c.want {
				t.Errorf("keep %d: %s %s: %d %.200q, want %d %.200q", keep, c.method, c.path, resp.StatusCode, body, c.status, c.want)
			}
			if c.path == "/cookies" && len(resp.Header["Set-Cookie"]) != 2 {
				t.Errorf("cookies: %q", resp.Header["Set-Cookie"])
			}
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
}

type stringBody struct{ *strings.Reader }

func (stringBody) Close() error { return nil }

func reading(text string) stringBody { return stringBody{strings.NewReader(text)} }

// TestFPMStreams: each piece that a script flushes is at the client before the script
// goes on. PHP itself sends the header with the first.
func TestFPMStreams(t *testing.T) {
	dir := folder(t, "index.php")
	script := `<?php
function client_has($what) { while (!file_exists(__DIR__ . "/$what")) { usleep(500); clearstatcache(); } }
header('Content-Type: text/event-stream');
for ($i = 0; $i < 3; $i++) { echo "data: $i\n\n"; flush(); client_has($i); }
`
	if err := os.WriteFile(filepath.Join(dir, "index.php"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	path := fpm(t)
	for _, method := range []string{"GET", "POST", "HEAD"} {
		srv := front(t, nil, dir, Options{To: []string{path}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, srv.URL+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%s: the header is held back: %v", method, err)
		}
		for i := range 3 {
			piece := fmt.Sprintf("data: %d\n\n", i)
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(res.Body, got); method != "HEAD" && (err != nil || string(got) != piece) {
				t.Fatalf("%s: %q, want %q (%v)", method, got, piece, err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
			t.Errorf("%s: %q at the end, %v", method, rest, err)
		}
		_ = res.Body.Close()
		for i := range 3 {
			_ = os.Remove(filepath.Join(dir, fmt.Sprint(i)))
		}
	}
}
