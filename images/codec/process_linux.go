package codec

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// descriptors is where a process finds its open files by number.
const descriptors = "/proc/self/fd"

// A group is a command with all processes that it starts, unless they flee.
type group struct {
	cmd    *exec.Cmd
	memory int64

	mu    sync.Mutex
	alive bool // started and not reaped yet: so its id is not another's
}

// newGroup locks the goroutine to its thread until release: the kernel sends
// the signal of Pdeathsig when the thread that started the child ends, not the
// process.
func newGroup(cmd *exec.Cmd, memory int64) *group {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return &group{cmd: cmd, memory: memory}
}

func (g *group) release() { runtime.UnlockOSThread() }

// start starts the command and limits its memory. The limit comes a moment
// after the start, long before the command has read an image.
func (g *group) start() error {
	if err := g.cmd.Start(); err != nil {
		return err
	}
	g.mu.Lock()
	g.alive = true
	g.mu.Unlock()
	err := g.limit(unix.RLIMIT_AS, uint64(g.memory))
	if err == nil {
		err = g.limit(unix.RLIMIT_CORE, 0)
	}
	if err != nil {
		g.kill()
		_ = g.wait(func() {})
		return err
	}
	return nil
}

func (g *group) limit(resource int, most uint64) error {
	err := unix.Prlimit(g.cmd.Process.Pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil)
	if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: it has ended already
		return fmt.Errorf("limiting its memory: %w", err)
	}
	return nil
}

// kill ends the whole group. It may be called at any time, more than once.
func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alive {
		_ = unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
	}
}

// wait returns when the command has ended and is reaped. Before that, what it
// left behind is killed: as long as it is a zombie, its id stays its own. ended
// is called as soon as the command ends.
func (g *group) wait(ended func()) error {
	for {
		err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	g.kill()
	g.mu.Lock()
	g.alive = false
	g.mu.Unlock()
	ended()
	return g.cmd.Wait()
}
