//go:build unix

package h3

import "syscall"

// wanted is what quic-go asks the kernel for, for each direction of a socket: less
// loses packets at some hundred megabits a second.
const wanted = 7 << 20

// checkBuffers says when the kernel has given less.
func (l *Listener) checkBuffers() {
	raw, err := l.host.Socket.SyscallConn()
	if err != nil {
		return
	}
	receive, send := wanted, wanted
	err = raw.Control(func(fd uintptr) {
		if n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF); err == nil {
			receive = n
		}
		if n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF); err == nil {
			send = n
		}
	})
	if err != nil || receive >= wanted && send >= wanted {
		return
	}
	l.host.Errors.Warn("HTTP/3: the kernel allows only small UDP buffers, so fast transfers lose packets; run `sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000`, and write both into /etc/sysctl.d/ to keep them",
		"receive_bytes", receive, "send_bytes", send, "wanted_bytes", wanted)
}
