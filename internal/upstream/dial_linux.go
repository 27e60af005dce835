package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// This file has the connections that an event loop makes itself, without waiting: it asks
// the system for one, and epoll tells when the server has accepted or refused it. Most of
// those to this machine are there at once, so a request is sent right behind.

// probeAfter, probeEvery and probes are how a dead peer is found out, as package net has them.
const (
	probeAfter = 15 // seconds
	probeEvery = 15 // seconds
	probes     = 9
)

// dial begins to connect to the server of the exchange's place, and reports false where a
// goroutine has to do that.
func (x *Exchange) dial() bool {
	c := x.server.client
	if x.waker == nil {
		return false
	}
	to, others, ok := c.way.ready()
	if !ok {
		return false
	}
	began := x.pool.now()
	fd, err := connectNow(c.way.socket, to)
	if err != nil {
		return false // who tries it again finds out why
	}
	x.line = &line{fd: fd, serial: rand.Uint32(), dialed: &dialed{began: began, others: others}}
	x.line.uses, x.line.newcomer = 1, &newcomer{client: c}
	x.step = connecting
	return true
}

// connectNow begins a connection to a UNIX socket, or to an address.
func connectNow(path string, to netip.AddrPort) (fd int, err error) {
	family := syscall.AF_INET6
	switch {
	case path != "":
		family = syscall.AF_UNIX
	case to.Addr().Is4():
		family = syscall.AF_INET
	}
	if fd, err = syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0); err != nil {
		return -1, err //nolint:wrapcheck // nobody looks at it
	}
	if path != "" {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	} else {
		setUp(fd, to.Addr())
		err = rawConnect(fd, to)
	}
	if err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		_ = syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

// rawConnect is connect(2) for an address, raw like the calls in raw.go: it does not wait, but
// on this machine it takes ten microseconds, in which the server's side is done as well.
func rawConnect(fd int, to netip.AddrPort) error {
	var errno syscall.Errno
	port := binary.BigEndian.AppendUint16(nil, to.Port())
	if ip := to.Addr(); ip.Is4() {
		sa := syscall.RawSockaddrInet4{Family: syscall.AF_INET, Port: binary.NativeEndian.Uint16(port), Addr: ip.As4()}
		_, _, errno = syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))
	} else {
		sa := syscall.RawSockaddrInet6{Family: syscall.AF_INET6, Port: binary.NativeEndian.Uint16(port), Addr: ip.As16()}
		_, _, errno = syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// setUp sets what package net and [lookup.Dialer] set. What cannot be set is not missed.
func setUp(fd int, ip netip.Addr) {
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	if ip.IsLoopback() {
		return
	}
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, probeAfter)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, probeEvery)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, probes)
}

// refused ends the loop's attempt to connect, which has failed. Send returns the result: a
// goroutine tries the other addresses of the name, or the request fails for this reason.
func (x *Exchange) refused(err error) bool {
	l := x.line
	l.close()
	x.line, x.step = nil, placed
	if l.dialed.others {
		return !x.waited && x.connectLater()
	}
	x.lost = x.server.client.way.failed(os.NewSyscallError("connect", err))
	return !x.waited && x.waitFor(func(w *waiter) {
		w.lost = x.lost
		w.notify()
	})
}

// failed is an error as package net returns it for a connection that could not be made.
func (c *connector) failed(err error) error {
	network, to := "tcp", net.Addr(nil)
	if c.socket != "" {
		network, to = "unix", &net.UnixAddr{Name: c.socket, Net: "unix"}
	} else if at, _, ok := c.ready(); ok {
		to = net.TCPAddrFromAddrPort(at)
	}
	return &dialError{&net.OpError{Op: "dial", Net: network, Addr: to, Err: err}}
}

// await waits, on a goroutine, for a connection that a loop has begun to make, until ctx or
// the time that there is for it has ended. It takes the descriptor.
func (l *line) await(ctx context.Context, until time.Time) (net.Conn, error) {
	f := os.NewFile(uintptr(l.fd), "connection")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	_ = f.SetDeadline(until) // the wait says so if that is not possible
	defer context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })()
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		switch code, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR); {
		case err != nil:
			failed = os.NewSyscallError("getsockopt", err)
		case code != 0:
			failed = os.NewSyscallError("connect", syscall.Errno(code))
		default:
			_, err = syscall.Getpeername(int(fd))
			return err == nil
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	nc, err := net.FileConn(f) // which has a descriptor of its own
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	return nc, nil
}
