package buildinfo

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// build makes a small program for a platform.
func build(t *testing.T, platform string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/small\n\ngo 1.26\n",
		"main.go": "package main\n\nfunc main() { println(\"\\xff Go buildinf:\\x08\\x02 is no build information\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	system, arch, _ := strings.Cut(platform, "/")
	out := filepath.Join(dir, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return out
}

// What debug/buildinfo reads of a program is the truth.
func TestReadsWhatTheGoCommandWrote(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{self}
	// Three formats. The standard library is compiled for each, which takes a minute.
	if os.Getenv("MILLRACE_TEST_PLATFORMS") != "" {
		for _, platform := range []string{"linux/amd64", "darwin/arm64", "windows/amd64"} {
			programs = append(programs, build(t, platform))
		}
	}
	for _, program := range programs {
		want, err := buildinfo.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-debug/buildinfo +ours):\n%s", program, diff)
		}
	}
}

// program makes a file that has build information at an offset.
func program(at int, version, modules string) []byte {
	b := make([]byte, at, at+headBytes+len(version)+len(modules)+2*sentinelBytes+8)
	copy(b, "\x7fELF")
	b = append(b, magic...)
	b = append(b, 8, inline)
	b = append(b, make([]byte, headBytes-flagsAt-1)...)
	b = append(append(b, byte(len(version))), version...)
	if modules != "" {
		modules = strings.Repeat("<", sentinelBytes) + modules + strings.Repeat(">", sentinelBytes)
	}
	return append(append(b, byte(len(modules))), modules...)
}

func TestWhereItIs(t *testing.T) {
	const modules = "path\texample.org/x\n"
	for name, c := range map[string]struct {
		file  []byte
		found bool
	}{
		"at the start":            {program(align, "go1.26.1", modules), true},
		"across two blocks":       {program(blockBytes-align, "go1.26.1", modules), true},
		"in the second block":     {program(blockBytes+align, "go1.26.1", modules), true},
		"not where one is":        {program(align+1, "go1.26.1", modules), false},
		"no executable":           {bytes.Replace(program(align, "go1.26.1", modules), []byte("\x7fELF"), []byte("\x7fFLE"), 1), false},
		"built without modules":   {program(align, "go1.26.1", ""), false},
		"cut off in the header":   {program(align, "go1.26.1", modules)[:align+20], false},
		"cut off in the modules":  {program(align, "go1.26.1", modules)[:align+headBytes+20], false},
		"behind one that is none": {append(program(align, "", "")[:align+headBytes], program(align, "go1.26.1", modules)[align:]...), true},
		"empty":                   {nil, false},
	} {
		info, err := Read(bytes.NewReader(c.file))
		if c.found && (err != nil || info.GoVersion != "go1.26.1" || info.Path != "example.org/x") || !c.found && !errors.Is(err, ErrNone) {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, io.ErrClosedPipe }

func TestFilesThatCannotBeRead(t *testing.T) {
	if _, err := Read(failing{}); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(program(align, "go1.26.1", "path\texample.org/x\nmod\texample.org/x\tv1.0.0\t\nbuild\t-tags=a\n"))
	f.Add(program(align, "go1.26.1", "dep\tx\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		var info *debug.BuildInfo
		info, err := Read(bytes.NewReader(file))
		if (info == nil) != errors.Is(err, ErrNone) {
			t.Errorf("%+v, %v", info, err)
		}
	})
}
