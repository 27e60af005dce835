//go:build unix

package admin

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"millrace/internal/observe/meter"
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

// TestInherit: until a successor serves, the paths are its predecessor's.
func TestInherit(t *testing.T) {
	dir := shortDir(t)
	old := Options{Listen: "unix:" + dir + "/a.sock"}
	a, _, _ := start(t, old, Deps{})
	there := func(name string) bool {
		_, err := os.Lstat(dir + "/" + name)
		return err == nil
	}
	next := func(o Options) *Admin {
		t.Helper()
		n, err := New(o, Deps{Meters: meter.New(), Inherited: passed(t, a)})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, o := range []Options{old, {}, {Listen: "unix:" + dir + "/b.sock"}} { // they fail before they serve
		if err := next(o).Close(); err != nil {
			t.Error(err)
		}
		if !there("a.sock") {
			t.Fatalf("%v: the socket of who serves is gone", o)
		}
	}
	n := next(Options{Listen: "unix:" + dir + "/b.sock"})
	served := make(chan error, 1)
	go func() { served <- n.Serve() }()
	for begun := time.Now(); there("a.sock"); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("a socket at which nobody listens stays")
		}
	}
	if err := errors.Join(n.Close(), <-served); err != nil {
		t.Error(err)
	}
	if there("b.sock") {
		t.Error("it stays behind")
	}
}

// TestTakeBack: the path belongs to who has the socket.
func TestTakeBack(t *testing.T) {
	for _, failed := range []bool{false, true} {
		path := shortDir(t) + "/a.sock"
		a, err := New(Options{Listen: "unix:" + path}, Deps{Meters: meter.New()})
		if err != nil {
			t.Fatal(err)
		}
		_ = passed(t, a)
		if failed {
			a.TakeBack()
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); (err != nil) != failed {
			t.Errorf("failed: %v; the path: %v", failed, err)
		}
	}
}
