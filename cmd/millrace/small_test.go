package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSmall: what the tag small leaves out is not compiled, serving a folder
// needs none of it, and who asks for it is told what to do.
func TestSmall(t *testing.T) {
	t.Parallel() // beside the scripts
	deps, err := exec.Command("go", "list", "-tags", "small", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"github.com/redis/", "github.com/gen2brain/", "github.com/tetratelabs/", "github.com/nats-io/"} {
		if strings.Contains(string(deps), heavy) {
			t.Errorf("%s is part of it", heavy)
		}
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "millrace")
	if out, err := exec.Command("go", "build", "-pgo=off", "-tags", "small,nodynamic", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page := filepath.Join(dir, "site", "index.html")
	site := "sites: [{routes: {/: {static: {root: site}}}}]\n"
	shared := "sites: [{routes: {/: {cache: {to: 'http://127.0.0.1:9', shared: 'redis://127.0.0.1:9'}}}}]\n"
	bus := "sites: [{routes: {/: {websocket: {channels: {bus: 'nats://127.0.0.1:9'}}}}}]\n"
	plugins := "sites: [{plugins: [{module: site.yaml}], routes: {/: {static: {root: site}}}}]\n"
	file := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	for _, err := range []error{
		os.Mkdir(filepath.Dir(page), 0o700), os.WriteFile(page, []byte("a page"), 0o600),
		file("site.yaml", site), file("shared.yaml", shared), file("bus.yaml", bus), file("plugin.yaml", plugins),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		c := exec.Command(program, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "MILLRACE_RUN_DIR="+dir, "PATH=")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run("check", "--config", "site.yaml"); err != nil {
		t.Errorf("a folder: %v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"cache", "http://127.0.0.1:9", "-l", "127.0.0.1:0", "--shared", "redis://127.0.0.1:9"},
		{"ws", "--channels", "-l", "127.0.0.1:0", "--bus", "nats://127.0.0.1:9"},
		{"images", "site"},
		{"check", "--config", "shared.yaml"},
		{"check", "--config", "bus.yaml"},
		{"check", "--config", "plugin.yaml"},
	} {
		if out, err := run(args...); err == nil || !strings.Contains(out, "-tags small") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
