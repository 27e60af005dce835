package fastcgi

import (
	"math/rand/v2"
	"net"
	"os"
	"syscall"
)

// Line is a connection that an event loop watches itself. It has no goroutine, and
// Go's poller does not know it.
type Line struct {
	FD     int
	Serial uint32 // random: tells it from who had its descriptor before
}

// Ask sends a request to the application at a UNIX socket, if all of it can be sent
// at once. Otherwise it reports false: no application has seen a whole request.
func Ask(socket string, request []byte) (Line, bool) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return Line{}, false
	}
	if syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}) == nil {
		if n, err := syscall.Write(fd, request); err == nil && n == len(request) {
			return Line{FD: fd, Serial: rand.Uint32()}, true
		}
	}
	_ = syscall.Close(fd)
	return Line{}, false
}

// Read reads what has come: 0 bytes where nothing has, and an error where nothing
// comes any more.
func (l Line) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(l.FD, b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, net.ErrClosed
		default:
			return n, nil
		}
	}
}

// Close closes the connection.
func (l Line) Close() { _ = syscall.Close(l.FD) }

// Conn gives the connection to Go's poller. The line is closed in any case.
func (l Line) Conn() (net.Conn, error) {
	f := os.NewFile(uintptr(l.FD), "connection")
	defer f.Close()
	return net.FileConn(f) // which has a descriptor of its own
}
