//go:build unix

package server

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFiles: passing the sockets on leaves them as they are, so that no accept
// waits in the kernel, where nobody could end it.
func TestFiles(t *testing.T) {
	r := start(t, plan{})
	files, err := r.srv.Files()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 { // TCP, TLS, UNIX
		t.Errorf("%d sockets", len(files))
	}
	for _, f := range files {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0) // as exec does
		if err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("flags %x, %v", flags, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	r.srv.Close()
	if _, err := os.Lstat(r.unix); err != nil {
		t.Error("the other process's path is gone")
	}
}

// TestFilesBack: a path that the other process has given back is removed at the end.
func TestFilesBack(t *testing.T) {
	r := start(t, plan{})
	files, err := r.srv.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		_ = f.Close()
	}
	r.srv.ReclaimPaths()
	r.srv.Close()
	if _, err := os.Lstat(r.unix); err == nil {
		t.Error("the path stays")
	}
}
