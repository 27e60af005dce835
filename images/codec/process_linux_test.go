package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// script is a command that runs lines of shell, without a PATH.
func script(t *testing.T, lines string) *command {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "fake")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &command{name: "fake", file: file, path: dir, memory: defaultMemory}
}

// noTrace fails the test if it leaves a process, a descriptor or a goroutine.
func noTrace(t *testing.T) {
	t.Helper()
	running := goleak.IgnoreCurrent()
	before := openFiles(t)
	t.Cleanup(func() {
		goleak.VerifyNone(t, running)
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
			t.Errorf("a child is left: %d, %v", pid, err)
		}
		if after := openFiles(t); after != before {
			t.Errorf("%d open descriptors, %d before", after, before)
		}
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	// The poller's own descriptors come with the first pipe.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("counting descriptors: %v", err)
	}
	return len(files)
}

// TestRun is what comes of commands that work.
func TestRun(t *testing.T) {
	noTrace(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB: more than pipes hold
	for name, c := range map[string]struct {
		lines string
		job   job
		want  string
	}{
		"echo":           {`exec /bin/cat`, job{input: [][]byte{large, []byte("end")}}, string(large) + "end"},
		"nothing to say": {`exit 0`, job{}, ""},
		"arguments":      {`echo "$#" "$@"`, job{args: []string{"a b", "$HOME", "*"}}, "3 a b $HOME *\n"},
		"input ignored":  {`echo done`, job{input: [][]byte{large}}, "done\n"},
		"apart":          {`echo message; echo more >&2; printf result >/proc/self/fd/3`, job{apart: true}, "result"},
		"late reader":    {`/bin/cat >/dev/null; echo done`, job{input: [][]byte{large}}, "done\n"},
		"stderr":         {`echo warning >&2; echo done`, job{}, "done\n"},
	} {
		got, err := script(t, c.lines).run(t.Context(), c.job)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(c.want))
		}
	}
	env := &command{name: "env", file: "/usr/bin/env", path: "/nowhere", memory: defaultMemory}
	if got, err := env.run(t.Context(), job{}); err != nil || string(got) != "PATH=/nowhere\n" {
		t.Errorf("environment %q, %v", got, err)
	}
}

// TestRunFails runs what goes wrong: the error is of the right kind and says
// what the command said, and nothing is left behind.
// What a command has written when it ends is its result, however late it is
// read: on a busy machine whoever reads may have had no time for it.
func TestRunIsReadLate(t *testing.T) {
	noTrace(t)
	const size = 60_000 // less than a pipe takes
	for range 20 {
		c := script(t, "/usr/bin/head -c "+strconv.Itoa(size)+" /dev/zero; echo said >&2")
		c.lag = time.Nanosecond
		if file, err := c.run(t.Context(), job{}); err != nil || len(file) != size {
			t.Fatalf("%d bytes, %v", len(file), err)
		}
	}
}

func TestRunFails(t *testing.T) {
	noTrace(t)
	for name, c := range map[string]struct {
		lines string
		says  string
	}{
		"exits":             {`echo partial; echo "bad   picture" >&2; exit 3`, "fake: the encoder failed: exit status 3: bad picture"},
		"crashes":           {`kill -SEGV $$`, "signal: segmentation fault"},
		"says too much":     {`i=0; while [ $i -lt 20000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`, "line 19999"},
		"writes too much":   {`exec /bin/cat /dev/zero`, "the result is larger than 64 MiB"},
		"ignores the limit": {`trap '' PIPE; /bin/cat /dev/zero; /bin/sleep 1000`, "the result is larger than 64 MiB"},
	} {
		file, err := script(t, c.lines).run(t.Context(), job{})
		if !errors.Is(err, ErrFailed) || file != nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 2*maxMessage {
			t.Errorf("%s: %d bytes, %.200v; want %q", name, len(file), err, c.says)
		}
	}
}

// TestRunMissing finds a command gone, or not to be executed, since the start:
// then another level may help.
func TestRunMissing(t *testing.T) {
	noTrace(t)
	gone := &command{name: "gone", file: filepath.Join(t.TempDir(), "gone"), memory: defaultMemory}
	plain := script(t, "exit 0")
	if err := os.Chmod(plain.file, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*command{gone, plain} {
		if _, err := c.run(t.Context(), job{}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestRunCancelled ends commands that hang, with all that they started.
func TestRunCancelled(t *testing.T) {
	noTrace(t)
	for name, lines := range map[string]string{
		"sleeps":         `echo $$ >"$1"; exec /bin/sleep 1000`,
		"has a child":    `/bin/sleep 1000 & echo $! >"$1"; wait`,
		"is stubborn":    `trap '' TERM INT HUP PIPE; echo $$ >"$1"; while :; do /bin/sleep 1; done`,
		"reads no input": `exec </dev/null; echo $$ >"$1"; /bin/sleep 1000`,
		"says all first": `echo result; echo $$ >"$1"; exec >/dev/null; /bin/sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			started := filepath.Join(t.TempDir(), "pid")
			why := errors.New("nobody waits any more")
			pid := make(chan int, 1)
			go func() {
				pid <- awaitPID(started)
				cancel(why)
			}()
			c := script(t, lines)
			_, err := c.run(ctx, job{args: []string{started}, input: [][]byte{make([]byte, 1<<20)}})
			if !errors.Is(err, ErrFailed) || !errors.Is(err, why) {
				t.Errorf("error %v", err)
			}
			if p := <-pid; !gone(p) {
				t.Errorf("process %d is still there", p)
			}
		})
	}
}

// TestRunLeavesNobody ends what a command left in the background, though it
// holds the result's pipe open.
func TestRunLeavesNobody(t *testing.T) {
	noTrace(t)
	started := filepath.Join(t.TempDir(), "pid")
	out, err := script(t, `/bin/sleep 1000 & echo $! >"$1"; echo done`).run(t.Context(), job{args: []string{started}})
	if err != nil || string(out) != "done\n" {
		t.Errorf("%q, %v", out, err)
	}
	if p := awaitPID(started); !gone(p) {
		t.Errorf("process %d is still there", p)
	}
}

// awaitPID reads a process id out of a file that is written soon.
func awaitPID(file string) int {
	for range 3000 { // 30 s, for the slowest of machines
		b, _ := os.ReadFile(file)
		if s, whole := strings.CutSuffix(string(b), "\n"); whole {
			pid, _ := strconv.Atoi(s)
			return pid
		}
		time.Sleep(10 * time.Millisecond) // another process: no clock of ours can be waited for
	}
	return 0
}

// gone waits until a process has ended. One that waits for init to reap it has.
func gone(pid int) bool {
	for range 3000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return pid > 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// TestRunLimits looks at what the kernel was told.
func TestRunLimits(t *testing.T) {
	noTrace(t)
	c := script(t, `until [ "$(ulimit -v)" != unlimited ] && [ "$(ulimit -c)" = 0 ]; do :; done
ulimit -v; ps= ; read -r _ _ _ _ group _ </proc/$$/stat; echo $$ $group`)
	c.memory = 100 << 20
	out, err := c.run(t.Context(), job{})
	if err != nil {
		t.Fatal(err)
	}
	var limit, pid, group int
	if _, err := fmt.Sscan(string(out), &limit, &pid, &group); err != nil || limit != 100<<10 || pid != group {
		t.Errorf("limit %d KiB, process %d of group %d: %q", limit, pid, group, out)
	}
	c = needTools(t, "cwebp").cwebp
	c.memory = 24 << 20
	if _, err := c.run(t.Context(), cwebpJob(scene(2000, 2000), Params{Lossless: true})); !errors.Is(err, ErrFailed) {
		t.Errorf("4 megapixels in 24 MiB: %v", err)
	}
}

// TestDies kills a process that runs a command: the command must end, too. The
// process is this test in another life.
func TestDies(t *testing.T) {
	const variable = "MILLRACE_TEST_CODEC_PID_FILE"
	if started := os.Getenv(variable); started != "" {
		_, err := script(t, `echo $$ >"$1"; exec /bin/sleep 1000`).run(t.Context(), job{args: []string{started}})
		t.Fatalf("it ended: %v", err)
	}
	started := filepath.Join(t.TempDir(), "pid")
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDies$")
	parent.Env = append(os.Environ(), variable+"="+started)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := awaitPID(started)
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = parent.Wait()
	if !gone(pid) {
		t.Errorf("process %d outlived who started it", pid)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// TestNothingLeaks fails and cancels many times over.
func TestNothingLeaks(t *testing.T) {
	noTrace(t)
	bad, slow := script(t, "exit 1"), script(t, "exec /bin/sleep 1000")
	for range 20 {
		if _, err := bad.run(t.Context(), job{input: [][]byte{make([]byte, 1<<20)}}); err == nil {
			t.Error("no error")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := slow.run(ctx, job{input: [][]byte{make([]byte, 1<<20)}, apart: true}); err == nil {
			t.Error("no error")
		}
		cancel()
	}
}

// fakes is a folder of commands, by name.
func fakes(t *testing.T, commands map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, lines := range commands {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestNewToolsLeavesOut starts with commands that cannot be used; each is left
// out with a reason, and none keeps the others from working.
func TestNewToolsLeavesOut(t *testing.T) {
	noTrace(t)
	const version = `case "$1" in -version|--version) echo 1.2.4; exit;; esac; `
	for name, c := range map[string]struct{ lines, says string }{
		"old":       {`echo "unknown option '$1'" >&2; exit 1`, "unknown option"},
		"nameless":  {`echo hello`, `no version number in what it answers to -version: "hello"`},
		"crashes":   {version + `kill -ABRT $$`, "aborted"},
		"garbage":   {version + `echo garbage`, "not WebP"},
		"cut short": {version + `printf 'RIFF\377\000\000\000WEBPVP8 \000\000\000\000'`, "it should have 263"},
		"empty":     {version + `printf 'RIFF\014\000\000\000WEBPVP8 \000\000\000\000'`, "decoding what came out"},
		"hangs":     {version + `exec /bin/sleep 1000`, "deadline exceeded"},
	} {
		dir := fakes(t, map[string]string{"cwebp": c.lines})
		limit := testTime
		if name == "hangs" {
			limit = 300 * time.Millisecond
		}
		tools, err := newTools(t.Context(), ToolOptions{Path: dir}, limit)
		if tools != nil || !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
	t.Chdir(fakes(t, map[string]string{"cwebp": version}))
	if _, err := NewTools(t.Context(), ToolOptions{Path: ".:" + t.TempDir()}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "cwebp: not found") {
		t.Errorf("relative PATH: %v", err)
	}
}

// TestNewToolsSome works with one command of three, and knows what it lacks.
func TestNewToolsSome(t *testing.T) {
	installed := needTools(t, "cwebp").cwebp
	dir := fakes(t, map[string]string{"avifenc": "echo nonsense", "gif2webp": "exit 1"})
	if err := os.Symlink(installed.file, filepath.Join(dir, "cwebp")); err != nil {
		t.Fatal(err)
	}
	tools, err := NewTools(t.Context(), ToolOptions{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if f := tools.Formats(); len(f) != 1 || f[WebP] != "cwebp "+installed.version || len(tools.Problems()) != 2 {
		t.Errorf("formats %v, problems %v", f, tools.Problems())
	}
	if _, err := tools.Encode(t.Context(), scene(8, 8), Params{Format: AVIF, Quality: 80}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("AVIF: %v", err)
	}
	if _, err := tools.Animate(t.Context(), testGIFFile(t), Params{Format: WebP, Quality: 80}, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("animation: %v", err)
	}
}
