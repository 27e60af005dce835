package worker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/images/convert"
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
		file := filepath.Join(t.TempDir(), "pid")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.Convert(t.Context(), text("spawn "+file), convert.Spec{}, background); !errors.Is(err, ErrCrashed) {
				t.Errorf("%v", err)
			}
		})
		command := pidIn(t, file)
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
		wg.Wait()
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
	if !errors.Is(err, ErrCrashed) || !strings.Contains(err.Error(), "and may take 200") {
		t.Errorf("%v", err)
	}
	if _, err := p.Convert(t.Context(), text("next"), convert.Spec{}, false); err != nil {
		t.Error(err)
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
	eventually(t, "the worker ends", func() bool { return gone(worker) })
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
