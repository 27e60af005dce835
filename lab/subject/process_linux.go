package subject

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// setGroup gives a command its own process group, so that ^C reaches only us
// and we stop it in order, and ties its life to ours. SIGTERM, as a server
// passes that on to its workers.
func setGroup(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	return nil
}

// awaitEnd returns when a child has ended, and leaves its number reserved
// until it is waited for.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killGroup sends a signal to a process and all that it has started.
func killGroup(pid int, s syscall.Signal) {
	_ = syscall.Kill(-pid, s) // fails only where all have ended
}
