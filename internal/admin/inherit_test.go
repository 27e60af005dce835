//go:build unix

package admin

import (
	"os"
	"syscall"
	"testing"
)

// passed is the descriptor of an admin listener for a successor.
func passed(t *testing.T, a *Admin) *os.File {
	t.Helper()
	f, err := a.File()
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestFile: passing the socket on does not make it wait in the kernel.
func TestFile(t *testing.T) {
	a, _, _ := start(t, Options{Listen: "unix:" + shortDir(t) + "/a.sock"}, Deps{})
	f := passed(t, a)
	flags, _, e := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFL, 0)
	if e != 0 || flags&syscall.O_NONBLOCK == 0 {
		t.Errorf("flags %x, %v", flags, e)
	}
}
