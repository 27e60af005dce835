//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/engine/slim"
	"millrace/internal/observe/accesslog"
	"millrace/static"
	"millrace/static/packer"
	"millrace/static/packfile"
)

// A copy of this test that has a site is the slim program.
func TestMain(m *testing.M) {
	if site, err := packfile.OpenSelf(); err == nil {
		_ = site.Close()
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// packed makes a program that serves one page.
func packed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte("home"), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(slim.Plan{
		Listen: []string{"127.0.0.1:0"}, Log: accesslog.Options{Format: "off"},
		Sites: []slim.Site{{Routes: map[string]slim.Route{"/": {Static: &static.Options{Root: "."}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "a site")
	if _, err := packer.Make(t.Context(), packer.Plan{
		Base: self, Out: out, Config: []byte(packfile.FolderConfig), Slim: plan,
		Folders: []packer.Folder{{Name: ".", Dir: dir}},
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCommandLine(t *testing.T) {
	program := packed(t)
	dir := t.TempDir()
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"--help", 0, "usage: FILE"},
		{"list", 0, "4  index.html"},
		{"verify", 0, "1 files and the program are as they were packed"},
		{"version", 0, "millrace-slim "},
		{"unpack " + dir, 0, ""},
		{"unpack " + dir, 1, "not empty"},
		{"--lisen :80", 2, "not defined: -lisen"},
		{"--listen", 2, "needs an argument: -listen"},
		{"--log off more", 2, `unexpected "more"`},
		{"lst", 2, `unexpected "lst"`},
		{"list --all", 2, `unexpected "list --all"`},
	} {
		said, err := exec.CommandContext(t.Context(), program, strings.Fields(c.args)...).CombinedOutput()
		status := 0
		if e := new(exec.ExitError); errors.As(err, &e) {
			status = e.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if status != c.status || !strings.Contains(string(said), c.says) {
			t.Errorf("%s: status %d, want %d with %q:\n%s", c.args, status, c.status, c.says, said)
		}
	}
	// A folder that was packed without a config comes back without one.
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 || list[0].Name() != "index.html" {
		t.Errorf("unpacked: %v, %v", list, err)
	}
}

// SIGHUP is how service managers say "read your config again": it ends no site that
// has none.
func TestSignals(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, packed(t))
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url := ""
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); strings.HasPrefix(line, "http://") {
			url = line
		}
	}
	for range 2 {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("status %d", res.StatusCode)
		}
		// A process that does not know it ends at once.
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
