//go:build !unix

package admin

import (
	"errors"
	"os"
	"syscall"
)

func duplicate(syscall.Conn) (*os.File, error) {
	return nil, errors.New("a process cannot give its sockets to another one on this system")
}
