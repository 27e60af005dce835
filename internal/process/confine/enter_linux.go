package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// variable is the environment variable by which the program that is executed anew finds
// its domain: "5/7" are the descriptors of the domain as JSON, and of Enter's own file (0:
// none).
const variable = "MILLRACE_CONFINED"

const (
	// leastVersion is the first that lets files be moved between folders (Linux
	// 5.19), as stores do.
	leastVersion = 2
	// The first versions of Landlock with these features (landlock(7)).
	truncates, devices, scopes = 3, 5, 6
	// mostGranted bounds what is read back, in bytes.
	mostGranted = 64 << 20

	ofFiles    = ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
	everything = ofFiles | ll.AccessFSReadDir | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeChar | ll.AccessFSMakeDir |
		ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeBlock | ll.AccessFSMakeSym | ll.AccessFSRefer

	reads    = ll.AccessFSReadFile | ll.AccessFSReadDir
	executes = reads | ll.AccessFSExecute
	writes   = reads | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSRefer
	sockets = ll.AccessFSReadDir | ll.AccessFSMakeSock | ll.AccessFSRemoveFile
)

// Version is the version of Landlock that the kernel has; 0 for none.
func Version() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return version
}

// Possible returns why a process cannot be confined here, wrapping [ErrMissing].
func Possible() error {
	switch version := Version(); {
	case version == 0:
		return fmt.Errorf("%w, or it is switched off: it takes Linux 5.19, with landlock among its lsm= modules", ErrMissing)
	case version < leastVersion:
		return fmt.Errorf("%w that lets files be moved between folders: it has version %d, and Linux 5.19 has 2", ErrMissing, version)
	}
	return nil
}

// handled returns the rights that a version of Landlock can restrict.
func handled(version int) uint64 {
	all := uint64(everything)
	if version < truncates {
		all &^= ll.AccessFSTruncate
	}
	if version < devices {
		all &^= ll.AccessFSIoctlDev
	}
	return all
}

func rights(a Access) (all uint64) {
	for one, what := range map[Access]uint64{Read: reads, Execute: executes, Write: writes, Socket: sockets} {
		if a&one != 0 {
			all |= what
		}
	}
	return all
}

// Enter executes this program anew, confined to the rules, with the same arguments and
// descriptors, and with env added to the environment. [Inherited] returns own there; nil:
// none. Enter returns only after an error.
func Enter(rules []Rule, own *os.File, env ...string) error {
	if err := Possible(); err != nil {
		return err
	}
	d := &Domain{Version: Version()}
	set, err := ruleset(d, rules)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(set) }() // it holds nothing
	told, err := domainFile(d)
	if err != nil {
		return err
	}
	defer told.Close()
	handed := "0"
	if own != nil {
		if err := keepOpen(own); err != nil {
			return err
		}
		handed = strconv.Itoa(int(own.Fd()))
	}
	program, err := self()
	if err != nil {
		return err
	}
	env = append(overlaid(env), fmt.Sprintf("%s=%d/%s", variable, told.Fd(), handed))
	failed := make(chan error)
	go func() { // ends with this program, or with an error
		runtime.LockOSThread() // for good: a thread that was restricted ends with its goroutine
		failed <- restricted(set, program, env)
	}()
	return fmt.Errorf("entering the sandbox: %w", <-failed)
}

// restricted restricts the thread and executes the program from it.
func restricted(set int, program string, env []string) error {
	drop()
	if err := restrict(set); err != nil {
		return err
	}
	return fmt.Errorf("starting %s anew: %w", program, syscall.Exec(program, os.Args, env))
}

// kept are the capabilities that a server run by root keeps: for ports below 1024, and for
// files of other users. Landlock also restricts root, but not a process that may load
// kernel modules, write to devices, or inspect other processes (CAP_PERFMON opens their
// environment in /proc).
var kept = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_NET_BIND_SERVICE,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SYS_NICE, unix.CAP_SYS_RESOURCE,
}

// drop drops all other capabilities for the program that the thread executes. A thread
// that may not do so has no capabilities, and gets none later (no_new_privs).
func drop() {
	const highest = 63 // the kernel answers EINVAL from the first that it does not know
	for c := uintptr(0); c <= highest; c++ {
		if !slices.Contains(kept, c) {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, c, 0, 0)
		}
	}
	// Root also gets its inheritable capabilities (capabilities(7)); older
	// container engines leave all of them inheritable.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) == nil {
		var mask uint64
		for _, c := range kept {
			mask |= 1 << c
		}
		sets[0].Inheritable &= uint32(mask)       //nolint:gosec // the lower half
		sets[1].Inheritable &= uint32(mask >> 32) //nolint:gosec // the upper half
		_ = unix.Capset(&header, &sets[0])        // less is always allowed
	}
}

// restrict restricts the thread that calls it.
func restrict(set int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := ll.LandlockRestrictSelf(set, 0); err != nil {
		return fmt.Errorf("restricting a thread: %w", err)
	}
	return nil
}

// overlaid returns the environment with these variables set.
func overlaid(env []string) []string {
	all := os.Environ()
	for _, set := range env {
		name, _, _ := strings.Cut(set, "=")
		all = append(slices.DeleteFunc(all, func(v string) bool { return strings.HasPrefix(v, name+"=") }), set)
	}
	return all
}

// ruleset makes the kernel's rules, and notes them in the domain.
func ruleset(d *Domain, rules []Rule) (set int, err error) {
	all := handled(d.Version)
	attr := ll.RulesetAttr{HandledAccessFS: all}
	if d.Version >= scopes && !strings.HasPrefix(os.Getenv("NOTIFY_SOCKET"), "@") {
		attr.Scoped, d.Scoped = ll.ScopeSignal|ll.ScopeAbstractUnixSocket, true
	}
	if set, err = ll.LandlockCreateRuleset(&attr, 0); err != nil {
		return 0, fmt.Errorf("making the sandbox: %w", err)
	}
	for _, r := range rules {
		if err := add(set, all, d, r); err != nil {
			_ = unix.Close(set) // nothing was restricted by it
			return 0, fmt.Errorf("making the sandbox: %s (%s): %w", r.Path, r.For, err)
		}
	}
	return set, nil
}

func add(set int, all uint64, d *Domain, r Rule) error {
	fd, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // missing, or out of reach anyway: the process reports it when it needs it
	}
	defer func() { _ = unix.Close(fd) }() // it was only looked at
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err //nolint:wrapcheck // ruleset says what was done
	}
	allowed := rights(r.Access) & all
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		allowed &= ofFiles
	}
	if allowed == 0 {
		return nil // a file where a folder should be: likewise
	}
	err = ll.LandlockAddPathBeneathRule(set, &ll.PathBeneathAttr{AllowedAccess: allowed, ParentFd: fd}, 0)
	if errors.Is(err, unix.EBADFD) {
		return nil // a pipe and the like, for which there are no rules
	}
	if err != nil {
		return err //nolint:wrapcheck // likewise
	}
	path, err := filepath.EvalSymlinks(r.Path)
	if err != nil {
		path = r.Path
	}
	d.Granted = append(d.Granted, Granted{path, r.Access, info.Dev, info.Ino})
	return nil
}

// domainFile returns a file in memory with the domain, for the program that is executed.
func domainFile(d *Domain) (*os.File, error) {
	fd, err := unix.MemfdCreate("millrace-domain", 0)
	if err != nil {
		return nil, fmt.Errorf("making the sandbox: %w", err)
	}
	f := os.NewFile(uintptr(fd), "domain")
	err = json.NewEncoder(f).Encode(d)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("making the sandbox: %w", err)
	}
	return f, nil
}

func keepOpen(f *os.File) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("making the sandbox: %w", err)
	}
	return nil
}

// self returns a path of the running program: its name, so that the system shows that, or
// /proc/self/exe where the file was replaced.
func self() (string, error) {
	const running = "/proc/self/exe"
	name, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the program that runs: %w", err)
	}
	now, err := os.Stat(name)
	if was, missing := os.Stat(running); missing == nil && (err != nil || !os.SameFile(was, now)) {
		return running, nil
	}
	return name, nil
}

// Inherited returns the domain of this process and the file that was given to Enter; nil
// if the process is not confined.
func Inherited() (*Domain, *os.File, error) {
	text := os.Getenv(variable)
	if text == "" {
		return nil, nil, nil
	}
	_ = os.Unsetenv(variable) // it is not for processes that this one starts
	bad := fmt.Errorf("%s is %q, which this program did not write: unset it", variable, text)
	first, second, _ := strings.Cut(text, "/")
	told, err := descriptor(first)
	if err != nil || told == nil {
		return nil, nil, bad
	}
	defer told.Close()
	d := &Domain{}
	if json.NewDecoder(io.LimitReader(told, mostGranted)).Decode(d) != nil || !d.inForce() {
		return nil, nil, bad
	}
	own, err := descriptor(second)
	if err != nil {
		return nil, nil, bad
	}
	return d, own, nil
}

func descriptor(number string) (*os.File, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd == 0 {
		return nil, err //nolint:wrapcheck // the caller has a better one
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, err //nolint:wrapcheck // likewise
	}
	return os.NewFile(uintptr(fd), "inherited"), nil
}

// inForce checks that the kernel enforces the domain: it lists /, which everybody may do
// without a domain.
func (d *Domain) inForce() bool {
	if d.covers("/", Read) {
		return true
	}
	f, err := os.Open("/")
	if err == nil {
		_ = f.Close() // nothing was read
	}
	return errors.Is(err, fs.ErrPermission)
}

// identify returns the numbers of a file.
func identify(path string) (device, file uint64, err error) {
	var info unix.Stat_t
	err = unix.Stat(path, &info)
	return info.Dev, info.Ino, err //nolint:wrapcheck // whether there is one is all that matters
}

// Running is a path of the running program that this process may start, also when its
// file was replaced by a new one, which has no rule.
const Running = "/proc/self/exe"
