package fastcgi

import "syscall"

// connect connects to a UNIX socket, if that can be done at once.
func connect(path string) (fd int, ok bool) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return noFD, false
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		closeFD(fd)
		return noFD, false
	}
	return fd, true
}

// write writes all of b, if that can be done at once.
func write(fd int, b []byte) bool {
	n, err := syscall.Write(fd, b)
	return err == nil && n == len(b)
}
