package record

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestListening(t *testing.T) {
	h := start(t)
	address := h.do(t, "listen 127.0.0.1:0")
	wild := h.do(t, "listen 0.0.0.0:0")
	_, port, _ := net.SplitHostPort(wild)
	for _, a := range []string{address, "127.0.0.1:" + port, "127.0.0.7:" + port} {
		if pids, err := Listening(a); err != nil || !slices.Equal(pids, []int{h.pid()}) {
			t.Errorf("Listening(%s) = %d, %v; want %d", a, pids, err, h.pid())
		}
	}
	child := h.number(t, "share "+fifo(t))
	pids, err := Listening(address)
	if err != nil || !slices.Equal(pids, []int{h.pid(), child}) {
		t.Errorf("Listening = %d, %v; want %d and its child %d", pids, err, h.pid(), child)
	}
	if r := readT(t, openT(t, pids...)); r.Processes != 2 {
		t.Errorf("Processes = %d, want both once", r.Processes)
	}
	found, err := Addresses(h.pid())
	if err != nil || len(found) != 2 || found[0] != address || !strings.HasSuffix(found[1], ":"+port) {
		t.Errorf("Addresses = %q, %v; want %s and port %s", found, err, address, port)
	}
}

func TestListeningUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if pids, err := Listening("unix:" + path); err != nil || !slices.Equal(pids, []int{os.Getpid()}) {
		t.Errorf("Listening = %d, %v; want %d", pids, err, os.Getpid())
	}
	if found, err := Addresses(os.Getpid()); err != nil || !slices.Contains(found, "unix:"+path) {
		t.Errorf("Addresses = %q, %v", found, err)
	}
	l.Close()
	if pids, err := Listening("unix:" + path); err == nil || !strings.Contains(err.Error(), "start the server") {
		t.Errorf("Listening where nobody is = %d, %v", pids, err)
	}
	for _, bad := range []string{"", "nonsense", "127.0.0.1:x"} {
		if pids, err := Listening(bad); err == nil {
			t.Errorf("Listening(%q) = %d", bad, pids)
		}
	}
}

func TestGroup(t *testing.T) {
	h := start(t)
	s, err := readStat(h.pid(), new([]byte))
	if err != nil {
		t.Fatal(err)
	}
	pids, err := Group(s.Group)
	if err != nil || !slices.Contains(pids, h.pid()) || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("Group(%d) = %d, %v; want %d in it and its parent", s.Group, pids, err, h.pid())
	}
	if pids, err := Group(1 << 30); err != nil || len(pids) != 0 {
		t.Errorf("Group of nobody = %d, %v", pids, err)
	}
}

func TestThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, err := OpenThread()
	if err != nil {
		t.Fatal(err)
	}
	defer thread.Close()
	var sum time.Duration
	var last uint64
	for x := 1; sum < 30*time.Millisecond; {
		for range 10000 {
			x = x*7 + 1
		}
		user, system, instructions, err := thread.Read()
		if err != nil {
			t.Fatal(err)
		}
		if user+system < sum || instructions < last {
			t.Fatalf("a counter fell: %v + %v after %v, %d after %d", user, system, sum, instructions, last)
		}
		sum, last = user+system, instructions
	}
	if ok, why := Counters(); ok && last < 1e6 {
		t.Errorf("%d instructions in %v", last, sum)
	} else if !ok && (last != 0 || why == "") {
		t.Errorf("%d instructions without counters (%q)", last, why)
	}
	other := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, _, _, err := thread.Read()
		other <- err
	}()
	if err := <-other; err == nil {
		t.Error("another thread reads what this one used")
	}
	for range 2 {
		if err := thread.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadSystem(t *testing.T) {
	first, err := ReadSystem()
	if err != nil {
		t.Fatal(err)
	}
	second, err := ReadSystem()
	if err != nil || second.Total < first.Total || second.At.Before(first.At) {
		t.Errorf("ReadSystem = %+v, then %+v, %v", first, second, err)
	}
	if first.Total <= 0 || first.Idle > first.Total || first.Load1 < 0 {
		t.Errorf("ReadSystem = %+v", first)
	}
}

func TestReadMachine(t *testing.T) {
	m := ReadMachine()
	if m.CPU == "" || m.Cores < 1 || m.Memory < 1<<20 || !strings.HasPrefix(m.Kernel, "Linux ") || m.Go != runtime.Version() {
		t.Errorf("ReadMachine = %+v", m)
	}
	if ok, _ := Counters(); ok != m.Counters {
		t.Errorf("Counters is %v in one and %v in the other", ok, m.Counters)
	}
}

// TestReadFile reads a file longer than its buffer, and one without end.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long")
	want := strings.Repeat("0123456789", 1000)
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	var buf []byte
	for range 2 {
		if got, err := readFile(path, &buf); err != nil || string(got) != want {
			t.Errorf("readFile gives %d bytes of %d, %v", len(got), len(want), err)
		}
	}
	if got, err := readFile("/dev/zero", &buf); err == nil {
		t.Errorf("readFile of an endless file gives %d bytes", len(got))
	}
	if _, err := readFile(filepath.Join("/proc", strconv.Itoa(1<<30), "stat"), &buf); !gone(err) {
		t.Errorf("readFile of a process that is not there: %v", err)
	}
}
