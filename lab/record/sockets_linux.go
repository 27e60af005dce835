package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// readListeners is every socket of this network namespace that listens.
func readListeners() ([]listener, error) {
	var all []listener
	for _, table := range []struct {
		file  string
		parse func(io.Reader) ([]listener, error)
	}{
		{"/proc/net/tcp", parseTCP},
		{"/proc/net/tcp6", parseTCP}, // not there where IPv6 is switched off
		{"/proc/net/unix", parseUnix},
	} {
		f, err := os.Open(table.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := table.parse(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", table.file, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// owners finds the processes that hold one of the sockets. refused says that
// some process did not let us look.
func owners(sockets []listener) (pids []int, refused bool, err error) {
	all, err := processes()
	if err != nil {
		return nil, false, err
	}
	for _, pid := range all {
		inodes, err := socketsOf(pid)
		if errors.Is(err, fs.ErrPermission) {
			refused = true
		}
		if slices.ContainsFunc(inodes, func(n uint64) bool {
			return slices.ContainsFunc(sockets, func(l listener) bool { return l.inode == n })
		}) {
			pids = append(pids, pid)
		}
	}
	// Whoever opens sockets for others and hands them over (the system's first
	// process does) holds them too, and would drag in the whole machine.
	if len(pids) > 1 {
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == 1 })
	}
	var buf []byte
	byDepth(pids, func(pid int) int {
		s, _ := readStat(pid, &buf) // one that ended has no parent
		return s.Parent
	})
	return pids, refused, nil
}

// Addresses finds where processes accept connections: "host:port" or
// "unix:/path", with loopback in the place of wildcards, in the order of the
// processes and, within one, in the order in which it opened the sockets.
// Children are not looked at, and what may not be looked at has none.
func Addresses(pids ...int) ([]string, error) {
	all, err := readListeners()
	if err != nil {
		return nil, err
	}
	byInode := make(map[uint64]listener, len(all))
	for _, l := range all {
		byInode[l.inode] = l
	}
	var found []string
	for _, pid := range pids {
		inodes, err := socketsOf(pid)
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("looking where process %d listens: %w", pid, err)
		}
		for _, n := range inodes {
			l, listens := byInode[n]
			if listens && !slices.Contains(found, l.address()) {
				found = append(found, l.address())
			}
		}
	}
	return found, nil
}

// Group is the processes of a process group, lowest number first.
func Group(group int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var buf []byte
	return slices.DeleteFunc(all, func(pid int) bool {
		s, err := readStat(pid, &buf)
		return err != nil || s.Group != group
	}), nil
}

// processes is every process that /proc shows, lowest number first.
func processes() ([]int, error) { return numbers("/proc") }

// numbers is the entries of a folder of /proc that are numbers, rising.
func numbers(dir string) ([]int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	found := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found, nil
}

// socketsOf is the inodes of a process's sockets, in the order of its
// descriptors.
func socketsOf(pid int) ([]uint64, error) {
	dir := procFile(pid, "fd")
	fds, err := numbers(dir)
	if err != nil {
		return nil, err
	}
	var inodes []uint64
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, strconv.Itoa(fd)))
		if err != nil {
			continue // closed while we looked
		}
		text, ok := strings.CutPrefix(target, "socket:[")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); err == nil {
			inodes = append(inodes, n)
		}
	}
	return inodes, nil
}
