//go:build !unix

package handover

import (
	"errors"
	"os"
	"syscall"
)

// Duplicate fails on this system.
func Duplicate(syscall.Conn) (*os.File, error) {
	return nil, errors.New("a process cannot give its sockets to another one on this system")
}
