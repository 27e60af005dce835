//go:build !linux

package worker

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a child the leader of a process group, so that it can be
// killed with its commands.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// killGroup kills a process and all of its group.
func killGroup(pid int) {
	syscall.Kill(-pid, syscall.SIGKILL) //nolint:errcheck // ESRCH: it is gone, as was asked
}

// awaitEnd cannot wait without reaping here.
func awaitEnd(int) bool { return false }

// lowerPriority does nothing here.
func lowerPriority(bool) error { return nil }

// resident is not known here.
func resident(int) int64 { return 0 }

// killFamily does nothing: what a worker has started is in its group here.
func killFamily(int) {}
