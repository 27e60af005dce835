//go:build unix

package admin

import (
	"io/fs"
	"os"
	"syscall"
)

// restrict sets the mode that a socket's file will have. Only Linux does; the
// caller looks at the file afterwards.
func restrict(fd uintptr) { _ = syscall.Fchmod(int(fd), socketMode) }

// tryLock takes the lock of an open folder, which closing it gives up.
func tryLock(folder *os.File) error {
	return syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// ownedBy reports whether a file belongs to a user.
func ownedBy(info fs.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}
