package record

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc (USER_HZ), 10 ms on every
// architecture that Go runs Linux on.
const tick = 10 * time.Millisecond

// mostKB is the largest size in kB that fits in a number of bytes.
const mostKB = 1<<54 - 1

// A stat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	State   byte // 'Z' and 'X' are dead
	Parent  int
	Group   int
	User    time.Duration
	System  time.Duration
	Waited  time.Duration // user time of children that were waited for, and theirs
	WaitedS time.Duration // their system time
	Threads int
	Start   uint64 // ticks since boot: tells a process from a later one of the same number
	RSS     int64  // pages
}

// dead reports whether the process has ended and only waits to be waited for.
// A first thread that ended leaves a process whose other threads live on.
func (s stat) dead() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// parseStat reads a line of /proc/PID/stat. The name in brackets may hold
// anything, brackets, spaces and line ends too, so fields are counted from the
// last closing bracket.
func parseStat(text []byte) (stat, error) {
	line := string(text)
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return stat{}, errors.New("no name in brackets")
	}
	f := strings.Fields(line[end+1:]) // f[0] is field 3 of the manual page
	if len(f) < 22 {
		return stat{}, fmt.Errorf("only %d fields after the name", len(f))
	}
	s := stat{State: f[0][0]}
	var err error
	number := func(field int) int64 {
		n, e := strconv.ParseInt(f[field-3], 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("field %d: %w", field, e)
		}
		return n
	}
	s.Parent = int(number(4))
	s.Group = int(number(5))
	s.User = ticks(number(14))
	s.System = ticks(number(15))
	s.Waited = ticks(number(16))
	s.WaitedS = ticks(number(17))
	s.Threads = int(number(20))
	s.Start = uint64(number(22))
	s.RSS = max(0, number(24))
	if err != nil {
		return stat{}, err
	}
	return s, nil
}

// ticks is n ticks as a duration; numbers that are not times are 0.
func ticks(n int64) time.Duration {
	if n < 0 || n > int64(1<<63-1)/int64(tick) {
		return 0
	}
	return time.Duration(n) * tick
}

// switches are a thread's context switches.
type switches struct{ voluntary, involuntary uint64 }

// parseSwitches reads /proc/PID/task/TID/status (proc_pid_status(5)).
func parseSwitches(text []byte) (switches, error) {
	var s switches
	err := numbersIn(text,
		wanted{"voluntary_ctxt_switches", &s.voluntary},
		wanted{"nonvoluntary_ctxt_switches", &s.involuntary})
	return s, err
}

// parseIgnored reads the mask of ignored signals from /proc/PID/status.
func parseIgnored(text []byte) (uint64, error) {
	value, ok := valueOf(text, "SigIgn")
	if !ok {
		return 0, errors.New("no line SigIgn")
	}
	return strconv.ParseUint(value, 16, 64)
}

// transfers is what is used of /proc/PID/io (proc_pid_io(5)).
type transfers struct{ readCalls, writeCalls, readBytes, writeBytes uint64 }

// parseIO reads /proc/PID/io.
func parseIO(text []byte) (transfers, error) {
	var t transfers
	err := numbersIn(text,
		wanted{"rchar", &t.readBytes}, wanted{"wchar", &t.writeBytes},
		wanted{"syscr", &t.readCalls}, wanted{"syscw", &t.writeCalls})
	return t, err
}

// parseRollup reads the resident and the proportional size in bytes from
// /proc/PID/smaps_rollup (proc_pid_smaps(5)).
func parseRollup(text []byte) (rss, pss uint64, err error) {
	if err := numbersIn(text, wanted{"Rss", &rss}, wanted{"Pss", &pss}); err != nil {
		return 0, 0, err
	}
	if rss > mostKB || pss > mostKB {
		return 0, 0, errors.New("sizes beyond all memory")
	}
	return rss << 10, pss << 10, nil
}

// parseMemory reads the machine's memory in bytes from /proc/meminfo.
func parseMemory(text []byte) (uint64, error) {
	var kB uint64
	if err := numbersIn(text, wanted{"MemTotal", &kB}); err != nil {
		return 0, err
	}
	if kB > mostKB {
		return 0, errors.New("a size beyond all memory")
	}
	return kB << 10, nil
}

// A wanted number of a file whose lines are "key: number …".
type wanted struct {
	key string
	to  *uint64
}

// numbersIn finds wanted numbers. One that is not there is an error.
func numbersIn(text []byte, all ...wanted) error {
	for _, w := range all {
		value, ok := valueOf(text, w.key)
		if !ok {
			return fmt.Errorf("no line %q", w.key)
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return fmt.Errorf("line %q: %w", w.key, err)
		}
		*w.to = n
	}
	return nil
}

// valueOf is the first word after "key:" at the start of a line. Only a
// process's name, in the first line of its status, is free text in these files,
// and a line end in it is shown as \n.
func valueOf(text []byte, key string) (string, bool) {
	for at := 0; ; at++ {
		next := bytes.Index(text[at:], []byte(key))
		if next < 0 {
			return "", false
		}
		at += next
		rest := text[at+len(key):]
		if at > 0 && text[at-1] != '\n' || !bytes.HasPrefix(rest, []byte(":")) {
			continue // within another line
		}
		line, _, _ := bytes.Cut(rest[1:], []byte("\n"))
		for word := range bytes.FieldsSeq(line) {
			return string(word), true
		}
		return "", false
	}
}

// parseSystem reads the first line of /proc/stat (proc_stat(5)): "cpu user nice
// system idle iowait irq softirq steal guest guest_nice". Guests' time is part
// of user and nice.
func parseSystem(text []byte) (System, error) {
	line, _, _ := strings.Cut(string(text), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return System{}, errors.New("no line of all processors")
	}
	var s System
	for i, field := range f[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return System{}, err
		}
		t := ticks(n)
		s.Total += t
		switch i {
		case 3, 4: // idle, iowait
			s.Idle += t
		case 7:
			s.Steal = t
		}
	}
	return s, nil
}

// parseLoad reads the first number of /proc/loadavg.
func parseLoad(text []byte) (float64, error) {
	word, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(word, 64)
}

// parseModel is the processor's name in /proc/cpuinfo; not all architectures
// tell one.
func parseModel(text []byte) string {
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// parseNumbers reads numbers between spaces, as in /proc/PID/task/TID/children.
func parseNumbers(text []byte) ([]int, error) {
	var all []int
	for word := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return all, err
		}
		all = append(all, n)
	}
	return all, nil
}
