//go:build unix

package handover

import (
	"os"
	"syscall"
)

// Duplicate is another descriptor of a socket. Unlike what net's File makes, it
// may be passed on without the socket waiting in the kernel from then on: the
// mode is that of all descriptors of a socket.
func Duplicate(socket syscall.Conn) (*os.File, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var f *os.File
	var failed error
	err = raw.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		n, e := syscall.Dup(int(fd)) // a descriptor is an int
		if failed = e; e == nil {
			syscall.CloseOnExec(n)
			f = os.NewFile(uintptr(n), "socket")
		}
	})
	if err == nil {
		err = failed
	}
	return f, err
}
