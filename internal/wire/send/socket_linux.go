package send

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket reads and writes a non-blocking TCP or UNIX socket without allocating and without a
// copy: bytes with one sendmsg(2), files with sendfile(2). Package net has no sendfile for
// UNIX sockets. One goroutine may read while another one writes.
//
// It waits in Go's poller, so deadlines and Close of the net.Conn work as usual. System calls
// that cannot sleep on a non-blocking socket are raw: to tell the scheduler of each costs
// more than it gains.
type Socket struct {
	raw     syscall.RawConn
	stalled func()

	// Reading. The callbacks are bound once: a closure per call would be an
	// allocation per request.
	readable, gone func(fd uintptr) bool
	in             []byte
	inN            int
	inErr          error

	// Writing.
	writable, sendable func(fd uintptr) bool
	out                [2]unix.Iovec
	outN               int
	flags              uintptr
	left               int64
	file               descriptor
	off                int64
	outErr             syscall.Errno
	progress           bool
}

// NewSocket returns the socket of a TCP or UNIX connection, nil for any other. stalled is called
// when the peer takes no more for now, before waiting, if something was sent since the last
// call or the write has just begun. Set a deadline there.
func NewSocket(conn net.Conn, stalled func()) *Socket {
	raw := RawConn(conn)
	if raw == nil {
		return nil
	}
	s := &Socket{raw: raw, stalled: stalled}
	s.readable = s.readReady
	s.gone = func(fd uintptr) bool { return Gone(int(fd)) }
	s.writable, s.sendable = s.writeReady, s.sendfileReady
	return s
}

// Detach returns a duplicate of the descriptor of a TCP or UNIX connection, which the caller
// owns. Close the connection after it: then Go's poller does not watch the socket any more.
func Detach(conn net.Conn) (fd int, ok bool) {
	raw := RawConn(conn)
	if raw == nil {
		return 0, false
	}
	var failed error
	err := raw.Control(func(old uintptr) { fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, err == nil && failed == nil
}

// Read implements [io.Reader].
func (s *Socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in = p
	err := s.raw.Read(s.readable)
	s.in = nil
	switch {
	case err != nil:
		return 0, err
	case s.inErr != nil:
		return 0, s.inErr
	case s.inN == 0:
		return 0, io.EOF
	}
	return s.inN, nil
}

func (s *Socket) readReady(fd uintptr) (done bool) {
	s.inN, done, s.inErr = TryRead(fd, s.in)
	return done
}

// Readable calls f when there may be something to read, and again whenever more has come, until
// f returns true. The error is what ended the wait otherwise: a deadline, or Close. f must
// read until TryRead is not ok, as the poller is edge-triggered.
func (s *Socket) Readable(f func(fd uintptr) (done bool)) error { return s.raw.Read(f) }

// TryRead reads what has come, without waiting. ok is false if nothing has. At the end of the
// stream n is 0 and err nil.
func TryRead(fd uintptr, p []byte) (n int, ok bool, err error) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), true, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, false, nil
		default:
			return 0, true, os.NewSyscallError("read", errno)
		}
	}
}

// TryWrite sends as much of head and body as the peer takes now. head must not be empty.
func TryWrite(fd uintptr, head, body []byte) (n int, err error) {
	return tryWrite(fd, head, body, unix.MSG_NOSIGNAL)
}

// TryHead is TryWrite for the header of a file: its last packet waits to be filled with bytes
// of the file.
func TryHead(fd uintptr, head []byte) (n int, err error) {
	return tryWrite(fd, head, nil, unix.MSG_NOSIGNAL|unix.MSG_MORE)
}

func tryWrite(fd uintptr, head, body []byte, flags uintptr) (n int, err error) {
	for {
		var r uintptr
		var errno syscall.Errno
		if len(body) == 0 {
			r, _, errno = syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&head[0])),
				uintptr(len(head)), flags, 0, 0)
		} else {
			iov := [2]unix.Iovec{{Base: &head[0]}, {Base: &body[0]}}
			iov[0].SetLen(len(head))
			iov[1].SetLen(len(body))
			msg := unix.Msghdr{Iov: &iov[0]}
			msg.SetIovlen(len(iov))
			r, _, errno = syscall.RawSyscall(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&msg)), flags)
		}
		switch errno {
		case 0:
			return int(r), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, os.NewSyscallError("sendmsg", errno)
		}
	}
}

// TrySendFile sends as much of head, which must not be empty, and of n bytes of a file with a
// descriptor from off on as the peer takes now. Errors of the file are not returned: who
// sends its remaining bytes gets them. The caller must keep a reference to the file, which
// should be in the page cache: if not, this waits for the disk.
func TrySendFile(fd uintptr, head []byte, f *File, off, n int64) (nHead int, nFile int64, err error) {
	if nHead, err = TryHead(fd, head); err != nil || nHead < len(head) {
		return nHead, 0, err
	}
	nFile, _ = TryFile(fd, f, off, n)
	return nHead, nFile, nil
}

// TryFile sends as much of n bytes of a file with a descriptor from off on as the peer takes
// now. The caller must keep a reference to the file, which should be in the page cache: if
// not, this waits for the disk. The error is [ErrNeedsBlocking] if sendfile(2) does not take
// the file, or it has become shorter.
func TryFile(fd uintptr, f *File, off, n int64) (sent int64, err error) {
	for sent < n {
		// Raw, as it hardly ever sleeps. Otherwise the scheduler would give the
		// processor to another thread during the call, which costs more.
		r, _, errno := syscall.RawSyscall6(syscall.SYS_SENDFILE, fd, f.fd, uintptr(unsafe.Pointer(&off)), uintptr(n-sent), 0, 0)
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			return sent, nil
		case cannotSendfile(errno), errno == 0 && r == 0:
			return sent, ErrNeedsBlocking
		case errno != 0:
			return sent, os.NewSyscallError("sendfile", errno)
		default:
			sent += int64(r)
		}
	}
	return sent, nil
}

// probes is how many random places of a part InMemory checks besides its end. They are random
// since a check makes the system read ahead: with fixed places, a client that asks again
// and again would have just these in the page cache.
const probes = 3

// InMemory reports whether n bytes from off on are in the page cache, judged by the last and
// some random ones of them: files are read ahead in order. It returns false where the file
// system cannot tell.
func (f *File) InMemory(off, n int64) bool {
	if n <= 0 {
		return true
	}
	if !f.hasByte(off + n - 1) {
		return false
	}
	for range probes {
		if n > pageSize && !f.hasByte(off+rand.Int64N(n)) {
			return false
		}
	}
	return true
}

// pageSize is the least that is read from the disk at once.
const pageSize = 4 << 10

// hasByte reports whether a byte can be read without waiting.
func (f *File) hasByte(off int64) bool {
	var b [1]byte
	iov := unix.Iovec{Base: &b[0]}
	iov.SetLen(1)
	for {
		r, _, errno := syscall.RawSyscall6(unix.SYS_PREADV2, f.fd, uintptr(unsafe.Pointer(&iov)), 1, uintptr(off), uintptr(uint64(off)>>32), unix.RWF_NOWAIT)
		if errno != syscall.EINTR {
			return errno == 0 && r == 1
		}
	}
}

// AwaitGone is the function [AwaitGone] for this socket.
func (s *Socket) AwaitGone() error { return awaitGone(s.raw, s.gone) }

// Write sends head and then body, either of which may be empty, with as few
// calls as the peer's window allows. It returns the bytes sent.
func (s *Socket) Write(head, body []byte) (int64, error) { return s.write(head, body, 0) }

func (s *Socket) write(head, body []byte, flags uintptr) (int64, error) {
	total := int64(len(head) + len(body))
	if total == 0 {
		return 0, nil
	}
	s.outN = 0
	for _, b := range [2][]byte{head, body} {
		if len(b) > 0 {
			s.out[s.outN].Base = &b[0]
			s.out[s.outN].SetLen(len(b))
			s.outN++
		}
	}
	s.left, s.flags, s.outErr, s.progress = total, flags|unix.MSG_NOSIGNAL, 0, true
	err := s.raw.Write(s.writable)
	s.out = [2]unix.Iovec{} // let go of the bytes
	if err == nil && s.outErr != 0 {
		err = os.NewSyscallError("sendmsg", s.outErr)
	}
	return total - s.left, err
}

func (s *Socket) writeReady(fd uintptr) bool {
	for s.left > 0 {
		var n uintptr
		var errno syscall.Errno
		if s.outN == 1 {
			n, _, errno = syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(s.out[0].Base)),
				uintptr(s.out[0].Len), s.flags, 0, 0)
		} else {
			msg := unix.Msghdr{Iov: &s.out[0]}
			msg.SetIovlen(s.outN)
			n, _, errno = syscall.RawSyscall(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&msg)), s.flags)
		}
		switch errno {
		case 0:
			s.sent(int(n))
		case syscall.EINTR:
		case syscall.EAGAIN:
			s.noteStall()
			return false
		default:
			s.outErr = errno
			return true
		}
	}
	return true
}

// sent removes n bytes from the start of the vector.
func (s *Socket) sent(n int) {
	s.left -= int64(n)
	s.progress = true
	for n > 0 {
		first := &s.out[0]
		if size := int(first.Len); n >= size {
			n -= size
			s.out[0] = s.out[1]
			s.outN--
			continue
		}
		first.Base = (*byte)(unsafe.Add(unsafe.Pointer(first.Base), n))
		first.SetLen(int(first.Len) - n)
		return
	}
}

// noteStall calls stalled, once until there is progress.
func (s *Socket) noteStall() {
	if s.progress && s.stalled != nil {
		s.progress = false
		s.stalled()
	}
}

// Queued returns how many bytes that were written to a TCP or UNIX connection the peer has not
// taken. ok is false where the system cannot tell.
func Queued(conn net.Conn) (n int, ok bool) {
	ok = control(conn, func(fd int) { n, ok = QueuedOn(fd) }) && ok
	return n, ok
}

// Acked returns how many bytes the peer of a TCP connection has acknowledged since it began,
// those of TLS included. ok is false where the system cannot tell.
func Acked(conn net.Conn) (n uint64, ok bool) {
	ok = control(conn, func(fd int) { n, ok = AckedOn(fd) }) && ok
	return n, ok
}

// AckedOn is Acked for a descriptor.
func AckedOn(fd int) (n uint64, ok bool) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, false
	}
	return info.Bytes_acked, true
}

// control calls f with the descriptor below all wrappers of a connection, if there is one.
func control(conn net.Conn, f func(fd int)) bool {
	raw := rawBelow(conn)
	return raw != nil && raw.Control(func(fd uintptr) { f(int(fd)) }) == nil
}

// rawBelow returns the socket below all wrappers of a connection, nil if there is none.
func rawBelow(conn net.Conn) syscall.RawConn {
	for {
		c, wrapped := conn.(interface{ NetConn() net.Conn })
		if !wrapped {
			break
		}
		conn = c.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// QueuedOn is Queued for a descriptor.
func QueuedOn(fd int) (n int, ok bool) {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	return n, err == nil
}

// SendFile sends head and then the section by sendfile(2). By MSG_MORE the end of head shares a
// packet with the first bytes of the file. It returns how many bytes it has sent of each,
// and io.ErrUnexpectedEOF if the file has become shorter. The section must have a
// descriptor.
func (s *Socket) SendFile(head []byte, sec *Section) (nHead, nFile int64, err error) {
	if len(head) > 0 {
		flags := uintptr(unix.MSG_MORE)
		if sec.n == 0 {
			flags = 0 // nothing follows
		}
		if nHead, err = s.write(head, nil, flags); err != nil {
			return nHead, 0, err
		}
	}
	s.file, s.off, s.left = sec.desc, sec.off, sec.n
	s.outErr, s.progress = 0, true
	err = s.raw.Write(s.sendable)
	nFile = sec.n - s.left
	sec.off, sec.n, s.file = s.off, s.left, nil
	switch {
	case err != nil:
	case nFile == 0 && cannotSendfile(s.outErr):
		nFile, err = s.copyFile(sec)
	case s.outErr != 0:
		err = os.NewSyscallError("sendfile", s.outErr)
	case sec.n > 0:
		err = io.ErrUnexpectedEOF
	}
	return nHead, nFile, err
}

// cannotSendfile reports whether sendfile(2) does not take the file: some file systems have no
// sendfile, and some files no position.
func cannotSendfile(errno syscall.Errno) bool {
	switch errno {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ESPIPE:
		return true
	}
	return false
}

// copyFile sends the section by reading and writing it.
func (s *Socket) copyFile(sec *Section) (total int64, err error) {
	buf := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buf)
	for sec.n > 0 {
		n, err := sec.Read(buf[:])
		if err != nil {
			return total, err
		}
		sent, err := s.write(buf[:n], nil, 0)
		if total += sent; err != nil {
			return total, err
		}
	}
	return total, nil
}

// sendfileReady uses a Syscall of which the scheduler knows: for a page that is not in memory,
// sendfile waits for the disk.
func (s *Socket) sendfileReady(fd uintptr) bool {
	done := true
	ctl, err := s.file.SyscallConn()
	if err != nil {
		s.outErr = syscall.EBADF
		return true
	}
	err = ctl.Control(func(src uintptr) {
		for s.left > 0 {
			n, _, errno := syscall.Syscall6(syscall.SYS_SENDFILE, fd, src, uintptr(unsafe.Pointer(&s.off)),
				uintptr(min(s.left, chunk)), 0, 0)
			switch {
			case errno == syscall.EINTR:
			case errno == syscall.EAGAIN:
				s.noteStall()
				done = false
				return
			case errno != 0:
				s.outErr = errno
				return
			case n == 0: // the file ends before the section does
				return
			default:
				s.left -= int64(n)
				s.progress = true
			}
		}
	})
	if err != nil {
		s.outErr = syscall.EBADF
		return true
	}
	return done
}
