package subject

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// buildLines is how much of the compiler's complaint an error quotes: its
	// last lines name the cause.
	buildLines = 12
	// buildStop is how long an interrupted go command may take to end.
	buildStop = 5 * time.Second
)

// A Bench is a checkout's bench directory: where the sources of subjects and
// the configs of peers are. Make it with Find.
type Bench struct{ Dir string }

// Find looks for lab/bench/subjects/go.mod in dir and every folder above it. The
// error says how to name it.
func Find(dir string) (*Bench, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for the subjects' sources: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		bench := filepath.Join(at, "lab", "bench")
		if exists(filepath.Join(bench, "subjects", "go.mod")) {
			return &Bench{Dir: bench}, nil
		}
		if at == filepath.Dir(at) {
			return nil, fmt.Errorf("no lab/bench/subjects in %s or above it: run this in a checkout of millrace", dir)
		}
	}
}

// Build compiles the package lab/bench/subjects/NAME with the go command, into a
// folder that later runs find again (the go command decides what is stale),
// and returns the executable's path. flags are for go build, env adds to the
// environment (GOARCH=386); each set of them has an executable of its own.
// Without a Go toolchain the error is a Missing. It may be called several
// times at once.
func (b *Bench) Build(ctx context.Context, name string, flags, env []string) (path string, err error) {
	if !filepath.IsLocal(name) || name == "." {
		return "", fmt.Errorf("building the subject %q: the name leads out of lab/bench/subjects", name)
	}
	sources := filepath.Join(b.Dir, "subjects")
	if !exists(filepath.Join(sources, name)) {
		return "", fmt.Errorf("building the subject %q: there is no folder of this name in %s", name, sources)
	}
	tool, err := Look("go", "golang, or Go from https://go.dev/dl/")
	if err != nil {
		return "", err
	}
	path = filepath.Join(b.Dir, "out", "lab", outputName(name, flags, env))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("building the subject %q: %w", name, err)
	}
	folder := "./" + filepath.ToSlash(name)
	if own := filepath.Join(sources, name); exists(filepath.Join(own, "go.mod")) {
		sources, folder = own, "." // a module of its own, which the others' does not hold
	}
	args := append([]string{"build", "-trimpath", "-o", path}, flags...)
	cmd := exec.CommandContext(ctx, tool, append(args, folder)...)
	cmd.Dir = sources
	// One environment for everybody: no C, no version control, no workspace
	// that would bring other versions of modules. The caller's comes last and
	// wins.
	cmd.Env = slices.Concat(os.Environ(), []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off"}, env)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its temporary files
	cmd.WaitDelay = buildStop
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("building the subject %q: %w\n%s", name, err, lastLines(out.String(), buildLines))
	}
	// Of any other package go build writes an archive.
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("building the subject %q: it is not a program (not a main package)", name)
	}
	return path, nil
}

// Built reports whether Build has made this executable before. The go command may
// still find it stale, and build it again.
func (b *Bench) Built(name string, flags, env []string) bool {
	return exists(filepath.Join(b.Dir, "out", "lab", outputName(name, flags, env)))
}

// outputName is the executable's name: the subject's, and beside it what tells
// it from others built from the same source.
func outputName(name string, flags, env []string) string {
	name = strings.ReplaceAll(filepath.ToSlash(name), "/", "-")
	if len(flags)+len(env) == 0 {
		return name
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", flags, env))
	return name + "-" + hex.EncodeToString(sum[:6])
}

// lastLines is the end of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
