// Package subject builds, finds and starts the servers that the lab measures:
// our own from lab/bench/subjects, peers from the system's packages, and whatever
// a command line says.
package subject

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// versionTime bounds a program's answer to what version it is.
	versionTime = 2 * time.Second
	// versionBytes is how much of that answer is kept: one line of it is used.
	versionBytes = 4 << 10
)

// Missing is a tool that is not here, and the package that has it.
type Missing struct{ Tool, Package string }

func (m Missing) Error() string { return m.Tool + " is missing: install " + m.Package }

// Look finds a tool on PATH or where Debian keeps servers (/usr/sbin). pkg is
// what to install where it is not, and is in the error, a Missing.
func Look(tool, pkg string) (path string, err error) {
	if path, err := exec.LookPath(tool); err == nil {
		return path, nil
	}
	if filepath.Base(tool) == tool {
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
			if path, err := exec.LookPath(filepath.Join(dir, tool)); err == nil {
				return path, nil
			}
		}
	}
	return "", Missing{Tool: tool, Package: pkg}
}

// Version runs a program with the arguments that make it tell its version and
// returns the first line with text that it prints, on whichever output;
// nothing where it fails or takes over 2 s.
func Version(ctx context.Context, path string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	var out head
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = versionTime // for one whose children keep its output open
	if err := cmd.Run(); err != nil {
		return ""
	}
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// GoVersion names the compiler of a Go executable, and one of its modules where
// it has that; nothing of any other file.
func GoVersion(exe, module string) string {
	info, err := buildinfo.ReadFile(exe)
	if err != nil {
		return ""
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return module[strings.LastIndexByte(module, '/')+1:] + " " + d.Version + ", " + info.GoVersion
		}
	}
	return info.GoVersion
}

// Size is how large an executable is in bytes; 0 if that cannot be seen.
func Size(exe string) int64 {
	info, err := os.Stat(exe)
	if err != nil {
		return 0
	}
	return info.Size()
}

// head keeps the first versionBytes that are written to it. The bytes.Buffer
// within is not for others: its ReadFrom would know no limit.
type head struct{ kept bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), versionBytes-h.kept.Len())])
	return len(p), nil
}

func (h *head) String() string { return h.kept.String() }

// What tells a command line that only a shell can run from a plain command,
// whose place the shell may give up to it.
var (
	compound   = regexp.MustCompile("[;&|(){}\n`]")
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	builtin    = regexp.MustCompile(`^(\.|:|!|cd|exec|exit|export|eval|for|if|set|trap|ulimit|umask|unset|until|while|case)(\s|$)`)
)

// Shell is a command as people type it, run by /bin/sh. A plain command takes
// the shell's place, so that the process that is measured and stopped is the
// server; a line of several commands stays a shell with children, all of which
// Start's process group holds.
func Shell(line string) *exec.Cmd {
	line = strings.TrimSpace(line)
	switch {
	case line == "" || compound.MatchString(line) || builtin.MatchString(line):
	case assignment.MatchString(line):
		line = "exec env " + line
	default:
		line = "exec " + line
	}
	return exec.Command("/bin/sh", "-c", line)
}

// tailBytes is how much of a server's output is kept for errors: a screen.
const tailBytes = 4 << 10

// tail keeps the last tailBytes that are written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool // something was dropped
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[max(0, len(p)-tailBytes):]...)
	if over := len(t.kept) - tailBytes; over > 0 || len(p) > tailBytes {
		t.kept = append(t.kept[:0], t.kept[max(over, 0):]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.ToValidUTF8(string(t.kept), "\uFFFD")
	if t.cut {
		return "…" + text
	}
	return text
}

// exists reports whether a file is there; an error other than its absence is
// told when the file is used.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
