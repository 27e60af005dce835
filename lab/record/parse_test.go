package record

import (
	"strings"
	"testing"
	"time"
)

const statTail = " S 41 7 7 0 -1 4194560 99 0 0 0 250 1300 5 6 20 0 3 0 777 123456 345 18446744073709551615 1 1\n"

func TestParseStat(t *testing.T) {
	want := stat{
		State: 'S', Parent: 41, Group: 7, User: 2500 * time.Millisecond, System: 13 * time.Second,
		Waited: 50 * time.Millisecond, WaitedS: 60 * time.Millisecond, Threads: 3, Start: 777, RSS: 345,
	}
	for _, name := range []string{"(nginx)", "(a) b) (c)", "(two words)", "()", "(a\nb) R 1 2 3)"} {
		got, err := parseStat([]byte("7 " + name + statTail))
		if err != nil || got != want {
			t.Errorf("parseStat with the name %q = %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, bad := range []string{
		"", "7 nginx S 1", "7 (nginx) S 1 2 3", "7 (nginx)",
		"7 (nginx)" + strings.Replace(statTail, "41", "x", 1),
		"7 (nginx)" + strings.Replace(statTail, " 345 ", " 99999999999999999999 ", 1),
	} {
		if got, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestDead(t *testing.T) {
	for s, want := range map[stat]bool{
		{State: 'S', Threads: 1}: false,
		{State: 'Z', Threads: 1}: true,
		{State: 'X'}:             true,
		{State: 'Z', Threads: 2}: false, // its first thread alone has ended
	} {
		if s.dead() != want {
			t.Errorf("dead of %c with %d threads is not %v", s.State, s.Threads, want)
		}
	}
}

const statusText = "Name:\tvoluntary_ctxt_switches: 9\nState:\tS (sleeping)\nSigIgn:\t0000000000011000\n" +
	"voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"

func TestParseSwitches(t *testing.T) {
	got, err := parseSwitches([]byte(statusText))
	if want := (switches{150, 545}); err != nil || got != want {
		t.Errorf("parseSwitches = %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "voluntary_ctxt_switches:\t1\n", "voluntary_ctxt_switches:\nnonvoluntary_ctxt_switches: 1\n", "voluntary_ctxt_switches: -1\nnonvoluntary_ctxt_switches: 1\n"} {
		if got, err := parseSwitches([]byte(bad)); err == nil {
			t.Errorf("parseSwitches(%q) = %+v, want an error", bad, got)
		}
	}
	mask, err := parseIgnored([]byte(statusText))
	if err != nil || mask != 0x11000 {
		t.Errorf("parseIgnored = %x, %v", mask, err)
	}
	if _, err := parseIgnored([]byte("Name: x\n")); err == nil {
		t.Error("parseIgnored of nothing has no error")
	}
}

func TestParseIO(t *testing.T) {
	got, err := parseIO([]byte("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"))
	if want := (transfers{readCalls: 3, writeCalls: 4, readBytes: 1, writeBytes: 2}); err != nil || got != want {
		t.Errorf("parseIO = %+v, %v; want %+v", got, err, want)
	}
	if _, err := parseIO([]byte("rchar: 1\nwchar: 2\nsyscr: 3\n")); err == nil {
		t.Error("parseIO of half a file has no error")
	}
}

func TestParseRollup(t *testing.T) {
	rss, pss, err := parseRollup([]byte("00400000-7ffe ---p 00000000 00:00 0 [rollup]\nRss:    1732 kB\nPss:     392 kB\nPss_Dirty: 116 kB\n"))
	if err != nil || rss != 1732<<10 || pss != 392<<10 {
		t.Errorf("parseRollup = %d, %d, %v", rss, pss, err)
	}
	for _, bad := range []string{"", "Rss: 1 kB\n", "Rss: 1 kB\nPss: -4 kB\n", "Rss: 1 kB\nPss: 18446744073709551615 kB\n"} {
		if _, _, err := parseRollup([]byte(bad)); err == nil {
			t.Errorf("parseRollup(%q) has no error", bad)
		}
	}
}

func TestParseMachine(t *testing.T) {
	s, err := parseSystem([]byte("cpu  100 10 50 9000 70 3 4 200 100 0\ncpu0 1 2 3\n"))
	if want := (System{Total: 94370 * time.Millisecond, Idle: 90700 * time.Millisecond, Steal: 2 * time.Second}); err != nil || s != want {
		t.Errorf("parseSystem = %+v, %v; want %+v", s, err, want)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu 1 2 3 x 5 6 7 8"} {
		if s, err := parseSystem([]byte(bad)); err == nil {
			t.Errorf("parseSystem(%q) = %+v, want an error", bad, s)
		}
	}
	if l, err := parseLoad([]byte("0.75 1.00 2.00 1/99 1234\n")); err != nil || l != 0.75 {
		t.Errorf("parseLoad = %v, %v", l, err)
	}
	if got := parseModel([]byte("processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz: fast\n")); got != "Some CPU @ 2.0GHz: fast" {
		t.Errorf("parseModel = %q", got)
	}
	if m, err := parseMemory([]byte("MemTotal:   2048 kB\nMemFree: 1 kB\n")); err != nil || m != 2<<20 {
		t.Errorf("parseMemory = %d, %v", m, err)
	}
}

func TestSub(t *testing.T) {
	earlier := Reading{CPU: 5, User: 1, System: 2, Instructions: Instructions{10, 20}, Voluntary: 1, Involuntary: 2, Syscalls: 3, ReadCalls: 4, WriteCalls: 5, Sendfiles: 6, ReadBytes: 7, WriteBytes: 8, RSS: 100, Threads: 3}
	later := Reading{CPU: 15, User: 2, System: 4, Instructions: Instructions{13, 24}, Voluntary: 6, Involuntary: 8, Syscalls: 10, ReadCalls: 12, WriteCalls: 14, Sendfiles: 16, ReadBytes: 18, WriteBytes: 20, RSS: 50, Threads: 2}
	want := Reading{CPU: 10, User: 1, System: 2, Instructions: Instructions{3, 4}, Voluntary: 5, Involuntary: 6, Syscalls: 7, ReadCalls: 8, WriteCalls: 9, Sendfiles: 10, ReadBytes: 11, WriteBytes: 12, RSS: 50, Threads: 2}
	if got := later.Sub(earlier); got != want {
		t.Errorf("Sub = %+v, want %+v", got, want)
	}
	if got := earlier.Sub(later); got != (Reading{RSS: 100, Threads: 3}) {
		t.Errorf("Sub of a later reading = %+v, want no counter", got)
	}
	if got := earlier.atLeast(later); got.Sub(later) != (Reading{RSS: 100, Threads: 3}) || got.CPU != 15 {
		t.Errorf("atLeast = %+v", got)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (nginx)" + statTail))
	f.Add([]byte("7 (a) b) (c)" + statTail))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseStat(text)
		if err == nil && (s.User < 0 || s.System < 0 || s.Waited < 0 || s.WaitedS < 0 || s.RSS < 0) {
			t.Errorf("parseStat(%q) = %+v: below 0", text, s)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(statusText))
	f.Add([]byte("voluntary_ctxt_switches"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseSwitches(text); err != nil && s.involuntary != 0 {
			t.Errorf("parseSwitches(%q) = %+v and %v", text, s, err)
		}
		if _, err := parseIgnored(text); err == nil && !strings.Contains(string(text), "SigIgn:") {
			t.Errorf("parseIgnored(%q) finds a mask", text)
		}
	})
}

func FuzzParseIO(f *testing.F) {
	f.Add([]byte("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n"))
	f.Add([]byte("rchar:\nwchar"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := parseIO(text); err == nil && strings.Count(string(text), ":") < 4 {
			t.Errorf("parseIO(%q) = %+v", text, got)
		}
	})
}

func FuzzParseRollup(f *testing.F) {
	f.Add([]byte("Rss: 1732 kB\nPss: 392 kB\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if rss, pss, err := parseRollup(text); err == nil && (rss|pss)&1023 != 0 {
			t.Errorf("parseRollup(%q) = %d, %d", text, rss, pss)
		}
	})
}

func FuzzParseMachine(f *testing.F) {
	f.Add([]byte("cpu  100 10 50 9000 70 3 4 200 100 0\ncpu0 1 2 3\n"))
	f.Add([]byte("MemTotal: 1 kB\nmodel name: x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseSystem(text); err == nil && s.Idle < 0 {
			// Sums of eight times, each below 292 years, may wrap; kernels do not
			// get so old, and it is not a panic.
			t.Skip()
		}
		parseModel(text)
		_, _ = parseLoad(text)
		_, _ = parseMemory(text)
		_, _ = parseNumbers(text)
	})
}
