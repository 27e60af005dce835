package engine_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"millrace/cache/control"
	"millrace/cache/purge"
)

// TestTrustedClaimsAreKeyed: behind a proxy that is believed, what its clients
// asked for tells them apart, also in the fast lane; and nobody else may say so.
func TestTrustedClaimsAreKeyed(t *testing.T) {
	srv, caches := startWithAdmin(t, fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {cache: {to: %s, host: client, trust_forwarded: [127.0.0.2]}}\n", mirror(t)))
	ask := func(from, host string, fields ...string) (answer string, hit bool) {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		nc, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := fmt.Fprintf(nc, "GET /x HTTP/1.1\r\nHost: %s\r\n%s\r\n", host, strings.Join(append(fields, ""), "\r\n")); err != nil {
			t.Fatal(err)
		}
		_, said, header := readAnswer(t, nc)
		for line := range strings.SplitSeq(said, "\n") {
			if strings.HasPrefix(line, "host: ") || strings.HasPrefix(line, "Forwarded: ") || strings.HasPrefix(line, "X-Forwarded-Host: ") || strings.HasPrefix(line, "X-Forwarded-Proto: ") {
				answer += line + "\n"
			}
		}
		return answer, strings.Contains(header.Get("Cache-Status"), "hit")
	}
	const proxy, other = "127.0.0.2", "127.0.0.1"
	said := func(host, proto, first, node string) string {
		return fmt.Sprintf("host: %s\nForwarded: [\"for=%s;host=%s;proto=%s\"]\nX-Forwarded-Host: [%q]\nX-Forwarded-Proto: [%q]\n", host, node, first, proto, first, proto)
	}
	requests := []struct {
		name, from, host string
		fields           []string
		want             string
	}{
		{"one who is not believed comes first", other, "b.test", []string{"X-Forwarded-Proto: https", "X-Forwarded-Host: b.test"}, said("b.test", "http", "b.test", other)},
		{"https by the proxy", proxy, "b.test", []string{"X-Forwarded-Proto: https"}, said("b.test", "https", "b.test", proxy)},
		{"http by the proxy", proxy, "c.test", []string{"X-Forwarded-Proto: http"}, said("c.test", "http", "c.test", proxy)},
		{"https after http", proxy, "c.test", []string{"X-Forwarded-Proto: https"}, said("c.test", "https", "c.test", proxy)},
		{"by Forwarded", proxy, "d.test", []string{"Forwarded: for=198.51.100.1;proto=https;host=e.test"}, said("d.test", "https", "e.test", "198.51.100.1")},
		{"nothing said", proxy, "d.test", nil, said("d.test", "http", "d.test", proxy)},
		{"another host", proxy, "d.test", []string{"X-Forwarded-Host: f.test"}, said("d.test", "http", "f.test", proxy)},
		{"by another way", proxy, "g.test", []string{"X-Forwarded-Host: f.test"}, said("g.test", "http", "f.test", proxy)},
		{"the host, spelled", proxy, "h.test", []string{"X-Forwarded-Host: H.Test:443", "X-Forwarded-Proto: HTTPS"}, said("h.test", "https", "h.test", proxy)},
	}
	for round := range 4 {
		for _, r := range requests {
			got, hit := ask(r.from, r.host, r.fields...)
			if strings.Contains(r.name, "Forwarded") { // its first element is the client, its last the proxy
				got = strings.Replace(got, ", for="+proxy, "", 1)
			}
			if strings.HasPrefix(r.name, "one who") {
				hit = hit || round == 0
			}
			if got != r.want || round > 0 && !hit {
				t.Errorf("round %d, %s (hit: %v):\n%swant\n%s", round, r.name, hit, got, r.want)
			}
		}
	}
	// A purge names what the visitor's address bar has.
	if _, err := caches.Purge(context.Background(), control.Purge{Selector: purge.Selector{URL: "https://c.test:443/x", Hard: true}}); err != nil {
		t.Fatal(err)
	}
	if _, hit := ask(proxy, "c.test", "X-Forwarded-Proto: https"); hit {
		t.Error("a purge of the visitor's URL has left it")
	}
	if _, hit := ask(proxy, "c.test", "X-Forwarded-Proto: http"); !hit {
		t.Error("a purge of the visitor's URL has purged another one")
	}
	if e, err := caches.Explain(context.Background(), "https://b.test/x", "", nil); err != nil || e.Outcome != "hit" {
		t.Errorf("explaining the visitor's URL: %+v, %v", e, err)
	}
}
