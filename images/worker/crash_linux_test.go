package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/images/convert"
	"millrace/internal/process/servertest"
)

// A worker that was killed while it had nothing to do has not died of the next
// image, which another worker converts.
func TestIdleWorkerKilled(t *testing.T) {
	p := newPool(t, Options{Idle: time.Minute}, "fake")
	for range 20 {
		if _, err := p.Convert(t.Context(), text("echo"), convert.Spec{}, false); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		for w := range p.all {
			_ = unix.Kill(w.cmd.Process.Pid, unix.SIGKILL)
			for !gone(w.cmd.Process.Pid) {
				runtime.Gosched()
			}
		}
		p.mu.Unlock()
		if _, err := p.Convert(context.Background(), text("echo"), convert.Spec{}, false); err != nil {
			t.Fatal(err)
		}
	}
}

// What a command has started ends with the conversion, too, where the command
// is a script.
func TestScriptsChildIsKilled(t *testing.T) {
	p := newPool(t, Options{}, "fake")
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := p.Convert(ctx, text("script "+file), convert.Spec{}, false); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	child := pidIn(t, file)
	if len(family(os.Getpid())) == 0 {
		t.Log("the children of a process are not known here: no CONFIG_PROC_CHILDREN")
		_ = unix.Kill(child, unix.SIGKILL)
	}
	cancel()
	wg.Wait()
	servertest.Eventually(t, "what the script has started ends", func() bool { return gone(child) })
}

// A worker that waits for the next image holds no memory of the last.
func TestIdleWorkerGivesMemoryBack(t *testing.T) {
	if underRace {
		t.Skip("the race detector keeps memory of its own for what was used once")
	}
	p := newPool(t, Options{Idle: time.Minute}, "fake")
	if _, err := p.Convert(t.Context(), text("much"), convert.Spec{}, false); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "a worker without work gives its memory back", func() bool {
		s := p.Stats()
		return s.Idle == 1 && s.RSS < 150<<20
	})
}
