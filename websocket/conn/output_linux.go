package conn

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writeChunks is how many waiting chunks go into one sendmsg.
const writeChunks = 16

// writeTo writes the next chunks with one sendmsg.
func (o *output) writeTo(fd int) (int, error) {
	var list [writeChunks]unix.Iovec
	n := 0
	for i := o.first; i < len(o.chunks) && n < writeChunks; i++ {
		b := o.chunks[i].b
		if i == o.first {
			b = b[o.skip:]
		}
		if len(b) == 0 {
			continue
		}
		list[n].Base = &b[0]
		list[n].SetLen(len(b))
		n++
	}
	message := unix.Msghdr{Iov: &list[0]}
	message.SetIovlen(n)
	for {
		r, _, errno := syscall.RawSyscall(syscall.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&message)), unix.MSG_NOSIGNAL)
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
