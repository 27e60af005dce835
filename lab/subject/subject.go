// Package subject builds, finds and starts the servers that the lab measures:
// our own from bench/subjects, peers from the system's packages, and whatever
// a command line says.
package subject

import (
	"context"
	"os/exec"
	"time"
)

// A Bench is a checkout's bench directory: where the sources of subjects and
// the configs of peers are. Make it with Find.
type Bench struct{ Dir string }

// Find looks for bench/subjects/go.mod in dir and every folder above it. The
// error says how to name it.
func Find(dir string) (*Bench, error) { panic("not built") }

// Build compiles the package bench/subjects/NAME with the go command, into a
// folder that later runs find again (the go command decides what is stale),
// and returns the executable's path. flags are for go build, env adds to the
// environment (GOARCH=386). Without a Go toolchain the error is a Missing.
func (b *Bench) Build(ctx context.Context, name string, flags, env []string) (path string, err error) {
	panic("not built")
}

// Missing is a tool that is not here, and the package that has it.
type Missing struct{ Tool, Package string }

func (m Missing) Error() string { return m.Tool + " is missing: install " + m.Package }

// Look finds a tool on PATH or where Debian keeps servers (/usr/sbin).
func Look(tool, pkg string) (path string, err error) { panic("not built") }

// A Process is a server that the lab started.
type Process struct{ PID int }

// Start runs a command in a process group of its own (which is killed when
// this process dies) and returns when address ("host:port" or "unix:/path")
// accepts connections. The command's output is kept, its last 4 KB, for
// errors: a command that ends, or is not ready within wait, is an error that
// quotes it. Address "" is found by looking at where the process group listens.
func Start(ctx context.Context, cmd *exec.Cmd, address string, wait time.Duration) (*Process, error) {
	panic("not built")
}

// Address is where it accepts connections.
func (p *Process) Address() string { panic("not built") }

// Stop asks with SIGTERM, insists with SIGKILL after a while, and waits. It
// reports a process that had ended by itself.
func (p *Process) Stop() error { panic("not built") }

// FreePort is a TCP port of 127.0.0.1 that nobody listens at right now.
func FreePort() (int, error) { panic("not built") }
