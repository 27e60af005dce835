package arm

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const nginxTemplate = "../../../peers/nginx/nginx.conf.tmpl"

func TestRenderNginx(t *testing.T) {
	c := nginxConfig{Dir: "/d", Site: "/s", Address: "127.0.0.1:81", Socket: "/d/http.sock"}
	plain, err := renderNginx(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Log, c.User = "/d/access.log", "root"
	logged, err := renderNginx(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"worker_processes 2;", "listen 127.0.0.1:81 ", "listen unix:/d/http.sock ", "root  /s;",
		"daemon off;", "pid /d/nginx.pid;", "error_log /d/error.log ", "sendfile   on;", "tcp_nopush on;",
		"keepalive_requests 1000000000;", "open_file_cache          max=",
	} {
		if !strings.Contains(plain, want) || !strings.Contains(logged, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if !strings.Contains(plain, "access_log off;") || strings.Contains(plain, "\nuser ") {
		t.Errorf("without a log and a user:\n%s", plain)
	}
	if strings.Contains(logged, "access_log off;") || !strings.Contains(logged, "access_log /d/access.log combined buffer=64k") ||
		!strings.Contains(logged, "\nuser root;") {
		t.Errorf("with a log and a user:\n%s", logged)
	}
	for _, text := range []string{plain, logged} {
		if strings.Count(text, "{") != strings.Count(text, "}") || strings.Contains(text, "<no value>") {
			t.Errorf("not a config:\n%s", text)
		}
	}
}

func renderNginx(c nginxConfig) (string, error) {
	return render(nginxTemplate, c, c.Dir, c.Site, c.Address, c.Socket, c.Log, c.User, c.Upstream)
}

func TestRenderNginxRefusesWhatWouldBeConfig(t *testing.T) {
	for _, dir := range []string{"/a b", "/a;b", "/a{", "/$a", "/a#"} {
		if _, err := renderNginx(nginxConfig{Dir: dir}); err == nil {
			t.Errorf("the folder %q was accepted", dir)
		}
	}
}

// TestNginxAcceptsItsConfig runs the real nginx -t on all variants.
func TestNginxAcceptsItsConfig(t *testing.T) {
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("nginx is missing; it is in Debian's package nginx-light")
	}
	for _, a := range slices.Concat(Files(), Caches(), Sockets(), Pictures()) {
		if a.Program != Nginx {
			continue
		}
		e := env(t)
		argv, err := a.Command(e)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(argv[0], append(argv[1:], "-t")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", a.Name, err, out)
		}
	}
}

func TestArms(t *testing.T) {
	for _, all := range [][]Arm{Files(), Caches(), Sockets(), Pictures()} {
		testArms(t, all)
	}
}

func testArms(t *testing.T, all []Arm) {
	seen := map[string]bool{}
	for _, a := range all {
		if seen[a.Name] {
			t.Errorf("two arms are named %s", a.Name)
		}
		seen[a.Name] = true
		e := env(t)
		argv, err := a.Command(e)
		if err != nil || len(argv) < 2 {
			t.Errorf("%s: command %q, %v", a.Name, argv, err)
		}
		if named := strings.HasSuffix(a.Name, "-log"); named != a.Logs {
			t.Errorf("%s: Logs is %v", a.Name, a.Logs)
		}
		if _, pkg := a.Program.Debian(); (pkg != "") != (a.Program == Nginx || a.Program == Varnish) {
			t.Errorf("%s is in the package %q", a.Name, pkg)
		}
	}
}

// TestVarnishStarts runs the real varnishd in front of a server, and bans.
func TestVarnishStarts(t *testing.T) {
	if _, err := exec.LookPath("varnishd"); err != nil {
		t.Skip("varnishd is missing; it is in Debian's package varnish")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("varnishd compiles its config with gcc, which is missing")
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Surrogate-Key", "all")
	}))
	defer api.Close()
	e := env(t)
	e.Upstream, e.Memory = api.Listener.Addr().String(), 16
	caches, _ := Find(Caches(), []string{"varnish"})
	server, err := Start(t.Context(), caches[0], e)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	purge := server.Arm.Purge(e, "all")
	conn, err := net.Dial(purge.Network, purge.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, purge.Text)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		t.Errorf("the ban is answered by %q, %v", line, err)
	}
	if len(server.pids) != 2 { // its manager and what that watches
		t.Errorf("the processes are %v", server.pids)
	}
}

func TestMillracePurge(t *testing.T) {
	p := millracePurge(Env{Dir: "/d"}, `a"b`)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(p.Text)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != `{"tag":"a\"b"}` || r.Method != "POST" || r.URL.Path != "/cache/purge" || p.Network != "unix" || p.Address != "/d/admin.sock" {
		t.Errorf("%s %s %s to %s: %v", r.Method, r.URL, body, p.Address, err)
	}
}

func TestFind(t *testing.T) {
	found, unknown := Find(Files(), []string{"millrace", "apache", "nginx"})
	if len(found) != 2 || found[0].Name != "nginx" || found[1].Name != "millrace" {
		t.Errorf("found %v", found)
	}
	if len(unknown) != 1 || unknown[0] != "apache" {
		t.Errorf("unknown %v", unknown)
	}
}

// TestStartTellsWhyNot: a server that ends at once is named with its words.
func TestStartTellsWhyNot(t *testing.T) {
	a := Arm{Name: "broken", Command: func(Env) ([]string, error) {
		return []string{"sh", "-c", "echo the port is taken; exit 1"}, nil
	}}
	_, err := Start(context.Background(), a, env(t))
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "the port is taken") {
		t.Errorf("the error is %v", err)
	}
}

// env is an arm's surroundings, with an address that was free a moment ago.
func env(t *testing.T) Env {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	site := filepath.Join(dir, "site")
	if err := os.Mkdir(site, 0o755); err != nil {
		t.Fatal(err)
	}
	return Env{Dir: dir, Site: site, Address: l.Addr().String(), Bench: "../../..", Bin: dir, Binary: filepath.Join(dir, "millrace"), Upstream: "127.0.0.1:9", Memory: 16}
}

func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key, err := certificate(dir)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
	if _, _, err := certificate(filepath.Join(dir, "none")); err == nil {
		t.Error("no folder, no error")
	}
}

// TestSocketModes: each mode's command differs from the echo's.
func TestSocketModes(t *testing.T) {
	for _, a := range Sockets() {
		seen := map[string]Mode{}
		for _, m := range a.Modes {
			e := env(t)
			e.Mode = m
			argv, err := a.Command(e)
			if err != nil {
				t.Errorf("%s, %s: %v", a.Name, m, err)
				continue
			}
			line := strings.NewReplacer(e.Dir, "DIR", e.Bin, "BIN", e.Address, "ADDRESS").Replace(strings.Join(argv, " "))
			if other, ok := seen[line]; ok || !a.Has(m) {
				t.Errorf("%s: %s and %s are both %s", a.Name, m, other, line)
			}
			seen[line] = m
		}
	}
}

func TestAnyAnswerOverTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	r := &Running{Arm: Arm{Any: true}, Env: Env{Address: s.Listener.Addr().String(), Mode: TLS}}
	if err := r.ask(t.Context(), "tcp"); err != nil {
		t.Error(err)
	}
	r.Arm.Any = false
	if err := r.ask(t.Context(), "tcp"); err == nil {
		t.Error("status 404 is taken for the page")
	}
}

func TestImagesConfig(t *testing.T) {
	e := Env{Dir: "/d", Site: "/s", Address: "127.0.0.1:81"}
	plain := imagesConfig(e, "tools")
	for _, want := range []string{"engine: tools", "no_best: true", "formats: [webp]", `root: "/s"`, `"unix:/d/http.sock"`, `store: "/d/variants"`} {
		if !strings.Contains(plain, want) {
			t.Errorf("%q is missing in\n%s", want, plain)
		}
	}
	e.Images = Images{Wait: 30 * time.Second, Memory: 512, OnlyImages: true}
	for _, more := range []string{"wait: 30s", "memory: 512MiB", "only_images: true"} {
		if strings.Contains(plain, more) || !strings.Contains(imagesConfig(e, "embedded"), more) {
			t.Errorf("%q is there unasked, or is missing", more)
		}
	}
}
