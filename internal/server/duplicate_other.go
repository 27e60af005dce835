//go:build !unix

package server

import (
	"errors"
	"os"
	"syscall"
)

func duplicate(syscall.Conn) (*os.File, error) {
	return nil, errors.New("a process cannot give its sockets to another one on this system")
}
