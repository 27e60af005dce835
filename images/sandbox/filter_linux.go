//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidden are system calls that neither Go nor an encoder needs to turn one
// image into another, and that reach beyond the process: sockets and other
// ways to talk, other processes, mounts and namespaces, the kernel itself.
//
// It is a list of what is forbidden: the commands, their libraries and the
// scripts around them are not ours, and what they call changes with versions.
var forbidden = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN,

	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PERF_EVENT_OPEN, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,

	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT,

	unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG, unix.SYS_PERSONALITY,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
}

const (
	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	// otherABI is the bit of system calls of x32 on amd64 (syscall(2)); on
	// arm64 no number has it.
	otherABI = 0x40000000

	// Where struct seccomp_data has what is looked at (seccomp(2)). Of
	// arguments the lower half, which stands first on both architectures.
	offsetNumber, offsetArch, offsetFirst, offsetSecond = 0, 4, 16, 24
)

func refuse(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// program is the filter. A call that is refused fails with EPERM; clone3, whose
// flags a filter cannot see, with ENOSYS, so that libraries take clone.
func program() []unix.SockFilter {
	const load, equal, atLeast, anyOf, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	if runtime.GOARCH == "arm64" {
		arch = unix.AUDIT_ARCH_AARCH64
	}
	no := unix.SockFilter{Code: answer, K: refuse(unix.EPERM)}
	yes := unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW}
	p := []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: equal, K: arch, Jt: 1},
		no,
		{Code: load, K: offsetNumber},
		{Code: atLeast, K: otherABI, Jf: 1},
		no,
	}
	for _, number := range forbidden {
		p = append(p, unix.SockFilter{Code: equal, K: number, Jf: 1}, no)
	}
	return append(p,
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE3, Jf: 1}, unix.SockFilter{Code: answer, K: refuse(unix.ENOSYS)},
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE, Jf: 4},
		unix.SockFilter{Code: load, K: offsetFirst}, unix.SockFilter{Code: anyOf, K: newNamespaces, Jf: 1}, no, yes,
		// Typing into the terminal of whoever has started the server (ioctl_tty(2)).
		unix.SockFilter{Code: equal, K: unix.SYS_IOCTL, Jf: 4},
		unix.SockFilter{Code: load, K: offsetSecond}, unix.SockFilter{Code: equal, K: unix.TIOCSTI, Jf: 1}, no, yes,
		yes)
}

// filter puts the filter on all threads, which needs no_new_privs of the one
// that calls; that goes to the others with it.
func filter() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	code := program()
	all := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&all)))
	runtime.KeepAlive(code)
	switch {
	case errno != 0:
		return fmt.Errorf("seccomp: %w", errno)
	case thread != 0:
		return fmt.Errorf("seccomp: thread %d has a filter of its own", thread)
	}
	return nil
}
