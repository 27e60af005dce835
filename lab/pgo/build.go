package pgo

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millrace/lab/subject"
)

// Off builds without a profile, even where the main package has a
// default.pgo.
const Off = "off"

// maxBuildOutput is how much of a failed build is quoted: the first mistakes
// are at its end's beginning, and a screen holds no more.
const maxBuildOutput = 4 << 10

// ErrNoProof is an executable whose build information names no profile.
var ErrNoProof = errors.New("the executable says nothing of a profile")

// A Build is one executable to be made with a profile.
type Build struct {
	Dir     string   // where the go command runs; empty: here
	Package string   // main package: a path as for go build; empty: "."
	Profile string   // file, or Off
	Out     string   // the executable
	Flags   []string // for go build
	Env     []string // on top of the environment
}

// Built is what came of a [Build].
type Built struct {
	Path  string
	Size  int64
	Took  time.Duration
	Proof string // the -pgo setting in the executable: a file; empty for Off
	Go    string // version of the compiler
}

// Run builds and proves that the profile was used: the executable's build
// information must name it (what `go version -m` prints), or the executable is
// removed and the error is an [ErrNoProof]. Without a go command the error is a
// subject.Missing. The go command keeps what it compiled, so a second build
// with the same profile takes a second or two; the first compiles everything,
// the standard library included.
func (b Build) Run(ctx context.Context) (Built, error) {
	profile := b.Profile
	if profile != Off {
		if _, err := Read(profile); err != nil {
			return Built{}, err
		}
		var err error
		if profile, err = filepath.Abs(profile); err != nil {
			return Built{}, fmt.Errorf("building with %s: %w", b.Profile, err)
		}
	}
	out, err := filepath.Abs(b.Out)
	if err != nil {
		return Built{}, fmt.Errorf("building %s: %w", b.Out, err)
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return Built{}, subject.Missing{Tool: "go", Package: "Go from https://go.dev/dl or the package golang-go"}
	}
	pkg := cmp.Or(b.Package, ".")
	args := append([]string{"build", "-pgo=" + profile, "-o", out}, b.Flags...)
	cmd := exec.CommandContext(ctx, tool, append(args, pkg)...)
	cmd.Dir = b.Dir
	cmd.Env = append(os.Environ(), b.Env...)
	started := time.Now()
	if text, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return Built{}, fmt.Errorf("building %s: %w", pkg, ctx.Err())
		}
		return Built{}, fmt.Errorf("building %s: %w\n%s", pkg, err, lastBytes(text))
	}
	return prove(Built{Path: out, Took: time.Since(started)}, profile)
}

// prove completes what a build made, or takes it away.
func prove(built Built, profile string) (Built, error) {
	info, err := os.Stat(built.Path)
	if err != nil {
		return built, fmt.Errorf("looking at the executable: %w", err)
	}
	if info.IsDir() {
		return built, fmt.Errorf("%s is a folder: name the file to be built", built.Path)
	}
	built.Size = info.Size()
	if built.Proof, built.Go, err = Stamp(built.Path); err != nil {
		return built, err
	}
	want := profile
	if profile == Off {
		want = ""
	}
	if !names(built.Proof, want) {
		_ = os.Remove(built.Path) // nobody shall take it for what it is not
		if built.Proof == "" {
			return built, fmt.Errorf("%s, built with %s: %w", built.Path, profile, ErrNoProof)
		}
		return built, fmt.Errorf("%s names the profile %s instead of %s: %w", built.Path, built.Proof, profile, ErrNoProof)
	}
	return built, nil
}

// names reports whether the -pgo setting in an executable is that file. With
// -trimpath only the file's name is there.
func names(setting, file string) bool {
	if file == "" || setting == "" {
		return setting == file
	}
	return setting == file || setting == filepath.Base(file)
}

// Stamp reads which profile an executable was built with ("" for none), and by
// which compiler.
func Stamp(executable string) (profile, compiler string, err error) {
	info, err := buildinfo.ReadFile(executable)
	if err != nil {
		return "", "", fmt.Errorf("reading the build information of %s: %w", executable, err)
	}
	for _, s := range info.Settings {
		if s.Key == "-pgo" {
			profile = s.Value
		}
	}
	return profile, info.GoVersion, nil
}

// SameFlags are the flags and environment that an executable was built with, as
// far as they decide what the go command can take from its cache: a build with
// the same ones finds what that build compiled.
func SameFlags(executable string) (flags, env []string) {
	info, err := buildinfo.ReadFile(executable)
	if err != nil {
		return nil, nil
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "-trimpath":
			flags = append(flags, "-trimpath="+s.Value)
		case "-ldflags":
			flags = append(flags, "-ldflags="+s.Value)
		case "-tags":
			flags = append(flags, "-tags="+s.Value)
		case "CGO_ENABLED", "GOAMD64", "GOARM64":
			env = append(env, s.Key+"="+s.Value)
		}
	}
	return flags, env
}

func lastBytes(text []byte) string {
	text = bytes.TrimSpace(text)
	if cut := len(text) - maxBuildOutput; cut > 0 {
		return "…" + strings.ToValidUTF8(string(text[cut:]), "")
	}
	return string(text)
}
