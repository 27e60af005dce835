package cli

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"millrace/internal/ops/admin"
)

// PID is the number of a process on the command line.
type PID int

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *PID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n <= 0 { // kill(2) would send a signal to many
		return fmt.Errorf("%q is not the number of a process", text)
	}
	*p = PID(n)
	return nil
}

// ErrNoListener is wrapped where --pid names a Millrace whose admin listener is
// not found.
var ErrNoListener = errors.New("no admin listener of it is found")

// isProcess reports whether a server is the process of a number here. One of an
// older version does not say.
func (r *Server) isProcess(ctx context.Context, pid PID) bool {
	return r.process(ctx) == int(pid)
}

// process is the number of the server's process here, 0 where that is not known.
func (r *Server) process(ctx context.Context) int {
	var p admin.Process
	if err := r.List(ctx, admin.ProcessPath, "process", &p); err != nil {
		return 0
	}
	if own := admin.OwnProcess().Namespace; p.Namespace != "" && own != "" && p.Namespace != own {
		return 0
	}
	return p.PID
}

// ofProcess is the admin listener of the process that --pid names, as a list.
func (f Flags) ofProcess(ctx context.Context, found []string) ([]string, error) {
	for i, at := range found[:min(len(found), maxServers)] {
		if r, err := newServer(at); err == nil && r.isProcess(ctx, f.PID) {
			return found[i : i+1], nil
		}
	}
	if err := IsMillrace(int(f.PID)); err != nil {
		return nil, Failure(err, processHint(ctx, found))
	}
	return nil, Failure(fmt.Errorf("process %d: %w", f.PID, ErrNoListener), processHint(ctx, found))
}

// processHint lists the servers that --pid may mean.
func processHint(ctx context.Context, found []string) string {
	if len(found) == 0 {
		return "no admin listener of a server is found here; the one that is meant may belong to another user, or have \"admin: {listen: off}\""
	}
	return "servers that are found here:" + Choices(ctx, found)
}

// IsMillrace is nil for a process that runs this program, in any version.
func IsMillrace(pid int) error {
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	switch _, err := os.Stat("/proc/self/exe"); {
	case err != nil:
		return fmt.Errorf("whether process %d is a Millrace cannot be told on %s", pid, runtime.GOOS)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return fmt.Errorf("there is no process %d", pid)
	}
	there, err := buildinfo.ReadFile(exe)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("process %d is another user's: whether it is a Millrace cannot be told", pid)
	}
	own, ok := debug.ReadBuildInfo()
	if err != nil || !ok || there.Path != own.Path {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // "" tells as much
		return fmt.Errorf("process %d (%s) is not a Millrace", pid, strings.TrimSpace(string(name)))
	}
	return nil
}

// TypedArgs is a process's command line, without its program.
func TypedArgs(pid int) ([]string, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, fmt.Errorf("reading the command line of process %d: %w", pid, err)
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	return words[1:], nil
}
