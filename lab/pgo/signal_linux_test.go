package pgo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSignalRefused: a process that SIGUSR2 would end does not get it.
func TestSignalRefused(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Skip("sleep is not installed: install coreutils")
	}
	defer sleep.Wait()
	defer sleep.Process.Kill()
	if _, _, err := RecordBySignal(t.Context(), sleep.Process.Pid, Recording{Duration: time.Second}); !errors.Is(err, ErrNoSignal) {
		t.Errorf("sleep: %v", err)
	}
	if err := sleep.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("sleep is gone: %v", err)
	}
	for _, pid := range []int{-1, 0, 1 << 30} {
		if _, _, err := RecordBySignal(t.Context(), pid, Recording{Duration: time.Second}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(pid)) {
			t.Errorf("%d: %v", pid, err)
		}
	}
}

// TestOpenProfile: a profile is found among open files by its name alone.
func TestOpenProfile(t *testing.T) {
	if _, name, found := openProfile(os.Getpid()); found {
		t.Fatalf("found %s before there was one", name)
	}
	dir := t.TempDir()
	for name, want := range map[string]bool{
		"millrace-12-20260102T030405.678.pprof": true,
		"millrace-12-20260102T030405.pprof":     true,
		"millrace-x-20260102T030405.pprof":      false,
		"millrace-12-20260102T030405.pprof.gz":  false,
		"default.pgo":                           false,
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, found := openProfile(os.Getpid()); found != want {
			t.Errorf("%s: found is %v", name, found)
		}
		f.Close()
	}
}
