package servecmd

import (
	"io"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
)

// TestProfilerBusy: while the admin listener takes a profile there is no other,
// no file is left, and the next signal tries again.
func TestProfilerBusy(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Skip("the tests themselves are profiled: ", err)
	}
	var p profiler
	_, err := p.toggle()
	pprof.StopCPUProfile()
	if err == nil || !strings.Contains(err.Error(), "another is being taken, through the admin listener") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 || p.overdue() != nil {
		t.Errorf("left behind: %v", left)
	}
	if output, err := p.toggle(); err != nil || !strings.HasPrefix(output, "taking a CPU profile into "+dir) {
		t.Errorf("%q, %v", output, err)
	}
	if p.overdue() == nil {
		t.Error("it would go on for ever")
	}
	if output, err := p.toggle(); err != nil || !strings.HasPrefix(output, "CPU profile of ") {
		t.Errorf("%q, %v", output, err)
	}
	if output, err := p.stop(); output != "" || err != nil || p.overdue() != nil {
		t.Errorf("without one: %q, %v", output, err)
	}
}
