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

	"millrace/internal/wire/netset"
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
		if sameAddress(ln, ln.Addr(), addr) {
			return ln
		}
		_ = ln.Close()
	}
	return nil
}

// isInherited reports whether a socket was opened for addr, or one for HTTP/3
// beside it.
func isInherited(setup Setup, addr string, secure bool) bool {
	if ln := inherited(setup.Inherited, addr); ln != nil {
		return ln.Close() == nil
	}
	if !secure || !setup.TLS.HTTP3 {
		return false
	}
	socket := inheritedUDP(setup.Inherited, addr)
	return socket != nil && socket.Close() == nil
}

// inheritedUDP is the socket for HTTP/3 that was opened for addr, or nil.
func inheritedUDP(sockets []*os.File, addr string) *net.UDPConn {
	for _, f := range sockets {
		pc, err := net.FilePacketConn(f)
		if err != nil {
			continue
		}
		if socket, ok := pc.(*net.UDPConn); ok && sameAddress(socket, socket.LocalAddr(), addr) {
			return socket
		}
		_ = pc.Close()
	}
	return nil
}

// sameAddress reports whether a socket listens where addr (host:port, :port,
// unix:/path) asks for, for the same families: a socket at [::]:80 may be IPv6
// alone, or what :80 asks for. Port 0 is any port: a successor goes on at the one
// that its predecessor was given.
func sameAddress(socket any, have net.Addr, addr string) bool {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return have.Network() == "unix" && have.String() == path
	}
	h, err := netip.ParseAddrPort(have.String())
	host, port, e := net.SplitHostPort(addr)
	if err != nil || e != nil || port != "0" && strconv.Itoa(int(h.Port())) != port {
		return false
	}
	of := netset.FamilyOfSocket(socket, have)
	if host == "" {
		return of == netset.Both
	}
	if want, err := netset.FamilyOf(addr); err != nil || want != of {
		return false
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
	named := func(socket any, have net.Addr, addrs []string) bool {
		return slices.ContainsFunc(addrs, func(addr string) bool {
			return slices.ContainsFunc(append(netset.SplitFamilies(addr), addr), func(a string) bool { return sameAddress(socket, have, a) })
		})
	}
	for _, f := range setup.Inherited {
		if pc, err := net.FilePacketConn(f); err == nil {
			have := pc.LocalAddr()
			known := setup.TLS.HTTP3 && named(pc, have, setup.TLS.Listen)
			_ = pc.Close()
			if !known {
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
		known := named(ln, have, slices.Concat(setup.Listen, setup.TLS.Listen))
		_ = ln.Close()
		if !known {
			s.errors.Warn("nobody answers at a socket of the socket unit: name it in the config's listen, or take it out of the unit", "socket", have.String())
		}
	}
}

// heldBySystemd explains a taken port whose socket has another host, or another
// family.
func heldBySystemd(err error, sockets []*os.File, addr string) error {
	_, port, e := net.SplitHostPort(addr)
	if e != nil || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	for _, f := range sockets {
		ln, e := net.FileListener(f)
		if e != nil {
			continue
		}
		have, of := ln.Addr().String(), netset.FamilyOfSocket(ln, ln.Addr())
		_ = ln.Close()
		switch {
		case !strings.HasSuffix(have, ":"+port):
		case of == netset.Both:
			return fmt.Errorf("listen on %s: %w: the socket unit has opened port %s for IPv4 and IPv6; write \":%s\" into the config, or BindIPv6Only=ipv6-only and an address of each family into the unit", addr, syscall.EADDRINUSE, port, port)
		default:
			return fmt.Errorf("listen on %s: %w: the socket unit has opened %s; write the same address into both", addr, syscall.EADDRINUSE, have)
		}
	}
	return err
}
