//go:build unix

package engine

import "syscall"

// nonblock has opening a named pipe not wait for who reads it.
const nonblock = syscall.O_NONBLOCK
