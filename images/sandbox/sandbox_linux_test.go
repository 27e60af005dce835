package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain makes the test binary a confined child when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childArg {
		var o attempt
		err := json.Unmarshal([]byte(os.Args[2]), &o)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(o.run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const childArg = "sandboxed-child-of-a-test"

// An attempt is what a child is to try.
type attempt struct {
	Needs  Needs
	Read   []string // files
	Dial   string   // a server that listens
	Server int      // a process
	Run    []string // a command
}

// A result is what came of it: errors by what was tried, empty where it worked.
type result struct {
	Report Report
	Errors map[string]string
	Said   string // by the command
	Failed bool
}

func (a attempt) run() result {
	r := result{Report: Enter(a.Needs), Errors: map[string]string{}}
	note := func(what string, err error) {
		if r.Errors[what] = ""; err != nil {
			r.Errors[what] = err.Error()
			if errors.Is(err, fs.ErrPermission) {
				r.Errors[what] = denied
			}
		}
	}
	// On as many threads as there are: what holds for one only shows.
	type read struct {
		name string
		err  error
	}
	done := make(chan read)
	for _, name := range a.Read {
		go func() {
			f, err := os.Open(name)
			if err == nil {
				f.Close()
			}
			done <- read{name, err}
		}()
	}
	for range a.Read {
		d := <-done
		note(d.name, d.err)
	}
	_, err := net.Dial("tcp", a.Dial)
	note("dial", err)
	buf := make([]byte, 8)
	_, err = unix.ProcessVMReadv(a.Server, []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	note("readv", err)
	note("ptrace", unix.PtraceAttach(a.Server))
	note("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	note("namespace", cmd.Start())
	note("write", os.WriteFile(filepath.Join(os.TempDir(), "sandbox-test"), nil, 0o600))
	if len(a.Run) > 0 {
		said, err := exec.Command(a.Run[0], a.Run[1:]...).CombinedOutput()
		r.Said, r.Failed = string(said), err != nil
	}
	return r
}

const denied = "denied"

// try runs an attempt in a child that is started in one of the ways.
func try(t *testing.T, a attempt, way *syscall.SysProcAttr) (r result, err error) {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(exe, childArg, string(text))
	rights := *way
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, os.Stderr, &rights
	if err := cmd.Run(); err != nil {
		return r, err
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}

// TestEnter: what is forbidden fails, on every thread, however the child was
// started; what is needed works.
func TestEnter(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	a := attempt{
		Needs: Needs{Network: NetworkID(), Programs: []string{"/bin/echo"}},
		Read:  []string{self + "environ", self + "mem", self + "maps", "/etc/passwd", "/", os.TempDir(), "/proc/self/environ"},
		Dial:  listener.Addr().String(), Server: os.Getpid(), Run: []string{"/bin/echo", "hello"},
	}
	for i, way := range Namespaces() {
		r, err := try(t, a, way)
		if Refused(err) {
			t.Logf("way %d is not allowed here: %v", i, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("way %d: in force: %s; not: %s", i, r.Report.InForce(), r.Report.Missing())
		if got := r.Report.Has(Network); got != (way.Cloneflags != 0) {
			t.Errorf("way %d: a network of its own: %t", i, got)
		}
		forbid := map[string][]string{
			Sockets: {"dial"}, Peeking: {"readv", "ptrace", "unshare", "namespace"}, Files: append(a.Read, "write"),
		}
		for measure, what := range forbid {
			for _, w := range what {
				if r.Report.Has(measure) && r.Errors[w] != denied {
					t.Errorf("way %d: %s: %q", i, w, r.Errors[w])
				}
			}
		}
		if r.Failed || strings.TrimSpace(r.Said) != "hello" {
			t.Errorf("way %d: a command that is needed: %q", i, r.Said)
		}
	}
}

// TestNoPrograms: where no command is needed none can be started.
func TestNoPrograms(t *testing.T) {
	r, err := try(t, attempt{Run: []string{"/bin/echo", "hello"}}, &syscall.SysProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Report.Has(Files) {
		t.Skip(r.Report.Missing())
	}
	if !r.Failed {
		t.Errorf("it ran: %q", r.Said)
	}
}

// TestKernel: on the kernels that we test with, everything is in force.
func TestKernel(t *testing.T) {
	if _, err := os.Stat("/proc/self/ns/net"); err != nil {
		t.Skip("no /proc")
	}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	r, err := try(t, attempt{}, &syscall.SysProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Privileges, NoCaps, Sockets, Peeking} {
		if !r.Report.Has(name) {
			t.Errorf("%s is not in force: %s", name, r.Report.Missing())
		}
	}
	if errno == 0 && !r.Report.Has(Files) {
		t.Errorf("Landlock %d is there, but not in force: %s", abi, r.Report.Missing())
	}
}

// TestConceal: a process that has concealed itself says so, but not one whose
// core file was asked for.
func TestConceal(t *testing.T) {
	if m := Conceal(); m != (Measure{Name: Concealed}) {
		t.Errorf("%+v", m)
	}
	if on, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); on != 0 || err != nil {
		t.Errorf("dumpable is %d, %v", on, err)
	}
	t.Setenv("GOTRACEBACK", "crash")
	if m := Conceal(); m.Why == "" {
		t.Errorf("%+v", m)
	}
}
