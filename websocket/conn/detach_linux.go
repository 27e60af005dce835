package conn

import (
	"net"

	"golang.org/x/sys/unix"

	"millrace/internal/wire/send"
)

// detach returns a second descriptor of a plain connection.
func detach(nc net.Conn) (fd int, ok bool) { return send.Detach(nc) }

// shut closes a descriptor.
func shut(fd int) { _ = unix.Close(fd) }
