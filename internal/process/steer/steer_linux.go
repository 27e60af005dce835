package steer

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"millrace/internal/wire/netset"
)

// Listen opens a UDP socket. A process of the same user can open another one at the same port
// by Beside.
func Listen(of netset.Family, at *net.UDPAddr) (*net.UDPConn, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return shared(raw) }}
	pc, err := c.ListenPacket(context.Background(), of.Network("udp"), at.String())
	if err != nil {
		return nil, err //nolint:wrapcheck // it is that of net.ListenUDP
	}
	return pc.(*net.UDPConn), nil
}

// Beside opens a second socket at the port of the predecessor's, which still gets all packets
// until [Begin]. It fails if another user has opened the first: as systemd does for socket
// units.
func Beside(predecessor *net.UDPConn) (*net.UDPConn, error) {
	at := predecessor.LocalAddr().(*net.UDPAddr)
	raw, err := predecessor.SyscallConn()
	if err == nil {
		err = attach(raw, stay())
	}
	if err != nil {
		return nil, fmt.Errorf("keeping packets for the process before this one: %w", err)
	}
	socket, err := Listen(netset.FamilyOfSocket(predecessor, at), at)
	if err != nil {
		return nil, fmt.Errorf("opening a socket beside that of the process before this one: %w", err)
	}
	return socket, nil
}

// Begin gives the packets of new connections to socket, which is from [Beside], for a process of
// generation g. Packets of the predecessor's connections still go to the predecessor.
func Begin(socket *net.UDPConn, g Generation) error {
	raw, err := socket.SyscallConn()
	if err == nil {
		err = attach(raw, program(g))
	}
	if err != nil {
		return fmt.Errorf("taking the packets of new connections over: %w", err)
	}
	return nil
}

func shared(raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	if failed != nil {
		return failed //nolint:wrapcheck // the socket is closed
	}
	return err //nolint:wrapcheck // its caller says what was done
}

// attach sets the BPF program for all sockets of the port.
func attach(raw syscall.RawConn, text []bpf.Instruction) error {
	assembled, err := bpf.Assemble(text)
	if err != nil {
		return err //nolint:wrapcheck // it says which instruction
	}
	filter := make([]unix.SockFilter, len(assembled))
	for i, in := range assembled {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if failed != nil {
		return failed //nolint:wrapcheck // the socket is closed
	}
	return err //nolint:wrapcheck // its callers say what was done
}
