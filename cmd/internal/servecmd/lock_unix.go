//go:build unix

package servecmd

import (
	"os"
	"syscall"
)

// lock locks a folder, beside others that do, for as long as it is open.
func lock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) // a file system without locks has none who look for them
}
