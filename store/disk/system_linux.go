package disk

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// opener opens files for reading with one system call, openat2(2) of Linux
// 5.6, where os.Root needs one for every folder on the way: half the time of a
// Get of a small object.
type opener struct {
	folder *os.File
	conn   syscall.RawConn
	never  atomic.Bool // the kernel, or a sandbox, has no openat2
}

func newOpener(root *os.Root) (*opener, error) {
	folder, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	conn, err := folder.SyscallConn()
	if err != nil {
		folder.Close()
		return nil, err
	}
	return &opener{folder: folder, conn: conn}, nil
}

func (o *opener) open(root *os.Root, name string) (*os.File, error) {
	if o.never.Load() {
		return root.Open(name)
	}
	fd := -1
	var openErr error
	err := o.conn.Control(func(folder uintptr) {
		for range 1000 { // EAGAIN: something was renamed meanwhile; openat2(2)
			fd, openErr = unix.Openat2(int(folder), name, &unix.OpenHow{
				Flags:   unix.O_RDONLY | unix.O_CLOEXEC,
				Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
			})
			if openErr != unix.EINTR && openErr != unix.EAGAIN {
				break
			}
		}
	})
	if err == nil {
		err = openErr
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		o.never.Store(true)
		return root.Open(name)
	}
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (o *opener) close() error { return o.folder.Close() }

// lockFile locks a file for as long as it is open, also against other opens in
// this process.
func lockFile(f *os.File) (ok bool, err error) {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return true, nil
}

// bootID tells one start of the machine from another; random(4). "" if unknown.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// descriptors is how many this process may open; at least a few.
func descriptors() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 1 << 30
	}
	return max(64, int64(limit.Cur))
}
