package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoMethodsByName: no code in the program looks a method up by a name that
// it learns at run time. With one such place the linker keeps every exported
// method of every type, which made the program 16 MB larger (decision 37).
func TestNoMethodsByName(t *testing.T) {
	if testing.Short() {
		t.Skip("it links the program")
	}
	link := exec.Command("go", "build", "-tags", "nodynamic", "-ldflags=-dumpdep", "-o", filepath.Join(t.TempDir(), "millrace"), ".")
	out, err := link.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "main.main -> ") {
		t.Fatalf("%v: no list of what the linker keeps", err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "<ReflectMethod>") {
			t.Fatalf("the first place: %s", line)
		}
	}
}
