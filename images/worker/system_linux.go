package worker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What workers are niced by, on top of what the server is: 10 leaves them a
// tenth of a core that the server wants, 19 next to nothing.
const (
	niceForeground = 10
	niceBackground = 19
	maxNice        = 19
	// oomScore makes the kernel end a worker before the server and all else
	// of the same size, when memory runs out (proc_pid_oom_score_adj(5)).
	oomScore = "800"
)

// ownGroup makes a child the leader of a process group, so that it can be
// killed with its commands and a terminal's Ctrl-C does not reach it, and has
// it killed when the thread that starts it ends. It stays in the session: where
// the kernel groups by session (sched_autogroup), niceness counts only within.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}

// killGroup kills a process and all of its group.
func killGroup(pid int) {
	unix.Kill(-pid, unix.SIGKILL) //nolint:errcheck // ESRCH: it is gone, as was asked
}

// awaitEnd waits until a child has ended and leaves it as a zombie: its number
// is its own until it is reaped. It reports whether that worked.
func awaitEnd(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// lowerPriority sets niceness and scheduling class of this process, for ever.
// Linux keeps both by thread, and a new thread has those of the one that made
// it: so all are visited until none is found that was not. Commands that this
// process starts inherit them.
//
// SCHED_BATCH and SCHED_IDLE are for what computes and nobody waits for: such
// threads never interrupt others that wake up, and with SCHED_IDLE all others
// interrupt them (sched(7)).
func lowerPriority(background bool) error {
	os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0) //nolint:errcheck // where that is forbidden, all else is in place
	nice, policy := niceForeground, uint32(unix.SCHED_BATCH)
	if background {
		nice, policy = niceBackground, unix.SCHED_IDLE
	}
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return fmt.Errorf("reading the priority: %w", err)
	}
	nice = min(20-raw+nice, maxNice) // the system call answers 20 minus the niceness
	const passes = 100               // a program that makes threads that fast is not this one
	done := map[int]bool{}
	for range passes {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing threads: %w", err)
		}
		found := false
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || done[tid] {
				continue
			}
			found = true
			done[tid] = true
			if err := lowerThread(tid, nice, policy); err != nil {
				return err
			}
		}
		if !found {
			return nil
		}
	}
	return errors.New("setting the priority: threads come faster than they are found")
}

func lowerThread(tid, nice int, policy uint32) error {
	err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
	if err != nil && !errors.Is(err, unix.ESRCH) { // the thread has ended
		return fmt.Errorf("setting niceness %d: %w", nice, err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Nice: int32(nice)}
	// Some sandboxes forbid this one; niceness alone does most of it.
	unix.SchedSetAttr(tid, &attr, 0) //nolint:errcheck // see above
	return nil
}

// resident is the memory of a process and of its family, the commands that
// encode, that is neither swapped out nor only reserved, in bytes. A child that
// is the same program still has just been forked and has no memory of its own.
func resident(pid int) int64 {
	n := residentAlone(pid)
	self, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return n
	}
	for _, c := range family(pid) {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", c)); err == nil && exe != self {
			n += residentAlone(c)
		}
	}
	return n
}

// residentAlone reads /proc/PID/statm: sizes in pages, the second is resident.
func residentAlone(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
