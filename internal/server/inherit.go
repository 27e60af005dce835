package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	firstInherited = 3  // sd_listen_fds(3): after the standard streams
	mostInherited  = 64 // sockets of one unit
)

// Inherited are the listening sockets that systemd has opened for this process:
// those of its socket unit, by LISTEN_PID and LISTEN_FDS. There are none where
// the variables are missing or meant for another process.
func Inherited(getenv func(string) string) ([]*os.File, error) {
	if pid := getenv("LISTEN_PID"); pid == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > mostInherited {
		return nil, fmt.Errorf("LISTEN_FDS is %q, which is no number from 0 to %d: start the program by systemd, or without LISTEN_PID", getenv("LISTEN_FDS"), mostInherited)
	}
	var files []*os.File
	for fd := firstInherited; fd < firstInherited+n; fd++ {
		files = append(files, os.NewFile(uintptr(fd), "LISTEN_FD_"+strconv.Itoa(fd)))
	}
	return files, nil
}

// inherited is the listener of the socket that was opened for addr, or nil. The
// socket stays open when the listener is closed: who connects while nobody
// listens waits in the kernel's queue.
func inherited(sockets []*os.File, addr string) net.Listener {
	for _, f := range sockets {
		ln, err := net.FileListener(f)
		if err != nil {
			continue // a socket of another kind: unclaimed says so
		}
		if sameAddress(ln.Addr(), addr) {
			return ln
		}
		_ = ln.Close()
	}
	return nil
}

// inheritedUDP is the socket for HTTP/3 that was opened for addr, or nil.
func inheritedUDP(sockets []*os.File, addr string) *net.UDPConn {
	for _, f := range sockets {
		pc, err := net.FilePacketConn(f)
		if err != nil {
			continue
		}
		if socket, ok := pc.(*net.UDPConn); ok && sameAddress(socket.LocalAddr(), addr) {
			return socket
		}
		_ = pc.Close()
	}
	return nil
}

// sameAddress reports whether a socket listens where addr (host:port, :port,
// unix:/path) asks for. :80 is every interface, as [::]:80 is for systemd. Port 0 is
// any port: a successor goes on at the one that its predecessor was given.
func sameAddress(have net.Addr, addr string) bool {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return have.Network() == "unix" && have.String() == path
	}
	h, err := netip.ParseAddrPort(have.String())
	host, port, e := net.SplitHostPort(addr)
	if err != nil || e != nil || port != "0" && strconv.Itoa(int(h.Port())) != port {
		return false
	}
	if host == "" {
		return h.Addr().IsUnspecified()
	}
	if want, err := netip.ParseAddr(host); err == nil {
		return want.Unmap() == h.Addr().Unmap()
	}
	named, err := net.ResolveTCPAddr("tcp", addr) // as Listen has it
	return err == nil && named.AddrPort().Addr().Unmap() == h.Addr().Unmap()
}

// warnUnclaimed says which inherited sockets the config does not name: clients
// of theirs would wait for ever.
func (s *Server) warnUnclaimed(setup Setup) {
	if setup.Successor {
		return // what the config does not name any more is closed
	}
	addrs := slices.Concat(setup.Listen, setup.TLS.Listen)
	for _, f := range setup.Inherited {
		if pc, err := net.FilePacketConn(f); err == nil {
			have := pc.LocalAddr()
			_ = pc.Close()
			if !setup.TLS.HTTP3 || !slices.ContainsFunc(setup.TLS.Listen, func(a string) bool { return sameAddress(have, a) }) {
				s.errors.Warn("nobody reads from a datagram socket of the socket unit: it is for HTTP/3, so name its address in tls.listen and set tls.http3 to true, or take it out of the unit", "socket", have.String())
			}
			continue
		}
		ln, err := net.FileListener(f)
		if err != nil {
			s.errors.Warn("a socket of the socket unit does not accept connections; ListenStream= makes one that does", "socket", f.Name(), "err", err)
			continue
		}
		have := ln.Addr()
		_ = ln.Close()
		if !slices.ContainsFunc(addrs, func(a string) bool { return sameAddress(have, a) }) {
			s.errors.Warn("nobody answers at a socket of the socket unit: name it in the config's listen, or take it out of the unit", "socket", have.String())
		}
	}
}

// heldBySystemd explains a taken port whose socket has another host.
func heldBySystemd(err error, sockets []*os.File, addr string) error {
	_, port, e := net.SplitHostPort(addr)
	if e != nil || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	for _, f := range sockets {
		if ln, e := net.FileListener(f); e == nil {
			have := ln.Addr().String()
			_ = ln.Close()
			if strings.HasSuffix(have, ":"+port) {
				return fmt.Errorf("listen on %s: %w: the socket unit has opened %s; write the same address into both", addr, syscall.EADDRINUSE, have)
			}
		}
	}
	return err
}
