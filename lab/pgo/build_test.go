package pgo

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/lab/subject"
)

// program writes a main package of its own module and a profile of it.
func program(t *testing.T) (dir, profile string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.test\n\ngo 1.21\n",
		"main.go": "package main\n\nfunc leaf(n int) int { return n * 2 }\n\nfunc main() {\n\tprintln(leaf(21))\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profile = filepath.Join(dir, "cpu.pprof")
	if err := os.WriteFile(profile, newBuilder().add(100, "main.leaf", "main.main").bytes(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, profile
}

// TestBuild: with a profile the executable proves it, without it does not.
func TestBuild(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not installed")
	}
	if testing.Short() {
		t.Skip("a first build with a profile compiles the runtime")
	}
	dir, profile := program(t)
	b := Build{Dir: dir, Profile: profile, Out: filepath.Join(dir, "with"), Flags: []string{"-trimpath"}, Env: []string{"CGO_ENABLED=0", "GOFLAGS="}}
	got, err := b.Run(t.Context())
	if err != nil || got.Proof != "cpu.pprof" || got.Size == 0 || got.Go == "" {
		t.Errorf("%+v, %v", got, err)
	}
	flags, env := SameFlags(got.Path)
	if len(flags) != 1 || flags[0] != "-trimpath=true" || !strings.Contains(strings.Join(env, " "), "CGO_ENABLED=0") {
		t.Errorf("built with %v and %v", flags, env)
	}
	b = Build{Dir: dir, Profile: Off, Out: filepath.Join(dir, "without"), Env: b.Env}
	if got, err = b.Run(t.Context()); err != nil || got.Proof != "" {
		t.Errorf("without: %+v, %v", got, err)
	}
	// An executable that does not name the profile does not stay.
	if _, err := prove(Built{Path: got.Path}, profile); !errors.Is(err, ErrNoProof) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(got.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestNames: which setting proves which profile.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		setting, file string
		want          bool
	}{
		{"/a/cpu.pprof", "/a/cpu.pprof", true},
		{"cpu.pprof", "/a/cpu.pprof", true}, // -trimpath
		{"/b/cpu.pprof", "/a/cpu.pprof", false},
		{"", "/a/cpu.pprof", false},
		{"", "", true},
		{"default.pgo", "", false}, // built without was asked for
	} {
		if got := names(c.setting, c.file); got != c.want {
			t.Errorf("-pgo=%s for %q: %v", c.setting, c.file, got)
		}
	}
}

// TestBuildRefuses: what is not a profile, no Go, no program.
func TestBuildRefuses(t *testing.T) {
	dir, profile := program(t)
	junk := filepath.Join(dir, "main.go")
	if _, err := (Build{Dir: dir, Profile: junk, Out: filepath.Join(dir, "x")}).Run(t.Context()); !errors.Is(err, ErrNotCPU) {
		t.Errorf("junk: %v", err)
	}
	if _, err := exec.LookPath("go"); err == nil {
		b := Build{Dir: dir, Package: "./none", Profile: profile, Out: filepath.Join(dir, "x")}
		if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "none") {
			t.Errorf("no such package: %v", err)
		}
	}
	t.Setenv("PATH", "")
	_, err := Build{Dir: dir, Profile: profile, Out: filepath.Join(dir, "x")}.Run(t.Context())
	if missing, ok := errors.AsType[subject.Missing](err); !ok || missing.Tool != "go" {
		t.Errorf("without go: %v", err)
	}
}

// TestStamp: a file that is not a Go program is refused, one without a profile is
// not.
func TestStamp(t *testing.T) {
	_, profile := program(t)
	if _, _, err := Stamp(profile); err == nil {
		t.Error("a profile is not a program")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name, compiler, err := Stamp(self)
	if err != nil || name != "" || !strings.HasPrefix(compiler, "go") {
		t.Errorf("%q, %q, %v", name, compiler, err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(copied)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if _, err := prove(Built{Path: copied}, profile); !errors.Is(err, ErrNoProof) {
		t.Errorf("%v", err)
	}
}
