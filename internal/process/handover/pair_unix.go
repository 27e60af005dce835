//go:build unix

package handover

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// pair returns the two ends of a connection: ours, and one for the new process.
func pair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	mine, theirs := os.NewFile(uintptr(fds[0]), "successor"), os.NewFile(uintptr(fds[1]), "predecessor")
	defer mine.Close()
	ours, err := net.FileConn(mine)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	return ours, theirs, nil
}

// inheritedFile returns a descriptor that this process was started with, marked so that
// processes that it starts do not inherit it.
func inheritedFile(fd int, name string) *os.File {
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}
