package epoll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a descriptor is watched for, and what comes back.
const (
	In       = unix.EPOLLIN
	Out      = unix.EPOLLOUT
	PeerShut = unix.EPOLLRDHUP // the peer sends no more
	HungUp   = unix.EPOLLHUP   // always watched for
	Failed   = unix.EPOLLERR   // always watched for
	Edge     = unix.EPOLLET
	OneShot  = unix.EPOLLONESHOT
)

// Event says what a descriptor is ready for, in Events.
type Event unix.EpollEvent

// Key is that of Add.
func (e *Event) Key() int32 { return e.Fd }

// Generation is that of Add.
func (e *Event) Generation() uint32 { return uint32(e.Pad) }

// Set is the descriptors that are waited for together. Poll and Wait are for
// one goroutine at a time.
type Set struct {
	fd     int
	coarse bool // the system has no epoll_pwait2
}

// New returns an empty set. It must be closed.
func New() (*Set, error) {
	s, err := newSet()
	return &s, err
}

func newSet() (Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return Set{fd: -1}, fmt.Errorf("create an epoll descriptor: %w", err)
	}
	return Set{fd: fd}, nil
}

// Close closes the set, not what is in it. Nobody may use it any more.
func (s *Set) Close() error { return unix.Close(s.fd) }

// FD is the set's own descriptor, which may be watched by another set.
func (s *Set) FD() int { return s.fd }

// Add begins to watch fd. Closing fd, if it has no duplicates, ends that.
func (s *Set) Add(fd int, events uint32, key int32, generation uint32) error {
	return s.control(unix.EPOLL_CTL_ADD, fd, events, key, generation)
}

// Change replaces what fd is watched for.
func (s *Set) Change(fd int, events uint32, key int32, generation uint32) error {
	return s.control(unix.EPOLL_CTL_MOD, fd, events, key, generation)
}

// Remove ends watching fd.
func (s *Set) Remove(fd int) error { return unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, fd, nil) }

func (s *Set) control(op, fd int, events uint32, key int32, generation uint32) error {
	event := unix.EpollEvent{Events: events, Fd: key, Pad: int32(generation)}
	return unix.EpollCtl(s.fd, op, fd, &event)
}

// Poll fills events with what is ready now, without waiting, and returns how
// many there are. The scheduler is not told of the call, which takes a
// microsecond. events must not be empty.
func (s *Set) Poll(events []Event) int {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case syscall.EINTR:
		default:
			return 0
		}
	}
}

// Wait is Poll that waits for an event, in a thread: for at most so many
// nanoseconds, or without an end if they are negative. A signal may end it
// early, with no events. Before Linux 5.11 it waits whole milliseconds, rounded
// down.
func (s *Set) Wait(events []Event, ns int64) (int, error) {
	most := uintptr(len(events))
	if !s.coarse {
		var until *unix.Timespec
		if ns >= 0 {
			span := unix.NsecToTimespec(ns)
			until = &span
		}
		n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), most, uintptr(unsafe.Pointer(until)), 0, 0)
		if errno != syscall.ENOSYS && errno != syscall.EPERM { // the latter from filters that do not know it
			return waited(n, errno)
		}
		s.coarse = true
	}
	ms := int64(-1)
	if ns >= 0 {
		ms = ns / int64(time.Millisecond)
	}
	n, _, errno := syscall.Syscall6(syscall.SYS_EPOLL_PWAIT, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), most, uintptr(ms), 0, 0)
	return waited(n, errno)
}

func waited(n uintptr, errno syscall.Errno) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case syscall.EINTR:
		return 0, nil
	}
	return 0, os.NewSyscallError("epoll_wait", errno)
}

// Poller is a Set that Go's poller waits for.
type Poller struct {
	Set
	file *os.File
	raw  syscall.RawConn
}

// NewPoller returns an empty set. It must be closed.
func NewPoller() (*Poller, error) {
	s, err := newSet()
	if err != nil {
		return nil, err
	}
	// Go's poller takes only descriptors that do not block. This one never
	// does: Poll asks with a timeout of zero.
	if err := unix.SetNonblock(s.fd, true); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("prepare an epoll descriptor: %w", err)
	}
	p := &Poller{Set: s, file: os.NewFile(uintptr(s.fd), "epoll")}
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // fails where Go's poller does not take it
	}
	if err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("wait for an epoll descriptor: %w", err)
	}
	return p, nil
}

// Run calls work until that is done, each time when something may have become
// ready since the last call, or until Close. work must go on until Poll finds
// nothing: only what comes later wakes it again. While it runs, the set cannot
// be closed, nor its number be given to another file.
func (p *Poller) Run(work func() (done bool)) {
	_ = p.raw.Read(func(uintptr) bool { return work() })
}

// Close closes the set, not what is in it. It ends Run, once work returns.
func (p *Poller) Close() error { return p.file.Close() }

// WakeKey is the key of a Waker's events.
const WakeKey = -1

// Waker ends the wait of a set.
type Waker struct {
	file *os.File
	one  [8]byte // what is written
}

// NewWaker returns a waker of the set. It must be closed.
func (s *Set) NewWaker() (*Waker, error) {
	// It may block, so that Go's poller leaves it alone; it never does, since
	// nobody wakes 2⁶⁴ times.
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an event descriptor: %w", err)
	}
	if err := s.Add(fd, In|Edge, WakeKey, 0); err != nil { // edge-triggered, it need not be read
		return nil, errors.Join(fmt.Errorf("watch an event descriptor: %w", err), unix.Close(fd))
	}
	w := &Waker{file: os.NewFile(uintptr(fd), "eventfd")}
	binary.NativeEndian.PutUint64(w.one[:], 1)
	return w, nil
}

// Wake has the set's Poll or Wait return an event with WakeKey, once for any
// number of calls before. It may be called from anywhere, and does nothing
// after Close.
func (w *Waker) Wake() { _, _ = w.file.Write(w.one[:]) }

// Close closes the waker.
func (w *Waker) Close() error { return w.file.Close() }
