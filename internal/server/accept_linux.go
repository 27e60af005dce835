package server

import (
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// direct accepts TCP connections for the lane's loops. Their descriptors go from accept4(2) to
// the loop's epoll, without a net.Conn: that saves six system calls for each (into Go's poller
// and out of it, TCP_NODELAY, the local address, a duplicate, and closing the original).
type direct struct {
	file  *os.File // a duplicate of the listener's descriptor, in Go's poller
	raw   syscall.RawConn
	local net.Addr // of every connection; nil: the listener has all addresses of a family
}

// newDirect returns nil for what is no TCP listener of the kernel's.
func newDirect(ln net.Listener) *direct {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	file, err := tcp.File()
	if err != nil {
		return nil
	}
	d := &direct{file: file}
	if at, ok := tcp.Addr().(*net.TCPAddr); ok && !at.IP.IsUnspecified() {
		d.local = at
	}
	if d.raw, err = file.SyscallConn(); err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails where Go's poller does not have it
	}
	if err == nil {
		failed := d.raw.Control(func(fd uintptr) { // connections inherit it
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		})
		if failed != nil {
			err = failed
		}
	}
	if err != nil {
		d.close()
		return nil
	}
	return d
}

// accept waits for the next connection.
func (d *direct) accept() (c accepted, err error) {
	var from syscall.Sockaddr
	var failed error
	err = d.raw.Read(func(ln uintptr) bool {
		for {
			c.fd, from, failed = syscall.Accept4(int(ln), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC) // unix.Accept4 also asks for the protocol
			switch failed {
			case syscall.EINTR, syscall.ECONNABORTED: // the client has left meanwhile
			case syscall.EAGAIN:
				return false
			default:
				return true
			}
		}
	})
	if err == nil {
		err = os.NewSyscallError("accept4", failed)
	}
	if err != nil {
		return accepted{}, err
	}
	c.peer, c.local = tcpAddr(from), d.local
	if c.local == nil {
		if at, err := syscall.Getsockname(c.fd); err == nil {
			c.local = tcpAddr(at)
		}
	}
	return c, nil
}

// setDeadline ends accept at a time.
func (d *direct) setDeadline(t time.Time) error { return d.file.SetReadDeadline(t) }

func (d *direct) close() { _ = d.file.Close() }

// tcpAddr is a socket's address as package net would return it.
func tcpAddr(sa syscall.Sockaddr) net.Addr {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port}
	case *syscall.SockaddrInet6:
		a := &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port}
		if sa.ZoneId != 0 {
			a.Zone = zoneOf(int(sa.ZoneId))
		}
		return a
	}
	return &net.TCPAddr{}
}

// zoneOf is the name of an interface, of which link-local addresses are.
func zoneOf(index int) string {
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return strconv.Itoa(index)
}

// conn makes a net.Conn of a connection. After an error it is closed.
func (c *accepted) conn() (net.Conn, error) {
	if c.nc != nil {
		return c.nc, nil
	}
	f := os.NewFile(uintptr(c.fd), "connection")
	defer f.Close()
	return net.FileConn(f) //nolint:wrapcheck // it says what it did
}

// close closes a connection that nobody serves.
func (c *accepted) close() {
	if c.nc != nil {
		_ = c.nc.Close()
		return
	}
	_ = unix.Close(c.fd)
}
