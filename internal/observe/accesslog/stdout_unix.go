//go:build unix

package accesslog

import (
	"os"
	"syscall"
)

// standardOutput is a descriptor of its own for the standard output. Go lets a
// program die of SIGPIPE when a write to descriptor 1 or 2 finds no reader; a
// server must outlive `millrace serve | head`. On any other number the same
// write is just an error. It also makes the file ours to close.
func standardOutput() (*os.File, error) {
	syscall.ForkLock.RLock() // no child may inherit it between the two calls
	fd, err := syscall.Dup(syscall.Stdout)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), os.Stdout.Name()), nil
}
