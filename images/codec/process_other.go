//go:build !linux

package codec

import (
	"os/exec"
)

// descriptors is where a process finds its open files by number.
const descriptors = "/dev/fd"

// A group is one command here: without Linux's system calls, its memory is not
// limited, what it starts is not killed with it, and it may outlive us.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd, _ int64) *group { return &group{cmd} }

func (g *group) release() {}

func (g *group) start() error { return g.cmd.Start() }

// kill may be called at any time, more than once.
func (g *group) kill() {
	if g.cmd.Process != nil {
		_ = g.cmd.Process.Kill()
	}
}

func (g *group) wait(ended func()) error {
	err := g.cmd.Wait()
	ended()
	return err
}
