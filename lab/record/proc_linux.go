package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read of a file in /proc: the longest, a status or the
// children of a thread that forked thousands, have some tens of kilobytes.
const maxFile = 1 << 20

// readFile reads a file of /proc into buf, which grows as needed, and returns
// what it read. Readings are many, so this is three system calls, where
// os.ReadFile has six.
func readFile(path string, buf *[]byte) ([]byte, error) {
	fd, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	if *buf == nil {
		*buf = make([]byte, 4<<10)
	}
	for n := 0; ; {
		if n == len(*buf) {
			if n >= maxFile {
				return nil, fmt.Errorf("reading %s: it is longer than %d bytes", path, maxFile)
			}
			*buf = append(*buf, make([]byte, n)...)
		}
		got, err := unix.Read(fd, (*buf)[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case got == 0:
			return (*buf)[:n], nil
		default:
			n += got
		}
	}
}

func openFile(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	}
}

// procFile is the path of a file of a process.
func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// gone reports whether an error says that a process has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// readStat reads /proc/PID/stat.
func readStat(pid int, buf *[]byte) (stat, error) {
	text, err := readFile(procFile(pid, "stat"), buf)
	if err != nil {
		return stat{}, err
	}
	s, err := parseStat(text)
	if err != nil {
		return stat{}, fmt.Errorf("reading /proc/%d/stat: %w", pid, err)
	}
	return s, nil
}

// processClock reads the CPU clock of a process, all its threads together,
// living and ended. The clock's number is made of the process's, as in
// clock_getcpuclockid(3): its complement above three bits, of which 2 stands
// for the scheduler's count of nanoseconds.
func processClock(pid int) (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|2), &now)
	if errors.Is(err, unix.EINVAL) {
		err = unix.ESRCH // the clock of no process is not a clock
	}
	if err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(now.Nano()), nil
}

// countFiles is how many descriptors a process has open.
func countFiles(pid int) (int, error) {
	dir := procFile(pid, "fd")
	// Since Linux 6.2 the folder's size is their number, which saves a list of
	// as many names as there are connections.
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err == nil && s.Size > 0 {
		// Those who may not look are told the number all the same.
		return int(s.Size), nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	return len(names), err
}

// ignoresChildren reports whether a process has the kernel take away ended
// children at once, so that what they used is in none of its counters.
func ignoresChildren(pid int, buf *[]byte) bool {
	text, err := readFile(procFile(pid, "status"), buf)
	if err != nil {
		return false
	}
	mask, err := parseIgnored(text)
	return err == nil && mask&(1<<(uint(unix.SIGCHLD)-1)) != 0
}

// familyTree is the children of every process of the machine. It reads all of
// them: for kernels that do not list a process's children.
func familyTree(buf *[]byte) (map[int][]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	tree := map[int][]int{}
	for _, pid := range all {
		if s, err := readStat(pid, buf); err == nil {
			tree[s.Parent] = append(tree[s.Parent], pid)
		}
	}
	return tree, nil
}
