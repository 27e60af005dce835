package engine_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/observe/accesslog"
	"millrace/internal/process/servertest"
)

// TestClientBehindProxy: the log has the client that a trusted proxy names, from
// both roads, and nobody else can name one.
func TestClientBehindProxy(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	site := filepath.Join(dir, "site")
	if err := os.MkdirAll(site, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(site, "index.html"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "X-Unknown-To-The-Lane"} {
		t.Run(header, func(t *testing.T) {
			cfg := parse(t, fmt.Sprintf("listen: 127.0.0.1:0\nlimits: {trusted_proxies: [127.0.0.2], client_header: %s}\nsites:\n- routes:\n    /: {static: {root: %s}}\n", header, site))
			cfg.Log = accesslog.Options{File: log, Format: "combined"}
			srv := start(t, cfg)
			prefix := ""
			if header == "Forwarded" {
				prefix = "for="
			}
			var want []string
			for i, from := range []string{"127.0.0.2", "127.0.0.3"} {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				nc, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				answers := bufio.NewReader(nc)
				for n := range 3 { // the first is cold, the others may be hot
					client := fmt.Sprintf("198.51.100.%d", 10*i+n)
					if _, err := fmt.Fprintf(nc, "GET / HTTP/1.1\r\nHost: x\r\n%s: %s%s\r\n\r\n", header, prefix, client); err != nil {
						t.Fatal(err)
					}
					a, err := http.ReadResponse(answers, nil)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, a.Body); err != nil {
						t.Fatal(err)
					}
					if from != "127.0.0.2" {
						client = from
					}
					want = append(want, client)
				}
			}
			var got []string
			servertest.Eventually(t, "all lines", func() bool {
				got = nil
				lines, err := os.ReadFile(log)
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(string(lines)) {
					client, _, _ := strings.Cut(line, " ")
					got = append(got, client)
				}
				return len(got) >= len(want)
			})
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%q, not %q", got, want)
			}
			if err := os.Truncate(log, 0); err != nil {
				t.Fatal(err)
			}
		})
	}
}
