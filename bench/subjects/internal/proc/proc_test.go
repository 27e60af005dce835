package proc

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const tail = " S 41 7 7 0 -1 4194560 99 0 0 0 250 1300 5 6 20 0 1 0 100 200 300\n"
	want := stat{parent: 41, user: 2500 * time.Millisecond, kernel: 13 * time.Second}
	for _, name := range []string{"(nginx)", "(a) b) (c)", "(two words)", "()"} {
		got, err := parseStat("7 " + name + tail)
		if err != nil || got != want {
			t.Errorf("parseStat with the name %s = %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, bad := range []string{"", "7 nginx S 1", "7 (nginx) S 1 2 3", "7 (nginx) S x 7 7 0 -1 4194560 99 0 0 0 1 1"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", bad, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (nginx) S 41 7 7 0 -1 4194560 99 0 0 0 250 1300 5 6")
	f.Add(")")
	f.Fuzz(func(t *testing.T, line string) {
		parseStat(line) // must not panic
	})
}

func TestParseRollup(t *testing.T) {
	const text = "00400000-7ffe [rollup]\nRss:  1732 kB\nPss:   392 kB\nPss_Dirty: 116 kB\n"
	got, err := parseRollup(text)
	if want := (Memory{RSS: 1732 << 10, PSS: 392 << 10}); err != nil || got != want {
		t.Errorf("parseRollup = %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "Rss: 1 kB\n", "Rss: 1 kB\nPss: -4 kB\n", "Rss: 1 MB\nPss: 2 MB\n"} {
		if got, err := parseRollup(bad); err == nil {
			t.Errorf("parseRollup(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseLoad(t *testing.T) {
	got, err := parseLoad("cpu  100 10 50 9000 70 3 4 200 100 0\ncpu0 1 2 3\n")
	want := Load{Busy: 1670 * time.Millisecond, Steal: 2 * time.Second}
	if err != nil || got != want {
		t.Errorf("parseLoad = %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu 1 2 3 x 5 6 7 8"} {
		if got, err := parseLoad(bad); err == nil {
			t.Errorf("parseLoad(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestCPUModel(t *testing.T) {
	if got := cpuModel("processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz: fast\n"); got != "Some CPU @ 2.0GHz: fast" {
		t.Errorf("cpuModel = %q", got)
	}
	if cpuModel("Features : fp\n") == "" {
		t.Error("a machine without a model name has no name at all")
	}
}

// TestCPUOfAnotherProcess lets a child spin until its clock has moved; the
// clock of one that waits stands still.
func TestCPUOfAnotherProcess(t *testing.T) {
	spinning := start(t, "while :; do :; done")
	waiting := start(t, "read line")
	before := readCPU(t, waiting)
	deadline := time.Now().Add(30 * time.Second)
	for readCPU(t, spinning).Total < 20*time.Millisecond {
		if time.Now().After(deadline) {
			t.Fatal("the CPU clock of a spinning process stands still")
		}
		time.Sleep(time.Millisecond) // a poll, not a measurement
	}
	if used := readCPU(t, waiting).Sub(before).Total; used > 15*time.Millisecond {
		t.Errorf("a waiting process used %v", used)
	}
	if m, err := ReadMemory([]int{spinning}); err != nil || m.RSS == 0 || m.PSS > m.RSS {
		t.Errorf("ReadMemory = %+v, %v", m, err)
	}
}

func TestFamily(t *testing.T) {
	child := start(t, "read line")
	family, err := Family(os.Getpid())
	if err != nil || !slices.Contains(family, child) || !slices.Contains(family, os.Getpid()) {
		t.Errorf("Family = %v, %v; want it to hold %d and %d", family, err, os.Getpid(), child)
	}
	if family, err := Family(child); err != nil || !slices.Equal(family, []int{child}) {
		t.Errorf("Family of a childless process = %v, %v", family, err)
	}
}

func TestGoneProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 0")
	if err := cmd.Run(); err != nil {
		t.Skip("no sh:", err)
	}
	if _, err := ReadCPU([]int{cmd.Process.Pid}); err == nil {
		t.Error("ReadCPU of a process that ended has no error")
	}
	if _, err := ReadMemory([]int{cmd.Process.Pid}); err == nil {
		t.Error("ReadMemory of a process that ended has no error")
	}
}

func TestThisMachine(t *testing.T) {
	m, err := ThisMachine()
	if err != nil || m.CPU == "" || m.Cores < 1 || m.Kernel == "" || m.Memory == 0 {
		t.Errorf("ThisMachine = %+v, %v", m, err)
	}
}

// start runs a shell script until the test ends and gives its pid.
func start(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	stdin, err := cmd.StdinPipe() // stays open, so that "read" waits
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no sh:", err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

func readCPU(t *testing.T, pid int) CPU {
	t.Helper()
	cpu, err := ReadCPU([]int{pid})
	if err != nil {
		t.Fatal(err)
	}
	return cpu
}
