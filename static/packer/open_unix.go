//go:build unix

package packer

import "syscall"

// nonBlocking opens a named pipe that took a file's place without waiting.
const nonBlocking = syscall.O_NONBLOCK
