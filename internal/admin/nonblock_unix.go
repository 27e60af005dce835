//go:build unix

package admin

import "syscall"

func setNonblock(fd uintptr) { _ = syscall.SetNonblock(int(fd), true) } // it is a socket of ours
