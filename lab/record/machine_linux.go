package record

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// describe fills in what the kernel tells of the machine.
func describe(m *Machine) {
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = parseModel(text)
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory, _ = parseMemory(text) // 0 is unknown
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
}

func readSystem() (System, error) {
	var buf []byte
	text, err := readFile("/proc/stat", &buf)
	if err != nil {
		return System{}, err
	}
	s, err := parseSystem(text)
	if err != nil {
		return System{}, fmt.Errorf("reading /proc/stat: %w", err)
	}
	s.At = time.Now()
	if text, err = readFile("/proc/loadavg", &buf); err != nil {
		return System{}, err
	}
	if s.Load1, err = parseLoad(text); err != nil {
		return System{}, fmt.Errorf("reading /proc/loadavg: %w", err)
	}
	return s, nil
}
