package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openT(t testing.TB, pids ...int) *Target {
	t.Helper()
	target, err := Open(pids...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	return target
}

func readT(t testing.TB, target *Target) Reading {
	t.Helper()
	r, err := target.Read()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustGrow fails if a counter of a later reading is below that of an earlier.
func mustGrow(t *testing.T, before, after Reading) {
	t.Helper()
	if after.atLeast(before) != after {
		t.Errorf("a counter fell: %+v, then %+v", before, after)
	}
}

func TestCPU(t *testing.T) {
	h := start(t)
	h.do(t, "burn 300")
	target := openT(t, h.pid())
	first := readT(t, target)
	if first.CPU > 250*time.Millisecond {
		t.Errorf("CPU = %v right after Open: what was used before counts", first.CPU)
	}
	h.do(t, "burn 100")
	second := readT(t, target)
	mustGrow(t, first, second)
	used := second.Sub(first)
	if used.CPU < 100*time.Millisecond {
		t.Errorf("CPU = %v, want the 100 ms that were burned", used.CPU)
	}
	if split := used.User + used.System; split < 60*time.Millisecond {
		t.Errorf("User + System = %v, want nearly 100 ms", split)
	}
	if second.At.Before(first.At) || second.Processes != 1 {
		t.Errorf("reading = %+v", second)
	}
}

func TestGauges(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	first := readT(t, target)
	h.do(t, "open 50", "threads 7", "memory 32")
	second := readT(t, target)
	if n := second.Files - first.Files; n < 50 || n > 60 {
		t.Errorf("50 files more are %d", n)
	}
	if n := second.Threads; n < 8 {
		t.Errorf("Threads = %d, want 8 at least", n)
	}
	if n := second.RSS; n < first.RSS+24<<20 || n > 1<<30 {
		t.Errorf("RSS = %d, then %d, want 32 MB more", first.RSS, n)
	}
	if second.PSS != 0 {
		t.Error("Read reads PSS")
	}
	m, err := target.ReadMemory()
	if err != nil || m.PSS < 24<<20 || m.PSS > 1<<30 {
		t.Errorf("ReadMemory: PSS = %d, %v", m.PSS, err)
	}
	mustGrow(t, second, m)
}

func TestTransfers(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	before := readT(t, target)
	h.do(t, "read 100")
	r := readT(t, target).Sub(before)
	if r.ReadCalls < 100 || r.ReadCalls > 200 {
		t.Errorf("ReadCalls = %d, want 100 and a few", r.ReadCalls)
	}
	if r.ReadBytes < 100*4096 || r.ReadBytes > 150*4096 {
		t.Errorf("ReadBytes = %d, want 100 × 4096 and a few", r.ReadBytes)
	}
	if r.WriteCalls == 0 || r.WriteBytes == 0 {
		t.Errorf("the helper's answer is not a write: %+v", r)
	}
	h.do(t, "sendfile 10")
	if s := readT(t, target).Sub(r); s.ReadBytes < 1000 {
		t.Errorf("ReadBytes = %d: sendfile's are not counted, as the comment has it", s.ReadBytes)
	}
}

// TestSwitchesOfEndedThreads: the context switches of ended threads still count.
func TestSwitchesOfEndedThreads(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	last := readT(t, target)
	first := last
	for range 5 {
		h.do(t, "thread 1")
		r := readT(t, target)
		mustGrow(t, last, r)
		last = r
	}
	if last.Voluntary == first.Voluntary {
		t.Error("no context switch in five threads")
	}
}

func TestChildren(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	first := readT(t, target)
	child := h.number(t, "child")
	h.do(t, "tell burn 100")
	second := readT(t, target)
	if second.Processes != 2 {
		t.Errorf("Processes = %d with the child %d", second.Processes, child)
	}
	if used := second.Sub(first).CPU; used < 100*time.Millisecond {
		t.Errorf("CPU = %v, want the child's 100 ms", used)
	}
	grandchild, _ := strconv.Atoi(h.do(t, "tell child"))
	h.do(t, "tell tell burn 50")
	third := readT(t, target)
	if third.Processes != 3 || third.Sub(second).CPU < 50*time.Millisecond {
		t.Errorf("with the grandchild %d: %+v", grandchild, third.Sub(second))
	}
	// What it uses between the last reading and its end is not lost, as its
	// parent waits for it.
	h.do(t, "tell tell burn 60", "tell tell read 1000", "tell end", "end")
	fourth := readT(t, target)
	mustGrow(t, third, fourth)
	if fourth.Processes != 1 {
		t.Errorf("Processes = %d after the children's end", fourth.Processes)
	}
	if used := fourth.Sub(third); used.CPU < 30*time.Millisecond || used.ReadCalls < 1000 {
		t.Errorf("after the children's end %+v, want 60 ms less the ticks of both, and 1000 reads", used)
	}
	if whole := fourth.Sub(first); whole.CPU > 10*time.Second || whole.ReadCalls > 1900 {
		t.Errorf("what children used is counted twice: %+v", whole)
	}
}

// TestShortLived: a child that no reading saw counts through its parent.
func TestShortLived(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	first := readT(t, target)
	h.do(t, "child", "tell burn 60", "end")
	if used := readT(t, target).Sub(first).CPU; used < 40*time.Millisecond {
		t.Errorf("CPU = %v, want the child's 60 ms", used)
	}
}

// TestNotWaitedFor: a parent that ignores its children takes nothing over.
func TestNotWaitedFor(t *testing.T) {
	h := start(t)
	h.do(t, "ignore", "child")
	target := openT(t, h.pid())
	h.do(t, "tell burn 100", "tell read 1000")
	before := readT(t, target)
	h.do(t, "end")
	after := readT(t, target)
	mustGrow(t, before, after)
	if after.Processes != 1 {
		t.Errorf("Processes = %d", after.Processes)
	}
	h.do(t, "burn 50", "read 100")
	if more := readT(t, target).Sub(after); more.CPU < 50*time.Millisecond || more.ReadCalls < 100 {
		t.Errorf("what the parent used later is hidden by what the child had: %+v", more)
	}
}

// fifo is a path where a left child waits until the test ends.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	// Both ends: opening it never waits, and its end is when this closes.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return path
}

// TestOrphan: a child that outlives its parent stays in the target.
func TestOrphan(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	h.do(t, "burn 50")
	child := h.number(t, "leave "+fifo(t))
	before := readT(t, target)
	if before.Processes != 2 {
		t.Fatalf("Processes = %d with the child %d", before.Processes, child)
	}
	h.end()
	after := readT(t, target)
	mustGrow(t, before, after)
	if after.Processes != 1 {
		t.Errorf("Processes = %d, want the child alone", after.Processes)
	}
}

func TestEnded(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	h.do(t, "burn 50")
	before := readT(t, target)
	h.in.Close()
	for { // until it is dead, and not waited for yet
		s, err := readStat(h.pid(), new([]byte))
		if err != nil {
			t.Fatal(err)
		}
		if s.dead() {
			break
		}
		time.Sleep(time.Millisecond) // a poll, not a measurement
	}
	for range 2 {
		r, err := target.Read()
		if !errors.Is(err, ErrEnded) {
			t.Errorf("Read = %v, want ErrEnded", err)
		}
		mustGrow(t, before, r)
		if _, err := Open(h.pid()); err == nil {
			t.Error("a dead process can be watched")
		}
		h.end()
	}
}

func TestOpenFails(t *testing.T) {
	h := start(t)
	h.end()
	for name, pids := range map[string][]int{
		"none":    nil,
		"ended":   {h.pid()},
		"zero":    {0},
		"below":   {-1},
		"one bad": {os.Getpid(), h.pid()},
	} {
		if target, err := Open(pids...); err == nil {
			target.Close()
			t.Errorf("%s: Open succeeds", name)
		}
	}
	target := openT(t, os.Getpid(), os.Getpid())
	if r := readT(t, target); r.Processes < 1 {
		t.Errorf("reading = %+v", r)
	}
	for range 2 {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := target.Read(); err == nil {
		t.Error("a closed target is read")
	}
}

// TestFamilyTree is the way for kernels that list no children.
func TestFamilyTree(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	target.t.listed = false
	child := h.number(t, "child")
	h.do(t, "tell child")
	if r := readT(t, target); r.Processes != 3 {
		t.Errorf("Processes = %d, want those two and the child %d", r.Processes, child)
	}
}

// TestMissing: each kind of event is either counted or missing with a reason.
func TestMissing(t *testing.T) {
	h := start(t)
	target, err := OpenTraced(h.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	before := readT(t, target)
	h.do(t, "burn 20", "child", "tell sendfile 10", "sendfile 20", "read 100", "end")
	r := readT(t, target).Sub(before)
	missing := strings.Join(target.Missing(), "\n")
	t.Log(missing)
	for what, count := range map[string]struct{ got, least, most uint64 }{
		userInstructions.String():   {r.Instructions.User, 1e6, 1e12},
		kernelInstructions.String(): {r.Instructions.Kernel, 1e5, 1e12},
		systemCalls.String():        {r.Syscalls, 190, 1e6},
		sendfiles.String():          {r.Sendfiles, 30, 30},
	} {
		absent := strings.Contains(missing, what+": ") || strings.HasSuffix(what, "instructions") && strings.Contains(missing, "instructions: ")
		switch {
		case absent && count.got != 0:
			t.Errorf("%s are missing, and %d", what, count.got)
		case !absent && (count.got < count.least || count.got > count.most):
			t.Errorf("%s = %d, want %d to %d", what, count.got, count.least, count.most)
		}
	}
	ok, why := Counters()
	if ok != (why == "") || ok == strings.Contains(missing, userInstructions.String()) && !strings.Contains(missing, "instructions: ") {
		t.Errorf("Counters = %v, %q; missing are %q", ok, why, missing)
	}
}

// TestUntraced: Open slows no system call.
func TestUntraced(t *testing.T) {
	h := start(t)
	target := openT(t, h.pid())
	h.do(t, "sendfile 10")
	r := readT(t, target)
	missing := strings.Join(target.Missing(), "\n")
	if r.Syscalls != 0 || r.Sendfiles != 0 || !strings.Contains(missing, "system calls") || !strings.Contains(missing, "sendfile") {
		t.Errorf("reading = %+v, missing: %s", r, missing)
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		kind kind
		err  error
		want string
	}{
		{userInstructions, unix.ENOENT, "no hardware counters"},
		{kernelInstructions, unix.EOPNOTSUPP, "no hardware counters"},
		{userInstructions, unix.EACCES, "perf_event_paranoid=2"},
		{kernelInstructions, unix.EACCES, "perf_event_paranoid=1"},
		{systemCalls, unix.EACCES, "as root"},
		{systemCalls, unix.ENOENT, "no tracepoint"},
		{userInstructions, unix.ENOSYS, "counts no events"},
		{userInstructions, unix.EMFILE, "too many open files"},
	} {
		got := reason(c.kind, os.NewSyscallError("perf_event_open", c.err))
		if !strings.Contains(got, c.want) || !strings.Contains(got, "perf_event_open") && c.want != "too many" {
			t.Errorf("reason of %v for %v = %q, want %q", c.kind, c.err, got, c.want)
		}
	}
	same := shorten([]string{"user instructions: no", "kernel instructions: no", "else"})
	if want := []string{"instructions: no", "else"}; !slices.Equal(same, want) {
		t.Errorf("shorten = %q, want %q", same, want)
	}
	for _, differ := range [][]string{nil, {"user instructions: a", "kernel instructions: b"}, {"kernel instructions: no", "x"}} {
		if got := shorten(differ); !slices.Equal(got, differ) {
			t.Errorf("shorten(%q) = %q", differ, got)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range [][4]uint64{
		{100, 10, 10, 100},
		{100, 20, 10, 200},
		{100, 10, 0, 100}, // it never ran: nothing to scale
		{0, 0, 0, 0},
		{1 << 62, 1 << 40, 1 << 39, 1 << 63},
		{1 << 62, 1 << 62, 1, 1<<64 - 1},
	} {
		if got := scale(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("scale(%d, %d, %d) = %d, want %d", c[0], c[1], c[2], got, c[3])
		}
	}
}

func TestCountFiles(t *testing.T) {
	before, err := countFiles(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	after, err := countFiles(os.Getpid())
	if err != nil || after-before < 15 {
		t.Errorf("countFiles = %d, then %d, %v; want 20 more", before, after, err)
	}
}

func BenchmarkRead(b *testing.B) {
	h := start(b)
	for _, order := range []string{"child", "tell child", "tell tell child", "tell tell tell child"} {
		h.do(b, order)
	}
	target := openT(b, h.pid())
	for name, read := range map[string]func() (Reading, error){"Read": target.Read, "ReadMemory": target.ReadMemory} {
		b.Run(name, func(b *testing.B) {
			var r Reading
			for b.Loop() {
				var err error
				if r, err = read(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(r.Processes), "processes")
			b.ReportMetric(float64(r.Threads), "threads")
		})
	}
}

func ExampleTarget_Read() {
	target, err := Open(os.Getpid())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer target.Close()
	before, _ := target.Read()
	// … what is to be measured …
	after, _ := target.Read()
	fmt.Println(after.Sub(before).CPU >= 0, after.Processes > 0)
	// Output: true true
}
