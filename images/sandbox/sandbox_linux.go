package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// Namespaces are the ways to start a child, the best first: with a network of
// its own, which has no devices, and without shared memory of others. Without
// privileges that takes a user namespace, in which the child's user has no
// name and no rights; a kernel that does not allow that refuses the start. The
// last way asks for nothing.
//
// Nothing is mapped into the user namespace: a parent that has concealed its
// memory may not write its child's map. So the child needs not wait for the
// parent, and starts as all others do (vfork): otherwise package syscall has
// the kernel copy the parent's page tables, 25 ms for 200 MB of memory.
func Namespaces() []*syscall.SysProcAttr {
	const flags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC
	return []*syscall.SysProcAttr{{Cloneflags: flags | syscall.CLONE_VFORK | syscall.CLONE_VM}, {}}
}

// Refused reports whether an error of a start says that the kernel does not
// give namespaces, or no more of them.
func Refused(err error) bool {
	for _, no := range []error{unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENOSYS, unix.ENOSPC, unix.EUSERS} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// NetworkID names the network that this process is in; empty where it cannot
// be told.
func NetworkID() string {
	id, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return ""
	}
	return id
}

// Conceal closes this process's memory, environment and descriptors to other
// processes of its user, those in /proc and those that trace; root may still
// look. The kernel writes no core file of it then: who asks for one with
// GOTRACEBACK=crash is not concealed.
func Conceal() Measure {
	if os.Getenv("GOTRACEBACK") == "crash" {
		return Measure{Concealed, "GOTRACEBACK=crash asks for core files"}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return Measure{Concealed, err.Error()}
	}
	return Measure{Name: Concealed}
}

// KeepRights has no child of the thread that calls it inherit capabilities, such as
// the one for ports below 1024 that a systemd unit gives. The thread and all others
// keep theirs. Children drop theirs too, but filters of system calls may forbid it.
func KeepRights() {
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // Enter reports what is left
}

// Enter gives up what the process does not need, for all its threads and for
// all that it starts, for ever.
func Enter(n Needs) Report {
	failed := map[string]error{}
	if reachable() {
		if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
			failed[Privileges] = errno
		}
		if err := dropCapabilities(); err != nil {
			failed[NoCaps] = err
		}
		if err := closeFiles(n); err != nil {
			failed[Files] = err
		}
	} else {
		failed[NoCaps], failed[Files] = errThreads, errThreads
	}
	if err := filter(); err != nil {
		failed[Sockets], failed[Peeking] = err, err
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // lowering it is always allowed
	return probe(n, failed)
}

// reachable reports whether package psx reaches all threads. Rights belong to a
// thread, and Go moves goroutines between them. It does not in a program that
// is built without cgo but with libraries that load others at run time: the tag
// nodynamic leaves those out.
func reachable() (ok bool) {
	defer func() {
		if recover() != nil { // that is how package syscall says it
			ok = false
		}
	}()
	_, _, errno := psx.Syscall3(unix.SYS_GETPID, 0, 0, 0)
	return errno == 0
}

// dropCapabilities empties the bounding set, where that is allowed, the ambient
// set, and the others.
func dropCapabilities() error {
	const highest = 63 // the kernel answers EINVAL from the first that it does not know
	for c := uintptr(0); c <= highest; c++ {
		if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); errno != 0 {
			break // without CAP_SETPCAP: no_new_privs makes it useless
		}
	}
	_, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	if errno != 0 && !errors.Is(errno, unix.EINVAL) { // before Linux 4.3
		return fmt.Errorf("clearing ambient capabilities: %w", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // of each thread that calls
	var none [2]unix.CapUserData
	_, _, errno = psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&none)
	if errno != 0 {
		return fmt.Errorf("dropping capabilities: %w", errno)
	}
	return nil
}

// closeFiles forbids to open what the needs do not name (Landlock, Linux 5.13
// with it switched on), and TCP (6.7). What is open stays so. Processes that are
// not confined alike are out of reach for tracing, too.
//
// Signals and abstract sockets, of the fifth version and later, are left alone:
// each of Go's threads is a domain of its own, and could not signal a command
// that another one has started.
func closeFiles(n Needs) error {
	rules := []landlock.Rule{landlock.RWFiles("/dev/null").IgnoreIfMissing()}
	for _, dir := range n.Folders {
		rules = append(rules, landlock.RWDirs(dir).IgnoreIfMissing())
	}
	if len(n.Programs) > 0 {
		rules = append(rules,
			landlock.RODirs(programFolders(n.Programs)...).IgnoreIfMissing(),
			landlock.ROFiles("/etc/ld.so.cache", "/etc/ld.so.preload").IgnoreIfMissing())
	}
	return landlock.V5.BestEffort().Restrict(rules...)
}

// programFolders are where commands, their libraries and what scripts among
// them call are: the system's folders, and those of commands elsewhere.
func programFolders(programs []string) []string {
	dirs := []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store"}
	for _, file := range programs {
		all := []string{file}
		if target, err := filepath.EvalSymlinks(file); err == nil && target != file {
			all = append(all, target)
		}
		for _, f := range all {
			bin := filepath.Dir(f)
			dirs = append(dirs, bin, filepath.Join(bin, "../lib"), filepath.Join(bin, "../lib64"))
		}
	}
	return dirs
}
