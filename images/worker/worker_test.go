package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/internal/process/servertest"
)

// newPool returns a pool of workers of some kind, and checks at the test's end
// that it has left nothing behind.
func newPool(t testing.TB, o Options, kind string) *Pool {
	t.Helper()
	before := goleak.IgnoreCurrent()
	fds := openFiles()
	o.Command = command(t, kind)
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Running != 0 || s.Idle != 0 || s.RSS != 0 {
			t.Errorf("after Close there are still workers: %+v", s)
		}
		goleak.VerifyNone(t, before)
		if now := openFiles(); now > fds {
			t.Errorf("%d files are open, before it were %d", now, fds)
		}
	})
	return p
}

// openFiles counts the descriptors of this process; 0 where that is not known.
func openFiles() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	n := 0
	for _, f := range files {
		// The poller's own, made at the first use of a pipe, stay.
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && !strings.HasPrefix(to, "anon_inode:") {
			n++
		}
	}
	return n
}

// pidIn waits for a file that a process writes a number into.
func pidIn(t testing.TB, file string) int {
	t.Helper()
	var pid int
	servertest.Eventually(t, "a process says its number", func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(text))
		return err == nil
	})
	return pid
}

// gone reports whether a process has ended; nobody may have reaped it yet.
func gone(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func TestConvert(t *testing.T) {
	p := newPool(t, Options{Jobs: 3}, "fake")
	if a := p.Abilities(); a.Level != "fake" || a.Formats[codec.WebP].By != "a test" {
		t.Errorf("abilities %+v", a)
	}
	for i := range 4 {
		res, err := p.Convert(t.Context(), text("picture"), convert.Spec{Quality: 7}, false)
		if err != nil {
			t.Fatal(err)
		}
		if string(res.Data) != "PICTURE q7" || res.Width != 3 || res.Source.Width != 5 || res.Source.ICC != nil {
			t.Errorf("conversion %d: %+v with %q", i, res, res.Data)
		}
		if res.Wall <= 0 || res.CPU < 0 {
			t.Errorf("conversion %d took %v and %v of CPU", i, res.Wall, res.CPU)
		}
	}
	// The first tests, the second does three jobs, the third the fourth.
	if s := p.Stats(); s.Started != 3 || s.Crashed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestKnownAbilities(t *testing.T) {
	p := newPool(t, Options{}, "fake")
	res, err := p.Convert(t.Context(), text("known"), convert.Spec{}, false)
	if err != nil || string(res.Data) != "true" {
		t.Errorf("a worker was not told what the first one found: %v, %v", res, err)
	}
}

// What an image does to a conversion arrives as the error that it was; the
// worker goes on.
func TestErrorsKeepTheirKind(t *testing.T) {
	p := newPool(t, Options{}, "fake")
	for range 2 {
		_, err := p.Convert(t.Context(), text("fail"), convert.Spec{}, false)
		if !errors.Is(err, convert.ErrNoGain) || !errors.Is(err, header.ErrBroken) || errors.Is(err, header.ErrTooLarge) {
			t.Errorf("%v", err)
		}
		if !strings.HasPrefix(err.Error(), "as was asked: ") {
			t.Errorf("%v", err)
		}
	}
	if s := p.Stats(); s.Started != 2 || s.Idle != 1 {
		t.Errorf("%+v", s)
	}
	if res, err := p.Convert(t.Context(), text("long"), convert.Spec{}, false); err != nil || len(res.Source.Copyright) > 2*maxText {
		t.Errorf("a long text: %v", err)
	}
}

func TestCrash(t *testing.T) {
	p := newPool(t, Options{}, "fake")
	for source, want := range map[string]string{
		"panic": "panic: a decoder that went wrong",
		"exit":  "exit status 3: two; three; four",
	} {
		_, err := p.Convert(t.Context(), text(source), convert.Spec{}, false)
		if !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
		if _, err := p.Convert(t.Context(), text("next"), convert.Spec{}, false); err != nil {
			t.Errorf("after %s: %v", source, err)
		}
	}
	if s := p.Stats(); s.Crashed != 2 {
		t.Errorf("%+v", s)
	}
}

func TestBadAnswers(t *testing.T) {
	for kind, want := range map[string]string{
		"long header":  "not what a worker says",
		"long body":    "not what a worker says",
		"claimed body": "exit status 0",
		"cut prefix":   "exit status 0",
		"cut header":   "exit status 0",
		"no json":      "not what a worker says",
		"empty answer": "empty answer",
		"floods":       "not what a worker says",
	} {
		t.Run(kind, func(t *testing.T) {
			p := newPool(t, Options{}, kind)
			_, err := p.Convert(t.Context(), text(strings.Repeat("x", 1<<20)), convert.Spec{}, false)
			if !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
			if s := p.Stats(); s.Running+s.Idle != 0 {
				t.Errorf("the worker lives: %+v", s)
			}
		})
	}
}

func TestBadStart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for kind, want := range map[string]string{
		"exits":   "exit status 1: no such verb",
		"garbage": "not what a worker says",
		"refuses": "no codec",
	} {
		_, err := New(t.Context(), Options{Command: command(t, kind)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
		if kind == "refuses" && !errors.Is(err, codec.ErrUnsupported) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := New(t.Context(), Options{Command: []string{"no-such-program-anywhere"}}); err == nil {
		t.Error("a program that does not exist was started")
	}
	if _, err := New(t.Context(), Options{Level: "excellent"}); err == nil || !strings.Contains(err.Error(), "auto, tools or embedded") {
		t.Errorf("an unknown level: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := New(ctx, Options{Command: command(t, "silent")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a worker that says nothing: %v", err)
	}
}

// The worker is killed with its request, and the command that it runs as well.
func TestCancelled(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("there is no command sleep")
	}
	p := newPool(t, Options{}, "fake")
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "pid")
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := p.Convert(ctx, text("spawn "+file), convert.Spec{}, true)
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrCrashed) {
			t.Errorf("%v", err)
		}
	})
	pid := pidIn(t, file)
	if s := p.Stats(); s.Running != 1 {
		t.Errorf("%+v", s)
	}
	cancel()
	wg.Wait()
	servertest.Eventually(t, "the command ends", func() bool { return gone(pid) })
	if s := p.Stats(); s.Running+s.Idle != 0 || s.Crashed != 0 {
		t.Errorf("%+v", s)
	}
}

// spawn has a worker of the pool run a command until the worker crashes, which
// crashed waits for.
func spawn(t *testing.T, p *Pool, background bool) (pid int, crashed func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := p.Convert(t.Context(), text("spawn "+file), convert.Spec{}, background); !errors.Is(err, ErrCrashed) {
			t.Errorf("%v", err)
		}
	})
	return pidIn(t, file), wg.Wait
}

// A command that outlives the worker that has started it is ended, too.
func TestCrashLeavesNothing(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("there is no command sleep")
	}
	p := newPool(t, Options{}, "fake")
	pid, crashed := spawn(t, p, false)
	p.mu.Lock()
	for w := range p.all {
		w.cmd.Process.Kill() // itself alone
	}
	p.mu.Unlock()
	crashed()
	servertest.Eventually(t, "the command ends", func() bool { return gone(pid) })
}

func TestSourceFails(t *testing.T) {
	p := newPool(t, Options{}, "fake")
	broken := errors.New("the disk is gone")
	_, err := p.Convert(t.Context(), Source{Reader: iotest.ErrReader(broken), Size: 10}, convert.Spec{}, false)
	if !errors.Is(err, broken) || errors.Is(err, ErrCrashed) {
		t.Errorf("%v", err)
	}
	_, err = p.Convert(t.Context(), Source{Reader: strings.NewReader("short"), Size: 10}, convert.Spec{}, false)
	if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrCrashed) {
		t.Errorf("%v", err)
	}
	_, err = p.Convert(t.Context(), Source{Reader: strings.NewReader(""), Size: maxSource + 1}, convert.Spec{}, false)
	if !errors.Is(err, header.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	// What is more than Size is not read.
	res, err := p.Convert(t.Context(), Source{Reader: strings.NewReader("picture and more"), Size: 7}, convert.Spec{}, false)
	if err != nil || string(res.Data) != "PICTURE q0" {
		t.Errorf("%v, %v", res, err)
	}
}

func TestIdle(t *testing.T) {
	p := newPool(t, Options{Idle: 20 * time.Millisecond}, "fake")
	if _, err := p.Convert(t.Context(), text("x"), convert.Spec{}, false); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "an idle worker ends", func() bool { s := p.Stats(); return s.Idle+s.Running == 0 })
	if _, err := p.Convert(t.Context(), text("x"), convert.Spec{}, false); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Started != 3 {
		t.Errorf("%+v", s)
	}
}

// A worker that died while it had nothing to do costs no image.
func TestDeadWhenIdle(t *testing.T) {
	p := newPool(t, Options{Idle: time.Hour}, "fake")
	if _, err := p.Convert(t.Context(), text("x"), convert.Spec{}, false); err != nil {
		t.Fatal(err)
	}
	var w *process
	p.mu.Lock()
	w = p.idle[foreground][0]
	p.mu.Unlock()
	w.cmd.Process.Kill()
	<-w.done
	if _, err := p.Convert(t.Context(), text("x"), convert.Spec{}, false); err != nil {
		t.Error(err)
	}
}

func TestManyAtOnce(t *testing.T) {
	p := newPool(t, Options{Idle: time.Hour}, "fake")
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 5 {
				source := text("picture " + strconv.Itoa(i))
				source.Memory = 1 << 20 // so that idle workers need not make room
				res, err := p.Convert(t.Context(), source, convert.Spec{}, i%2 == 0)
				if err != nil || string(res.Data) != "PICTURE "+strconv.Itoa(i)+" q0" {
					t.Errorf("%v, %v", res, err)
				}
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Started > 7 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

func TestClose(t *testing.T) {
	p := newPool(t, Options{}, "fake")
	file := filepath.Join(t.TempDir(), "pid")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := p.Convert(t.Context(), text("hang "+file), convert.Spec{}, false); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
	pid := pidIn(t, file)
	p.Close()
	wg.Wait()
	if !gone(pid) {
		t.Error("the worker outlives its pool")
	}
	if _, err := p.Convert(t.Context(), text("x"), convert.Spec{}, false); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("GOGC", "1000")
	p := newPool(t, Options{Memory: 1 << 30}, "fake")
	res, err := p.Convert(t.Context(), text("env"), convert.Spec{}, false)
	if err != nil {
		t.Fatal(err)
	}
	env := string(res.Data)
	if strings.Contains(env, "secret") || strings.Contains(env, "GOGC=1000") {
		t.Errorf("a worker knows too much:\n%s", env)
	}
	if !strings.Contains(env, "GOMEMLIMIT=1073741824") || !strings.Contains(env, "PATH=") {
		t.Errorf("a worker knows too little:\n%s", env)
	}
}

func TestStderrIsBounded(t *testing.T) {
	var s tail
	for range 100 {
		if n, err := io.WriteString(&s, strings.Repeat("words ", 1000)+"\n"); n != 6001 || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(s.first) > maxTail || len(s.last) > maxTail || len(s.reason()) > maxReason+10 {
		t.Errorf("%d, %d, %d bytes", len(s.first), len(s.last), len(s.reason()))
	}
}
