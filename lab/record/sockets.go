package record

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lookupTime bounds the question where a host's name points to.
const lookupTime = 5 * time.Second

// A listener is a socket that accepts connections.
type listener struct {
	inode uint64
	tcp   netip.AddrPort // invalid for UNIX sockets
	path  string         // of a UNIX socket; an abstract one begins with @
}

// address is where to connect to reach it: a wildcard becomes loopback.
func (l listener) address() string {
	if !l.tcp.IsValid() {
		return "unix:" + l.path
	}
	addr := l.tcp.Addr()
	switch {
	case addr.IsUnspecified() && addr.Is4():
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case addr.IsUnspecified():
		addr = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(addr, l.tcp.Port()).String()
}

// parseTCP reads the listeners of /proc/net/tcp or tcp6 (proc_net_tcp(5)).
// The file is read line by line: with many connections it has many megabytes.
func parseTCP(r io.Reader) ([]listener, error) {
	const listen = "0A" // TCP_LISTEN
	var found []listener
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != listen {
			continue // the head, or a connection
		}
		addr, err := parseHexAddress(f[1])
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", f[1], err)
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("inode: %w", err)
		}
		found = append(found, listener{inode: inode, tcp: addr})
	}
	return found, lines.Err()
}

// parseHexAddress reads "0100007F:1F90": words of 32 bits in the machine's
// byte order, the port in the order people write it.
func parseHexAddress(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%d bytes are not an address", len(raw))
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

// parseUnix reads the listeners of /proc/net/unix (proc_net_unix(5)) that have
// a name.
func parseUnix(r io.Reader) ([]listener, error) {
	const accepts = 1 << 16 // __SO_ACCEPTCON
	var found []listener
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path; a path may hold spaces.
		f := strings.Fields(lines.Text())
		if len(f) < 8 {
			continue
		}
		flags, err := strconv.ParseUint(f[3], 16, 32)
		if err != nil || flags&accepts == 0 {
			continue // the head, or a connection
		}
		inode, err := strconv.ParseUint(f[6], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("inode: %w", err)
		}
		_, path, _ := strings.Cut(lines.Text(), " "+f[6]+" ")
		found = append(found, listener{inode: inode, path: path})
	}
	return found, lines.Err()
}

// Listening finds the processes that listen at an address: "host:port",
// "unix:/path", or "unix:@name" for an abstract socket. A socket that listens
// at every address of the machine is found under each. It returns the
// processes' ids, parents before children, and an error that says what to do
// when there is none or they may not be looked at. Processes in another
// network namespace (containers) are not found: name those by pid.
func Listening(address string) ([]int, error) {
	all, err := readListeners()
	if err != nil {
		return nil, fmt.Errorf("looking who listens at %s: %w", address, err)
	}
	matching, err := match(all, address)
	if err != nil {
		return nil, fmt.Errorf("looking who listens at %s: %w", address, err)
	}
	if len(matching) == 0 {
		return nil, fmt.Errorf("nobody listens at %s on this machine: start the server first, or name its process by pid", address)
	}
	pids, refused, err := owners(matching)
	if err != nil {
		return nil, fmt.Errorf("looking who listens at %s: %w", address, err)
	}
	if len(pids) == 0 && refused {
		return nil, fmt.Errorf("something listens at %s, but its process may not be looked at: run this as its user or as root", address)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("something listens at %s, but no process that can be seen from here holds its socket: name the process by pid", address)
	}
	return pids, nil
}

// match picks the listeners that a connection to address can reach.
func match(all []listener, address string) ([]listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return nil, errors.New("unix: is followed by no path")
		}
		return slices.DeleteFunc(slices.Clone(all), func(l listener) bool { return l.tcp.IsValid() || l.path != path }), nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: write host:port or unix:/path", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q is not a number up to 65535", port)
	}
	hosts, err := resolve(host)
	if err != nil {
		return nil, err
	}
	var exact, wild []listener
	for _, l := range all {
		if !l.tcp.IsValid() || l.tcp.Port() != uint16(number) {
			continue
		}
		listens := l.tcp.Addr().WithZone("")
		switch {
		case slices.Contains(hosts, listens), len(hosts) == 0:
			exact = append(exact, l)
		case reachable(hosts, listens):
			wild = append(wild, l)
		}
	}
	if len(exact) > 0 {
		return exact, nil
	}
	return wild, nil
}

// reachable reports whether a socket bound to a wildcard answers one of the
// hosts. One bound to :: answers IPv4 too, unless it was told not to, which
// /proc does not show.
func reachable(hosts []netip.Addr, listens netip.Addr) bool {
	return listens.IsUnspecified() && (listens.Is6() || slices.ContainsFunc(hosts, netip.Addr.Is4))
}

// resolve is the addresses of a host; none for every address ("", 0.0.0.0, ::).
func resolve(host string) ([]netip.Addr, error) {
	if host == "" {
		return nil, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap().WithZone("")
		if addr.IsUnspecified() {
			return nil, nil
		}
		return []netip.Addr{addr}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	hosts, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i, addr := range hosts {
		hosts[i] = addr.Unmap().WithZone("")
	}
	return hosts, nil
}

// byDepth orders processes so that parents come before their children, and
// brothers by number. parent says whose child a process is, 0 for unknown.
func byDepth(pids []int, parent func(pid int) int) {
	const deepest = 64 // processes nest less; a circle would be an error of /proc
	depth := make(map[int]int, len(pids))
	for _, pid := range pids {
		for p := parent(pid); p > 0 && depth[pid] < deepest; p = parent(p) {
			depth[pid]++
		}
	}
	slices.SortFunc(pids, func(a, b int) int {
		return cmp.Or(cmp.Compare(depth[a], depth[b]), cmp.Compare(a, b))
	})
}
