package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside has the test binary enter a sandbox in which its folder "site" may be
// read and "store" written, and try things there.
const inside = "CONFINE_TEST_FOLDER"

func TestMain(m *testing.M) {
	top := os.Getenv(inside)
	if top == "" {
		os.Exit(m.Run())
	}
	if err := child(top); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// rulesFor has /proc, as servers do: what shows another process's memory is out of
// reach all the same.
func rulesFor(top string) []Rule {
	self, _ := os.Executable()
	rules := []Rule{
		{Path: filepath.Join(top, "site"), Access: Read},
		{Path: filepath.Join(top, "store"), Access: Write},
		{Path: filepath.Join(top, "run"), Access: Socket},
		{Path: filepath.Join(top, "missing"), Access: Read},
		{Path: filepath.Join(top, "site/file"), Access: Socket}, // nothing of that is for a file
		{Path: self, Access: Execute},
		{Path: "/proc", Access: Read},
		{Path: os.DevNull, Access: Write},
	}
	if loader := Loader(self); loader != "" {
		rules = append(rules, Rule{Path: loader, Access: Execute}, Rule{Path: "/lib", Access: Read}, Rule{Path: "/usr/lib", Access: Read}, Rule{Path: "/etc/ld.so.cache", Access: Read})
	}
	return rules
}

func child(top string) error {
	d, own, err := Inherited()
	if err != nil {
		return err
	}
	if d == nil {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		fmt.Fprint(w, "handed over")
		_ = w.Close()
		return Enter(rulesFor(top), r, "EXTRA=1")
	}
	text := make([]byte, 100)
	if n, err := own.Read(text); string(text[:n]) != "handed over" || os.Getenv("EXTRA") != "1" || os.Getenv(variable) != "" {
		return fmt.Errorf("%q: %w", text[:n], errors.Join(err, errors.New("not what was handed over")))
	}
	return errors.Join(tries(d, top)...)
}

// tries are what works, and what does not. The number of the process is that from
// before; every thread is in the same domain.
func tries(d *Domain, top string) (faults []error) {
	want := func(what string, err error, denied bool) {
		if errors.Is(err, fs.ErrPermission) != denied || err != nil && !denied {
			faults = append(faults, fmt.Errorf("%s: %v", what, err)) //nolint:errorlint // only told
		}
	}
	at := func(name string) string { return filepath.Join(top, name) }
	read := func(name string) error { _, err := os.ReadFile(name); return err }
	want("reading the site", read(at("site/file")), false)
	want("reading beside it", read(at("secret")), true)
	want("a link that leads out", read(at("site/link")), true)
	want("/etc/passwd", read("/etc/passwd"), true)
	want("writing into the site", os.WriteFile(at("site/new"), nil, 0o600), true)
	want("truncating in the site", os.Truncate(at("site/file"), 0), d.Version >= truncates)
	want("writing into the store", os.WriteFile(at("store/a"), []byte("x"), 0o600), false)
	want("a folder in the store", os.Mkdir(at("store/dir"), 0o700), false)
	want("moving between folders", os.Rename(at("store/a"), at("store/dir/b")), false)
	want("a link in the store", os.Symlink("/etc/passwd", at("store/link")), true)
	want("removing", os.RemoveAll(at("store/dir")), false)
	want("a file where sockets are", os.WriteFile(at("run/file"), nil, 0o600), true)
	ln, err := net.Listen("unix", at("run/s"))
	want("a socket", err, false)
	if err == nil {
		_ = ln.Close()
	}
	want("a program", exec.Command("/bin/true").Run(), true)
	want("tracing who is outside", unix.PtraceAttach(os.Getppid()), true)
	want("the memory of who is outside", read(fmt.Sprintf("/proc/%d/environ", os.Getppid())), true)
	want("signals to who is outside", syscall.Kill(os.Getppid(), 0), d.Scoped)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	want("looking at capabilities", unix.Capget(&header, &sets[0]), false)
	for _, all := range []uint32{sets[0].Effective, sets[0].Permitted, sets[0].Inheritable} {
		if all&(1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_SYS_PTRACE) != 0 {
			faults = append(faults, fmt.Errorf("the process still has the capabilities %x", all))
		}
	}
	return append(faults, onThreads(at)...)
}

// onThreads tries on many threads at once.
func onThreads(at func(string) string) (faults []error) {
	const many = 20
	var all, up sync.WaitGroup
	var mu sync.Mutex
	up.Add(many)
	for range many {
		all.Go(func() {
			runtime.LockOSThread()
			up.Done()
			up.Wait() // so each has one of its own
			cmd := exec.Command(Running, "-test.run=^$")
			cmd.Env = []string{}
			err := cmd.Start()
			if err == nil {
				err = errors.Join(cmd.Process.Signal(syscall.Signal(0)), cmd.Wait())
			}
			if _, denied := os.Open(at("secret")); !errors.Is(denied, fs.ErrPermission) || err != nil {
				mu.Lock()
				faults = append(faults, fmt.Errorf("on a thread: %w, %w", denied, err))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return faults
}

func layOut(t testing.TB) string {
	t.Helper()
	if err := Possible(); err != nil {
		t.Skip(err)
	}
	top := t.TempDir()
	for _, dir := range []string{"site", "store", "run"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"site/file", "secret"} {
		if err := os.WriteFile(filepath.Join(top, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(top, "site/link")); err != nil {
		t.Fatal(err)
	}
	return top
}

func TestEnter(t *testing.T) {
	top := layOut(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), inside+"="+top)
	if os.Getuid() == 0 { // has them inheritable, as in some containers
		cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInherited: nobody believes to be in a sandbox because of a variable.
func TestInherited(t *testing.T) {
	if d, own, err := Inherited(); d != nil || own != nil || err != nil {
		t.Error(d, own, err)
	}
	told, err := domainFile(&Domain{Version: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	for _, text := range []string{"x", "0/0", "9999/0", "-1", fmt.Sprintf("%d/0", told.Fd())} {
		t.Setenv(variable, text)
		if d, _, err := Inherited(); d != nil || err == nil || !strings.Contains(err.Error(), "unset it") {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
}

func TestHandled(t *testing.T) {
	if handled(2)&(1<<14) != 0 || handled(3)&(1<<14) == 0 || handled(4)&(1<<15) != 0 || handled(99) != 1<<16-1 {
		t.Error("rights that a version does not know make the kernel refuse the rules")
	}
	if rights(Write)&rights(Execute)&^rights(Read) != 0 {
		t.Error("what can be written could be executed")
	}
	if !slices.Equal(overlaid([]string{"HOME=/x"})[len(os.Environ())-1:], []string{"HOME=/x"}) {
		t.Error("a variable is not the last word")
	}
}

// BenchmarkOpen is what a file costs that is four folders down: with
// CONFINE_BENCH=1 in a sandbox of 40 rules.
func BenchmarkOpen(b *testing.B) {
	top := layOut(b)
	dir := filepath.Join(top, "site/a/b/c")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	open := func(b *testing.B, name string) {
		for b.Loop() {
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			_ = unix.Close(fd)
		}
	}
	b.Run("free", func(b *testing.B) { open(b, file) })
	rules := []Rule{{Path: filepath.Join(top, "site"), Access: Read}}
	for i := range 39 {
		name := filepath.Join(top, fmt.Sprint("other", i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		rules = append(rules, Rule{Path: name, Access: Read})
	}
	set, err := ruleset(&Domain{Version: Version()}, rules)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("confined", func(b *testing.B) {
		done := make(chan struct{})
		go func() { // ends with its thread, which nobody else may have afterwards
			defer close(done)
			runtime.LockOSThread()
			if err := restrict(set); err != nil {
				b.Error(err)
				return
			}
			open(b, file)
		}()
		<-done
	})
}
