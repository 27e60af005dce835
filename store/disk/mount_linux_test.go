package disk_test

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// runIsolated runs a child that may mount: as root of a user namespace of its
// own where this process is not root.
func runIsolated(t *testing.T) {
	t.Helper()
	c := child(t, t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Skipf("this system lets nobody mount here: %v", err)
	}
	err := c.Wait()
	if bytes.Contains(out.Bytes(), []byte("--- SKIP")) {
		t.Skipf("%s", out.Bytes())
	}
	if err != nil || !bytes.Contains(out.Bytes(), []byte("--- PASS")) {
		t.Errorf("child: %v\n%s", err, out.Bytes())
	}
}

func mountSmall(t *testing.T, dir string, size int) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", size)); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func limitFiles(t *testing.T, size uint64) {
	t.Helper()
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: size}); err != nil {
		t.Fatal(err)
	}
}
