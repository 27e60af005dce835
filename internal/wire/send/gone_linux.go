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

// A peer that has closed its sending side may still wait for an answer (RFC 9293, 3.6), so the
// end of the stream does not say that it has left. A reset says that, or the close of a
// UNIX socket. A peer that has closed a TCP connection altogether sends a reset only when
// it is sent something. So keepalive probes are sent to it: its system answers them with a
// reset as soon as it has forgotten the connection.
const (
	// probeEvery is the interval of the probes. Linux forgets a closed connection after
	// a minute (tcp_fin_timeout), other systems sooner.
	probeEvery = 15 * time.Second
	// probesLost is after how many unanswered probes the peer's machine counts as gone.
	probesLost = 4
)

// Gone reports whether the peer of a socket has left. If it has only closed its sending side,
// Gone turns keepalive probes on, which find out when it leaves.
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

// probe turns keepalive probes on. UNIX sockets have none and need none.
func probe(fd int) {
	seconds := int(probeEvery / time.Second)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probesLost)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}

// AwaitGone waits until the peer has left, or the read deadline passes. It reads nothing from
// the socket. The error is io.EOF if the peer has left, and otherwise what ended the wait.
// Where the system cannot tell, it is [errors.ErrUnsupported] at once.
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
