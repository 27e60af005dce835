package worker

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/internal/process/servertest"
)

// thread is what the kernel says of one: proc_pid_stat(5).
type thread struct{ nice, policy int }

func threads(t *testing.T, pid int) []thread {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	var all []thread
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ") // fields from the third on
		f := strings.Fields(rest)
		nice, err1 := strconv.Atoi(f[19-3])
		policy, err2 := strconv.Atoi(f[41-3])
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %s", file, text)
		}
		all = append(all, thread{nice, policy})
	}
	return all
}

// Every thread of a worker and the commands that it starts are of low priority.
func TestPriority(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("there is no command sleep")
	}
	own := threads(t, os.Getpid())[0]
	if own.nice != 0 || own.policy != unix.SCHED_NORMAL {
		t.Skipf("this test runs with niceness %d and policy %d", own.nice, own.policy)
	}
	p := newPool(t, Options{}, "fake")
	for _, background := range []bool{false, true} {
		want := thread{niceForeground, unix.SCHED_BATCH}
		if background {
			want = thread{niceBackground, unix.SCHED_IDLE}
		}
		command, crashed := spawn(t, p, background)
		p.mu.Lock()
		for w := range p.all {
			pid := w.cmd.Process.Pid
			for _, pid := range []int{pid, command} {
				for _, got := range threads(t, pid) {
					if got != want {
						t.Errorf("background %t: a thread has %+v, not %+v", background, got, want)
					}
				}
			}
			if score, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj"); err != nil || strings.TrimSpace(string(score)) != oomScore {
				t.Errorf("oom_score_adj %s, %v", score, err)
			}
			if n := resident(pid); n <= residentAlone(pid) {
				t.Log("the memory of a worker's commands is not known here: no CONFIG_PROC_CHILDREN")
			}
			w.cmd.Process.Kill()
		}
		p.mu.Unlock()
		crashed()
	}
	for _, now := range threads(t, os.Getpid()) {
		if now != own {
			t.Errorf("the server's own priority became %+v", now)
		}
	}
}

func TestTooMuchMemory(t *testing.T) {
	p := newPool(t, Options{Memory: 100 << 20}, "fake")
	_, err := p.Convert(t.Context(), text("hog"), convert.Spec{}, false)
	if !errors.Is(err, ErrCrashed) || !errors.Is(err, convert.ErrMemory) {
		t.Errorf("%v", err)
	}
	if _, err := p.Convert(t.Context(), text("next"), convert.Spec{}, false); err != nil {
		t.Error(err)
	}
}

// The budget is for all workers together: who takes more than was predicted ends,
// and nobody else.
func TestTooMuchMemoryTogether(t *testing.T) {
	p := newPool(t, Options{Memory: 400 << 20}, "fake")
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		src := text("hang " + file)
		src.Memory = 300 << 20
		if _, err := p.Convert(ctx, src, convert.Spec{}, true); errors.Is(err, ErrCrashed) {
			t.Errorf("a worker that keeps to its prediction: %v", err)
		}
	})
	pidIn(t, file)
	src := text("hog")
	src.Memory = 50 << 20
	if _, err := p.Convert(t.Context(), src, convert.Spec{}, false); !errors.Is(err, convert.ErrMemory) {
		t.Errorf("%v", err)
	}
	if s := p.Stats(); s.Running != 1 {
		t.Errorf("%+v", s)
	}
	cancel()
	other.Wait()
}

// A photograph takes no more memory than was predicted, so that what runs at once
// keeps to the budget.
func TestPredictionHolds(t *testing.T) {
	if underRace {
		t.Skip("the race detector needs memory of its own")
	}
	m := image.NewYCbCr(image.Rect(0, 0, 2400, 1600), image.YCbCrSubsampleRatio420)
	for i := range m.Y {
		m.Y[i] = byte(i%2400/10 + i*i%13)
	}
	var file bytes.Buffer
	if err := jpeg.Encode(&file, m, nil); err != nil {
		t.Fatal(err)
	}
	info, err := header.Read(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(t, Options{Level: "embedded", Idle: time.Minute}, "real")
	s := convert.Spec{Format: codec.WebP}
	predicted := convert.Memory(info, s, "embedded")
	src := Source{Reader: &file, Size: int64(file.Len()), Memory: predicted}
	if _, err := p.Convert(t.Context(), src, s, false); err != nil && !errors.Is(err, convert.ErrNoGain) {
		t.Fatal(err)
	}
	p.mu.Lock()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.idle[foreground][0].cmd.Process.Pid) + "/status")
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
			if err != nil || kb<<10 > predicted {
				t.Errorf("%d KiB were taken, %d predicted (%v)", kb, predicted>>10, err)
			}
			t.Logf("%d KiB were taken, %d predicted", kb, predicted>>10)
			return
		}
	}
	t.Error("the peak is not known here")
}

// Idle workers count, and end for those that work.
func TestIdleWorkersMakeRoom(t *testing.T) {
	const memory = 200 << 20
	p := newPool(t, Options{Memory: memory, Idle: time.Minute}, "fake")
	ask := func(needs int64, background bool) {
		t.Helper()
		src := text("x")
		src.Memory = needs
		if _, err := p.Convert(t.Context(), src, convert.Spec{}, background); err != nil {
			t.Fatal(err)
		}
	}
	ask(1<<20, true)
	ask(1<<20, false)
	if s := p.Stats(); s.Idle != 2 {
		t.Fatalf("two small conversions of two kinds: %+v", s)
	}
	ask(memory, false)
	servertest.Eventually(t, "the worker that was not needed ends", func() bool { s := p.Stats(); return s.Idle == 1 && s.Running == 0 })
}

// A worker that has compiled the encoder of AVIF is not taken for anything else:
// what that takes is in no other prediction.
func TestCompiledIsForAVIF(t *testing.T) {
	for word, want := range map[string]error{"embedded": nil, "fail": convert.ErrNoGain} {
		p := newPool(t, Options{Idle: time.Minute}, "fake")
		for i, c := range []struct {
			format  codec.Format
			started uint64
		}{{codec.AVIF, 1}, {codec.WebP, 2}, {codec.AVIF, 2}, {codec.WebP, 2}} {
			src := text(word)
			src.Memory = 1 << 20
			if _, err := p.Convert(t.Context(), src, convert.Spec{Format: c.format}, false); !errors.Is(err, want) {
				t.Fatalf("%s: %v, want %v", word, err, want)
			}
			if got := p.Stats().Started - 1; got != c.started { // one has tested the encoders
				t.Errorf("%s, %d: %d workers were started, want %d", word, i, got, c.started)
			}
		}
	}
}

// A server that is killed takes its workers along.
func TestServerDies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	args := append(command(t, "parent"), file)
	server := exec.Command(args[0], args[1:]...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	worker := pidIn(t, file)
	server.Process.Kill()
	server.Wait()
	servertest.Eventually(t, "the worker ends", func() bool { return gone(worker) })
}

// No child is left for somebody else to reap.
func TestNoZombies(t *testing.T) {
	p := newPool(t, Options{}, "fake")
	for range 3 {
		p.Convert(t.Context(), text("exit"), convert.Spec{}, false)
	}
	p.Close()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(files) == 0 {
		t.Skip("the kernel does not list children")
	}
	for _, file := range files {
		if children, err := os.ReadFile(file); err == nil && len(children) > 0 {
			t.Errorf("children are left: %s", children)
		}
	}
}
