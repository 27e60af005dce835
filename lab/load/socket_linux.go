package load

import (
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of each request. None of them ever waits, so none needs to
// tell the scheduler that it might.

// receive reads what is there. A count of 0 without an error is the end.
func receive(fd int32, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_DONTWAIT, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// transmit writes as much as there is room for.
func transmit(fd int32, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// A dialer opens sockets to one target, without waiting for them.
type dialer struct {
	family  int
	target  unix.Sockaddr
	sources []unix.Sockaddr // empty: the system chooses
}

// newDialer makes a dialer for one thread: socket addresses hold scratch space.
func newDialer(p *plan) (*dialer, error) {
	if p.network == "unix" {
		return &dialer{family: unix.AF_UNIX, target: &unix.SockaddrUnix{Name: p.address}}, nil
	}
	ip := p.addr.Addr()
	if ip.Zone() != "" {
		return nil, fmt.Errorf("%v: addresses with a zone are not supported: give another address of the target", ip)
	}
	if ip.Is6() {
		if p.Sources > 0 {
			return nil, errSources(p.Sources, ip)
		}
		return &dialer{family: unix.AF_INET6, target: &unix.SockaddrInet6{Addr: ip.As16(), Port: int(p.addr.Port())}}, nil
	}
	d := &dialer{family: unix.AF_INET, target: &unix.SockaddrInet4{Addr: ip.As4(), Port: int(p.addr.Port())}}
	if p.Sources > 0 && !ip.IsLoopback() {
		return nil, errSources(p.Sources, ip)
	}
	for i := range p.Sources {
		d.sources = append(d.sources, &unix.SockaddrInet4{Addr: netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)}).As4()})
	}
	return d, nil
}

func errSources(n int, ip netip.Addr) error {
	return fmt.Errorf("%d source addresses are for targets on 127.0.0.1, not for %v: leave them out", n, ip)
}

// dial begins to connect. It reports whether that is done already; if not,
// the socket can be written to when it is.
func (d *dialer) dial(number int) (fd int32, done bool, err error) {
	s, err := unix.Socket(d.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, fmt.Errorf("open a socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(s)
		}
	}()
	if d.family != unix.AF_UNIX {
		_ = unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if len(d.sources) > 0 {
		// The port is then chosen when the target is known, and may be in use
		// towards others.
		if err := unix.SetsockoptInt(s, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return -1, false, fmt.Errorf("bind without a port: %w", err)
		}
		if err := unix.Bind(s, d.sources[number%len(d.sources)]); err != nil {
			return -1, false, fmt.Errorf("bind to a source address: %w", err)
		}
	}
	switch err := unix.Connect(s, d.target); err {
	case nil:
		return int32(s), true, nil
	case unix.EINPROGRESS, unix.EINTR:
		return int32(s), false, nil
	case unix.EADDRNOTAVAIL:
		return -1, false, fmt.Errorf("%w: no local port is left, more source addresses have more", err)
	default:
		return -1, false, err
	}
}

// connected is how connecting ended.
func connected(fd int32) error {
	errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = syscall.Errno(errno)
	}
	return err
}
