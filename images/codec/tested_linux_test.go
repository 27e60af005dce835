package codec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTested hands what one process has found out to another, which starts
// commands only to encode, and tests what was replaced since.
func TestTested(t *testing.T) {
	installed := needTools(t, "cwebp").cwebp
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$@\" >>" + calls + "\nexec " + installed.file + " \"$@\"\n"
	file := filepath.Join(dir, "cwebp")
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := NewTools(t.Context(), ToolOptions{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(first.Tested())
	if err != nil {
		t.Fatal(err)
	}
	var known []Tested
	if err := json.Unmarshal(text, &known); err != nil || len(known) != 1 || known[0].Version != installed.version {
		t.Fatalf("%s: %v", text, err)
	}
	count := func() int {
		said, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(said), "\n")
	}
	before := count()
	second, err := NewTools(t.Context(), ToolOptions{Path: dir, Tested: known})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(); n != before || second.Formats()[WebP] != first.Formats()[WebP] {
		t.Errorf("%d calls, formats %v", n-before, second.Formats())
	}
	if _, err := second.Encode(t.Context(), scene(8, 8), Params{Format: WebP, Quality: 80}); err != nil || count() != before+1 {
		t.Errorf("%d calls: %v", count()-before, err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho 9.9.9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if tools, err := NewTools(t.Context(), ToolOptions{Path: dir, Tested: known}); tools != nil || err == nil || !strings.Contains(err.Error(), "self-test") {
		t.Errorf("replaced by another program: %v", err)
	}
	if tools, err := NewTools(t.Context(), ToolOptions{Tested: []Tested{}}); tools != nil || err == nil {
		t.Errorf("none known: %v", err)
	}
}
