//go:build unix

package main

import (
	"bufio"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// TestNoChildIsLeft: what go run has started ends with it, also where go run is told to end
// and does not pass that on.
func TestNoChildIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("go run compiles")
	}
	for _, args := range [][]string{{".", "127.0.0.1:0"}, {filepath.Join("..", "everything", "api.go"), "127.0.0.1:0"}} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"run"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		r, w := net.Pipe()
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, w, time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // and its child, if it is there
		address := ""
		for lines := bufio.NewScanner(r); address == "" && lines.Scan(); {
			address = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(lines.Text())
		}
		if _, err := net.Dial("tcp", address); err != nil {
			t.Fatalf("go run %v does not serve at %q: %v", args, address, err)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = r.Close()
		_ = cmd.Wait()
		gone := false
		for end := time.Now().Add(20 * time.Second); !gone && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			nc, err := net.Dial("tcp", address)
			if gone = err != nil; !gone {
				_ = nc.Close()
			}
		}
		if !gone {
			t.Errorf("go run %v has left its child behind", args)
		}
	}
}
