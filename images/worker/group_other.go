//go:build unix && !linux

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
