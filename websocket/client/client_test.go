package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModule runs the module against a world of its own, in which time passes
// as the test says: reconnecting, recovery, refusals, event streams.
func TestModule(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	dir := t.TempDir()
	files := map[string][]byte{"millrace.mjs": Module}
	for _, name := range []string{"millrace.test.mjs", "world.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// One process: so a test may change what is global in it.
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "millrace.test.mjs"))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?m)^\S+ pass [1-9]`).Match(out) {
		t.Errorf("no test has run:\n%s", out)
	}
}

// TestSmall is what every visitor pays.
func TestSmall(t *testing.T) {
	const most = 14 << 10
	if len(Module) > most {
		t.Errorf("the module has %d bytes, at most %d were promised", len(Module), most)
	}
}

// TestTypes holds the declarations against the module: what is public in one is
// in the other.
func TestTypes(t *testing.T) {
	public := func(text []byte, pattern string) []string {
		_, class, ok := strings.Cut(string(text), "export class Millrace {")
		if !ok {
			t.Fatal("there is no class Millrace")
		}
		var names []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(class, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	module := public(Module, `(?m)^  (?:async )?([a-z]\w*)(?:\(| =)`)
	types := public(Types, `(?m)^  (?:readonly )?([a-z]\w*)(?:[(:<])`)
	if !slices.Equal(module, types) || len(module) < 8 {
		t.Errorf("the module has %q, the types %q", module, types)
	}
}
