package arm

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	for _, a := range Pictures() {
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
	for _, all := range [][]Arm{Pictures()} {
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
		if _, pkg := a.Program.Debian(); (pkg != "") != (a.Program == Nginx) {
			t.Errorf("%s is in the package %q", a.Name, pkg)
		}
	}
}

func TestFind(t *testing.T) {
	found, unknown := Find(Pictures(), []string{"millrace", "apache", "nginx"})
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
