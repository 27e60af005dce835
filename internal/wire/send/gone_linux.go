package send

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A peer may send no more and still wait for what it is sent (RFC 9293, 3.6): the
// end of what it sends does not say whether it has left. A reset does, or, on a UNIX
// socket, its close. Of a peer that has closed a TCP connection and was sent nothing
// since, the system is asked: soon it does not know the connection any more, and
// answers a keepalive probe with a reset.
const (
	// probeEvery is how often it is asked. Linux keeps a connection that its program
	// has closed for a minute (tcp_fin_timeout), others for less.
	probeEvery = 15 * time.Second
	// probesLost is how many unanswered probes mean that the peer's machine is gone.
	probesLost = 4
)

// Gone reports whether the peer of a socket takes no more. If it only sends no more,
// the system is told to find out when it has left.
func Gone(fd int) bool {
	p := unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
	var now unix.Timespec
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0 || n == 0:
			return false
		}
		break
	}
	if p.Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
		return true
	}
	probe(fd)
	return false
}

// probe turns keepalive probes on. A UNIX socket has none and needs none.
func probe(fd int) {
	seconds := int(probeEvery / time.Second)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probesLost)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// AwaitGone waits until the peer takes no more, or the read deadline passes. It takes
// nothing from the socket. The error is io.EOF, or what ended the wait; it is
// [errors.ErrUnsupported] at once where that cannot be known.
func AwaitGone(conn net.Conn) error {
	raw := rawBelow(conn)
	if raw == nil {
		return errors.ErrUnsupported
	}
	return awaitGone(raw, func(fd uintptr) bool { return Gone(int(fd)) })
}

func awaitGone(raw syscall.RawConn, gone func(fd uintptr) bool) error {
	if err := raw.Read(gone); err != nil {
		return err
	}
	return io.EOF
}
