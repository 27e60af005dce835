//go:build unix && (!linux || race)

package upstream

import "syscall"

func rawRead(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

func rawWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

func rawPeek(fd uintptr, b []byte) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}
