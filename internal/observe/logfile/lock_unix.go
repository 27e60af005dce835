//go:build unix

package logfile

import (
	"io/fs"
	"os"
	"syscall"
)

const canRotate = true

// openFlags are those with which opening a path for appending never waits: a
// named pipe would otherwise wait for somebody who reads it. Open for reading
// as well, it lasts when its reader goes and takes lines for the next one; and
// a write to it ends when the log is closed.
func openFlags(path string) int {
	flags := os.O_APPEND | os.O_CREATE | syscall.O_NONBLOCK
	if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeNamedPipe {
		return flags | os.O_RDWR
	}
	return flags | os.O_WRONLY
}

// lock takes the shared lock of who writes. Where files have no locks, nothing
// is locked: then only one process may rotate.
func lock(f *os.File) { _ = flock(f, syscall.LOCK_SH) }

// tryExclusive takes the lock of who rotates or compresses, unless another process
// has one.
func tryExclusive(f *os.File) bool {
	return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK //nolint:errorlint // an errno, not wrapped
}

// exclusive waits for the lock of who rotates or compresses.
func exclusive(f *os.File) { _ = flock(f, syscall.LOCK_EX) }

func unlock(f *os.File) { _ = flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) (err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		for {
			if err = syscall.Flock(int(fd), how); err != syscall.EINTR { //nolint:errorlint // an errno, not wrapped
				return
			}
		}
	})
	if failed != nil {
		return failed
	}
	return err
}
