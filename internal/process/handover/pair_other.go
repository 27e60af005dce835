//go:build !unix

package handover

import (
	"errors"
	"net"
	"os"
)

func pair() (net.Conn, *os.File, error) {
	return nil, nil, errors.New("a process cannot give its sockets to another one on this system")
}

func inheritedFile(fd int, name string) *os.File { return os.NewFile(uintptr(fd), name) }
