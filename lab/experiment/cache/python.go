package cache

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"millrace/lab/record"
	"millrace/lab/subject"
)

const (
	// pipEnd is how long an interrupted pip may take to end.
	pipEnd = 5 * time.Second
	// pipLines is how much of pip's complaint is told.
	pipLines = 3
	// venvDone is the file that a finished environment has.
	venvDone = "complete"
)

// pythonTime is how long installing may take; it is no part of the time for measuring.
func (a *api) pythonTime() time.Duration {
	if a.Quick {
		return 2 * time.Minute
	}
	return 4 * time.Minute
}

// python finds or makes the virtual environment whose Python the services run with;
// where it cannot be made, they are left out.
func (a *api) python(ctx context.Context) error {
	limit := a.pythonTime()
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf(
		"there were only %v for it: run it again (what was downloaded is kept) or with --full", limit))
	defer cancel()
	venv, err := a.virtualEnvironment(limited, filepath.Join(a.Env.Bench.Dir, "subjects", "apipython"))
	if err != nil {
		a.Missing["python"] = err
		return ctx.Err()
	}
	a.Tools["python"] = filepath.Join(venv, "bin", "python")
	return nil
}

// virtualEnvironment finds or makes the environment with the locked versions,
// and returns its folder. One that was not finished is
// made again.
func (a *api) virtualEnvironment(ctx context.Context, source string) (dir string, err error) {
	python, err := subject.Look("python3", "python3 and python3-venv")
	if err != nil {
		return "", err
	}
	version := subject.Version(ctx, python, "--version")
	locked, err := os.ReadFile(filepath.Join(source, "requirements.txt"))
	if err != nil {
		return "", fmt.Errorf("reading which versions to install: %w", err)
	}
	sum := sha256.Sum256(append(locked, python+version...))
	dir = filepath.Join(a.Env.Bench.Dir, "out", "lab", "apipython-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(filepath.Join(dir, venvDone)); err == nil {
		return dir, nil
	}
	a.Emit(record.Event{Kind: record.EventStep, Text: "making a virtual environment for Flask and Sanic"})
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("removing an unfinished virtual environment: %w", err)
	}
	if text, err := a.runPython(ctx, exec.CommandContext(ctx, python, "-m", "venv", dir)); err != nil {
		return "", fmt.Errorf("python3 made no virtual environment (%w): install python3-venv. It said: %s", err, text)
	}
	install := exec.CommandContext(ctx, filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--require-hashes", "--only-binary", ":all:",
		"--disable-pip-version-check", "--no-input", "--progress-bar", "off", "-r", filepath.Join(source, "requirements.txt"))
	if text, err := a.runPython(ctx, install); err != nil {
		return "", fmt.Errorf("pip could not install Flask and Sanic (%w): it needs a way to pypi.org or a mirror (pip config set global.index-url URL). It said: %s", err, text)
	}
	if err := os.WriteFile(filepath.Join(dir, venvDone), nil, 0o600); err != nil {
		return "", fmt.Errorf("marking the virtual environment as complete: %w", err)
	}
	return dir, nil
}

// runPython runs a command, shows what it collects, and returns its last lines.
func (a *api) runPython(ctx context.Context, cmd *exec.Cmd) (last string, err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = pipEnd
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var lines []string // the last few
	for s := bufio.NewScanner(out); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if what, ok := strings.CutPrefix(line, "Collecting "); ok {
			name, _, _ := strings.Cut(what, " ")
			a.Emit(record.Event{Kind: record.EventStep, Text: "pip: " + name})
		}
		if line != "" {
			lines = append(lines, line)
			lines = lines[max(0, len(lines)-pipLines):]
		}
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return strings.Join(lines, " / "), err
}
