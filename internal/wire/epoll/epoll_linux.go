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

// What a descriptor is watched for, and what its events report.
const (
	In       = unix.EPOLLIN
	Out      = unix.EPOLLOUT
	PeerShut = unix.EPOLLRDHUP // the peer has closed its sending side
	HungUp   = unix.EPOLLHUP   // always watched
	Failed   = unix.EPOLLERR   // always watched
	Edge     = unix.EPOLLET
	OneShot  = unix.EPOLLONESHOT
)

// Event says in Events what a descriptor is ready for.
type Event unix.EpollEvent

// Key returns the key from Add.
func (e *Event) Key() int32 { return e.Fd }

// Generation returns the generation from Add.
func (e *Event) Generation() uint32 { return uint32(e.Pad) }

// Set is an epoll descriptor with those that it watches. Only one goroutine at a time may call
// Poll or Wait.
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

// Close closes the set, not what is in it. The set must not be used afterwards.
func (s *Set) Close() error { return unix.Close(s.fd) }

// FD returns the set's own descriptor, which another set may watch.
func (s *Set) FD() int { return s.fd }

// Add begins to watch fd. Closing fd ends that, unless it has duplicates.
func (s *Set) Add(fd int, events uint32, key int32, generation uint32) error {
	return s.control(unix.EPOLL_CTL_ADD, fd, events, key, generation)
}

// Change replaces what fd is watched for.
func (s *Set) Change(fd int, events uint32, key int32, generation uint32) error {
	return s.control(unix.EPOLL_CTL_MOD, fd, events, key, generation)
}

// Remove stops watching fd.
func (s *Set) Remove(fd int) error { return unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, fd, nil) }

func (s *Set) control(op, fd int, events uint32, key int32, generation uint32) error {
	event := unix.EpollEvent{Events: events, Fd: key, Pad: int32(generation)}
	return unix.EpollCtl(s.fd, op, fd, &event)
}

// Poll fills events with what is ready now, without waiting, and returns how many there are. The
// system call is raw: it takes a microsecond, and the scheduler need not know of it. events
// must not be empty.
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

// Wait is Poll that waits for an event, in a thread: for at most ns nanoseconds, or for ever if
// ns is negative. A signal may end it early, with no events. Before Linux 5.11 it waits whole
// milliseconds, rounded down.
func (s *Set) Wait(events []Event, ns int64) (int, error) {
	most := uintptr(len(events))
	if !s.coarse {
		var until *unix.Timespec
		if ns >= 0 {
			span := unix.NsecToTimespec(ns)
			until = &span
		}
		n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), most, uintptr(unsafe.Pointer(until)), 0, 0)
		if errno != syscall.ENOSYS && errno != syscall.EPERM { // EPERM is from seccomp filters that do not know it
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

// Poller is a Set for which Go's poller waits.
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
	// Go's poller wants non-blocking descriptors. Poll never blocks in any case.
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

// Run calls work whenever something may have become ready since the last call, until it returns
// true or the Poller is closed. work must go on until Poll returns 0: only later events call
// it again. While it runs, the set stays open, so its number is not another file's.
func (p *Poller) Run(work func() (done bool)) {
	_ = p.raw.Read(func(uintptr) bool { return work() })
}

// Close closes the set, not what is in it. It ends Run, once work returns.
func (p *Poller) Close() error { return p.file.Close() }

// WakeKey is the key of a Waker's events.
const WakeKey = -1

// Waker ends the wait of a set from another goroutine.
type Waker struct {
	file *os.File
	one  [8]byte // what is written
}

// NewWaker returns a waker of the set. It must be closed.
func (s *Set) NewWaker() (*Waker, error) {
	// It is a blocking one, so that Go's poller does not watch it. It never blocks, since
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

// Wake makes the set's Poll or Wait return an event with WakeKey: one for all calls since the
// last such event. Any goroutine may call it. After Close it does nothing.
func (w *Waker) Wake() { _, _ = w.file.Write(w.one[:]) }

// Close closes the waker.
func (w *Waker) Close() error { return w.file.Close() }
