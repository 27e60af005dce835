package importcmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// pattern is a pair of configs on a page, under a heading of its own.
type pattern struct{ title, theirs, ours string }

// patterns are those of a page.
func patterns(t *testing.T, page, language string) (list []pattern) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/coming-from/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## Patterns\n")
	for _, m := range regexp.MustCompile("(?ms)^### (.*?)\n\n```"+language+"\n(.*?)```\n\n```yaml\n(.*?)```").FindAllStringSubmatch(after, -1) {
		list = append(list, pattern{m[1], m[2], m[3]})
	}
	if want := strings.Count(after, "\n### "); len(list) != want || len(list) < 20 {
		t.Fatalf("%d pairs under %d headings", len(list), want)
	}
	return list
}

// upstreams are the two servers that the pages name, which say what they were asked.
func upstreams(t *testing.T) *strings.Replacer {
	t.Helper()
	var pairs []string
	for _, port := range []string{"3000", "3001"} {
		var count atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Powered-By", "upstream")
			w.Header().Set("X-Count", fmt.Sprint(count.Add(1)))
			w.Header().Set("Content-Type", "text/plain")
			if strings.HasSuffix(r.URL.Path, ".css") {
				w.Header().Set("Content-Type", "text/css")
			}
			if r.URL.Path == "/fault" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			fmt.Fprintf(w, "%s %s %s %s tenant %q cookie %q", port, r.Method, r.Host, r.RequestURI, r.Header.Get("X-Tenant"), r.Header.Get("Cookie"))
		}))
		t.Cleanup(s.Close)
		pairs = append(pairs, "127.0.0.1:"+port, strings.TrimPrefix(s.URL, "http://"))
	}
	return strings.NewReplacer(pairs...)
}

// serveOurs serves a config of Millrace, and returns its address.
func serveOurs(t *testing.T, yaml string) string {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	address, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen, cfg.Log.Format, cfg.Admin.Listen = []string{address}, config.Off, config.Off
	srv, err := engine.New(cfg, engine.Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }() // waited for at the end of the test
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	awaitListener(t, address)
	return address
}

// awaitListener waits until somebody listens at an address.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	for range 200 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close() // it listens
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("nobody listens at %s", address)
}

// serveTheirs starts a program that listens at an address until the test ends.
func serveTheirs(t *testing.T, address, binary string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), binary, args...)
	out := &strings.Builder{}
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it has served
		_ = c.Wait()
		if t.Failed() {
			t.Log(out)
		}
	})
	awaitListener(t, address)
}

// said is what a server answers to a line such as "POST a.example/x?y X-A: b"; only the
// fields that are named count.
func said(t *testing.T, address, line string, fields []string) string {
	t.Helper()
	method, rest, _ := strings.Cut(line, " ")
	target, header, _ := strings.Cut(rest, " ")
	host, path, _ := strings.Cut(target, "/")
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	if name, value, has := strings.Cut(header, ": "); has {
		r.Header.Set(name, value)
	}
	r.Close = true
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(res.StatusCode)
	if res.StatusCode < 300 { // pages for errors are the server's own
		text += " " + string(body)
	}
	for _, name := range fields {
		if v := res.Header.Get(name); v != "" {
			text += " " + name + ": " + strings.TrimSuffix(v, `, charset="UTF-8"`) // RFC 7617, 2.1
		}
	}
	return text
}

// alike asks both servers, and expects answers that are alike, and not all of one kind.
func alike(t *testing.T, theirs, ours string, lines, fields []string) {
	t.Helper()
	kinds := map[string]bool{}
	for _, line := range lines {
		a, b := said(t, theirs, line, fields), said(t, ours, line, fields)
		if a != b {
			t.Errorf("%s\n%q\nMillrace: %q", line, a, b)
		}
		kinds[a] = true
	}
	if len(kinds) < 2 {
		t.Errorf("all answers are alike: %v", kinds)
	}
}

// TestPatternsOfHAProxy: each pair of configs of the page answers alike.
func TestPatternsOfHAProxy(t *testing.T) {
	binary := servertest.HAProxy().Path(t)
	asked := map[string][]string{
		"Sites by host":                    {"GET api.example/x", "GET www.example/x"},
		"A path and all below":             {"GET a/api/x?y=1", "GET a/apix", "GET a/"},
		"Files by their ending":            {"GET a/b/c.jpg?x", "GET a/c.png", "GET a/c.gif", "GET a/jpg"},
		"An expression for the path":       {"GET a/users/12/photo", "GET a/users/12/photos", "GET a/users/x/photo"},
		"A method":                         {"GET a/x", "POST a/x", "DELETE a/x"},
		"A header field":                   {"GET a/x", "GET a/x X-Beta: 1", "GET a/x X-Other: 1"},
		"A cookie":                         {"GET a/x", "GET a/x Cookie: a=b; beta=on", "GET a/x Cookie: beta=off"},
		"A parameter of the query":         {"GET a/x?v=2", "GET a/x?a=b&v=2", "GET a/x?v=22", "GET a/x"},
		"Only some addresses":              {"GET a/admin/x", "GET a/administrator", "GET a/"},
		"What nobody gets":                 {"GET a/.git/config", "GET a/.github", "GET a/"},
		"A path that has moved":            {"GET a/old", "GET a/old?x=1", "GET a/older"},
		"A host that has moved":            {"GET example.org/a?b=c", "GET www.example.org/a"},
		"From plain HTTP to TLS":           {"GET example.org/a?b=c", "GET www.example.org/"},
		"A prefix that is taken away":      {"GET a/api/x/y?z=1", "GET a/api/", "GET a/other"},
		"A field for the upstream":         {"GET a/x", "GET a/y X-Tenant: red"},
		"Fields of answers":                {"GET a/x", "GET a/y"},
		"An answer of its own":             {"GET a/health", "GET a/healthy"},
		"A password":                       {"GET a/x", "GET a/x Authorization: Basic YWxpY2U6d3Jvbmc=", "GET a/y Authorization: Basic YWxpY2U6c2VjcmV0"},
		"Another server where one is down": {"GET a/1", "GET a/2", "GET a/3"},
		"A client that asks too often":     slices.Repeat([]string{"GET a/x"}, 8),
	}
	for _, p := range patterns(t, "haproxy.md", "haproxy") {
		t.Run(p.title, func(t *testing.T) {
			if asked[p.title] == nil {
				t.Fatal("nothing is asked")
			}
			to := upstreams(t)
			address, err := freePort()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "haproxy.cfg")
			write(t, file, "defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n"+strings.ReplaceAll(to.Replace(p.theirs), "bind :80\n", "bind "+address+"\n"))
			serveTheirs(t, address, binary, "-db", "-f", file)
			ours := serveOurs(t, "listen: [':80']\n"+to.Replace(p.ours))
			alike(t, address, ours, asked[p.title], []string{"Location", "X-Frame-Options", "X-Powered-By", "Www-Authenticate"})
		})
	}
}

// TestPatternsOfVarnish: each pair of configs of the page answers alike, and keeps the
// same answers: upstreams count what they are asked.
func TestPatternsOfVarnish(t *testing.T) {
	binary := servertest.Varnish().Path(t)
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("varnishd compiles VCL by cc, which is not here")
	}
	asked := map[string][]string{
		"A lifetime for all":           {"GET a/x", "GET a/x", "GET a/y"},
		"A lifetime by path":           {"GET a/news/x", "GET a/news/x", "GET a/x", "GET a/x"},
		"A lifetime by media type":     {"GET a/x.css", "GET a/x.css", "GET a/x", "GET a/x"},
		"Paths that pass":              {"GET a/admin/x", "GET a/admin/x", "GET a/x", "GET a/x"},
		"Files without cookies":        {"GET a/x.css Cookie: a=b", "GET a/x.css Cookie: c=d", "GET a/x Cookie: a=b", "GET a/x Cookie: a=b"},
		"A field in the key":           {"GET a/x X-Tenant: 1", "GET a/x X-Tenant: 1", "GET a/x X-Tenant: 2", "GET a/x X-Tenant: 2"},
		"Parameters that count visits": {"GET a/x", "GET a/x?utm_source=b", "GET a/x?utm_medium=c&utm_source=b", "GET a/y"},
		"Parameters in any order":      {"GET a/x?a=1&b=2", "GET a/x?b=2&a=1", "GET a/x?b=3"},
		"No parameters at all":         {"GET a/x", "GET a/x?a=1", "GET a/x?b", "GET a/y?b"},
		"What nobody gets":             {"GET a/private/x", "GET a/privatex", "GET a/privatex"},
		"A path that has moved":        {"GET a/old", "GET a/older", "GET a/older"},
		"An answer of its own":         {"GET a/health", "GET a/health", "GET a/healthy"},
		"Another path for the backend": {"GET a/v1/x?a=b", "GET a/x?a=b", "GET a/v2/x"},
		"A field for the backend":      {"GET a/x", "GET a/x X-Tenant: red", "GET a/y"},
		"Fields of answers":            {"GET a/x", "GET a/x", "GET a/y"},
		"Backends by host":             {"GET api.example/x", "GET a/x", "GET api.example/x", "GET a/x"},
		"Backends by path":             {"GET a/api/x", "GET a/api/x", "GET a/apix", "GET a/apix"},
		"Errors that are not kept":     {"GET a/fault", "GET a/fault", "GET a/x", "GET a/x"},
		"Other methods pass":           {"GET a/x", "POST a/y", "POST a/y", "GET a/x"},
		"Who signs in passes":          {"GET a/x", "GET a/x Authorization: Basic eA==", "GET a/x Cookie: a=b", "GET a/x"},
	}
	for _, p := range patterns(t, "varnish.md", "vcl") {
		t.Run(p.title, func(t *testing.T) {
			if asked[p.title] == nil {
				t.Fatal("nothing is asked")
			}
			address, err := freePort()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			file := filepath.Join(dir, "default.vcl")
			// Each has upstreams of its own, whose counts are compared.
			write(t, file, regexp.MustCompile(`\.host = "([\d.]+)"; \.port = "(\d+)"`).ReplaceAllStringFunc(p.theirs, replacedBackend(upstreams(t))))
			serveTheirs(t, address, binary, "-j", "none", "-F", "-a", address, "-f", file, "-n", filepath.Join(dir, "varnish"), "-s", "malloc,10m", "-T", "none")
			ours := serveOurs(t, "listen: [':80']\n"+upstreams(t).Replace(p.ours))
			alike(t, address, ours, asked[p.title], []string{"Location", "X-Frame-Options", "X-Powered-By", "X-Count"})
		})
	}
}

// replacedBackend puts the address of a test's upstream into a backend of VCL.
func replacedBackend(to *strings.Replacer) func(string) string {
	return func(backend string) string {
		host, port, _ := net.SplitHostPort(to.Replace(regexp.MustCompile(`"([\d.]+)"; \.port = "(\d+)"`).ReplaceAllString(strings.TrimPrefix(backend, ".host = "), "$1:$2")))
		return fmt.Sprintf(".host = %q; .port = %q", host, port)
	}
}
