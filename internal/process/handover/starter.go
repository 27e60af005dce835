package handover

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// process is a process that was started to take over.
type process struct {
	pid   int
	kill  func()
	ended chan struct{} // closed when it has ended
	why   error         // valid from then on
}

// Starter starts a process with these descriptors after the standard streams, and with
// sockets as the value of [Variable].
type Starter func(files []*os.File, sockets string) (*process, error)

// private reports whether an environment variable is for this process alone: a successor
// has another process id, and gets its sockets from this process.
func private(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	switch name {
	case "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES":
		return true
	}
	return false
}

// Program is a Starter for a program with its arguments, as a child of this
// process.
func Program(program string, args []string) Starter {
	return func(files []*os.File, sockets string) (*process, error) {
		cmd := exec.Command(program)
		cmd.Args = args
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(slices.DeleteFunc(os.Environ(), private), fmt.Sprintf("%s=%s", Variable, sockets))
		cmd.ExtraFiles = files
		if err := cmd.Start(); err != nil {
			return nil, err //nolint:wrapcheck // Start says what was done
		}
		p := &process{pid: cmd.Process.Pid, ended: make(chan struct{})}
		p.kill = func() { _ = cmd.Process.Kill() } // if it has not ended
		go func() {                                // ends with the process
			defer close(p.ended)
			p.why = cmd.Wait()
		}()
		return p, nil
	}
}
