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
	"strconv"
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

// pythonArms are the Flask and the Sanic service, each with one worker and with
// four. Where the virtual environment cannot be made, they are skipped.
func (r *cacheRun) pythonArms(ctx context.Context) []*cacheArm {
	limit := r.runPlan.python // as with compiling, it is not part of the time for measuring
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf(
		"there were only %v for it: run it again (what was downloaded is kept) or with --full", limit))
	defer cancel()
	source := filepath.Join(r.env.Bench.Dir, "subjects", "apipython")
	venv, version, err := r.virtualEnvironment(limited, source)
	var arms []*cacheArm
	for _, workers := range []int{1, 4} {
		n := strconv.Itoa(workers)
		arms = append(arms, &cacheArm{
			name: "flask-" + n, about: "Flask with Flask-Caching in memory, gunicorn with " + workersOf(workers), workers: workers, version: version,
			shown:   []string{"gunicorn", "-w", n, "-k", "gthread", "--threads", strconv.Itoa(clientsAtOnce), "flask_service:app"},
			command: flaskCommand(venv, source, workers),
		}, &cacheArm{
			name: "sanic-" + n, about: "Sanic with aiocache in memory, " + workersOf(workers), workers: workers, version: version,
			shown:   []string{"python", "sanic_service.py"},
			command: sanicCommand(venv, source, workers),
		})
	}
	if err != nil {
		for _, a := range arms {
			a.skipped = err.Error()
		}
	}
	return arms
}

func workersOf(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers with a cache each", n)
}

func flaskCommand(venv, source string, workers int) func(place) (*exec.Cmd, error) {
	return func(p place) (*exec.Cmd, error) {
		cmd := exec.Command(filepath.Join(venv, "bin", "python"), "-m", "gunicorn", "-b", p.Address, "-w", strconv.Itoa(workers),
			"-k", "gthread", "--threads", strconv.Itoa(clientsAtOnce), "--keep-alive", "75", "--graceful-timeout", "1",
			"--worker-tmp-dir", p.Dir, "--no-control-socket", "--log-level", "warning", "flask_service:app")
		return pythonCommand(cmd, source, p), nil
	}
}

func sanicCommand(venv, source string, workers int) func(place) (*exec.Cmd, error) {
	return func(p place) (*exec.Cmd, error) {
		_, port, _ := strings.Cut(p.Address, ":")
		cmd := exec.Command(filepath.Join(venv, "bin", "python"), "sanic_service.py")
		cmd.Env = []string{"PORT=" + port, "WORKERS=" + strconv.Itoa(workers)}
		return pythonCommand(cmd, source, p), nil
	}
}

// pythonCommand sets what both services read from their environment.
func pythonCommand(cmd *exec.Cmd, source string, p place) *exec.Cmd {
	cmd.Dir = source
	cmd.Env = append(os.Environ(), append(cmd.Env,
		"UPSTREAM=http://"+p.Upstream, "EXPIRY="+strconv.FormatFloat(p.Expiry.Seconds(), 'g', -1, 64),
		"PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+p.Dir)...)
	return cmd
}

// virtualEnvironment finds or makes the environment with the locked versions,
// and returns its folder and Python's version. One that was not finished is
// made again.
func (r *cacheRun) virtualEnvironment(ctx context.Context, source string) (dir, version string, err error) {
	python, err := subject.Look("python3", "python3 and python3-venv")
	if err != nil {
		return "", "", err
	}
	version = subject.Version(ctx, python, "--version")
	locked, err := os.ReadFile(filepath.Join(source, "requirements.txt"))
	if err != nil {
		return "", "", fmt.Errorf("reading which versions to install: %w", err)
	}
	sum := sha256.Sum256(append(locked, python+version...))
	dir = filepath.Join(r.env.Bench.Dir, "out", "lab", "apipython-"+hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(filepath.Join(dir, venvDone)); err == nil {
		return dir, version, nil
	}
	r.Emit(record.Event{Kind: record.EventStep, Text: "making a virtual environment for Flask and Sanic"})
	if err := os.RemoveAll(dir); err != nil {
		return "", "", fmt.Errorf("removing an unfinished virtual environment: %w", err)
	}
	if text, err := r.runPython(ctx, exec.CommandContext(ctx, python, "-m", "venv", dir)); err != nil {
		return "", "", fmt.Errorf("python3 made no virtual environment (%w): install python3-venv. It said: %s", err, text)
	}
	install := exec.CommandContext(ctx, filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--require-hashes", "--only-binary", ":all:",
		"--disable-pip-version-check", "--no-input", "--progress-bar", "off", "-r", filepath.Join(source, "requirements.txt"))
	if text, err := r.runPython(ctx, install); err != nil {
		return "", "", fmt.Errorf("pip could not install Flask and Sanic (%w): it needs a way to pypi.org or a mirror (pip config set global.index-url URL). It said: %s", err, text)
	}
	if err := os.WriteFile(filepath.Join(dir, venvDone), nil, 0o600); err != nil {
		return "", "", fmt.Errorf("marking the virtual environment as complete: %w", err)
	}
	return dir, version, nil
}

// runPython runs a command, shows what it collects, and returns its last lines.
func (r *cacheRun) runPython(ctx context.Context, cmd *exec.Cmd) (last string, err error) {
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
			r.Emit(record.Event{Kind: record.EventStep, Text: "pip: " + name})
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
