package admin

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"

	"millrace/internal/exposition"
)

// ticks is the unit of times in proc(5): USER_HZ, which is 100 on every
// architecture that Go runs on.
const ticks = 100

// processMetrics puts on a page what /proc says of this process, under the names
// of Prometheus's clients. What cannot be read is left out.
func processMetrics(p *exposition.Page) {
	gauge := func(name, help string, value float64) {
		p.Gauge(&exposition.Metric{Name: "process_" + name, Help: help}, value)
	}
	counter := func(name, help string, value float64) {
		p.Counter(&exposition.Metric{Name: "process_" + name, Help: help}, value)
	}
	if stat, ok := processStat(); ok {
		counter("cpu_seconds_total", "CPU time of this process, in user and system mode.", (stat[statUser]+stat[statSystem])/ticks)
		gauge("virtual_memory_bytes", "Virtual memory.", stat[statVirtual])
		gauge("resident_memory_bytes", "Resident memory.", stat[statResident]*float64(os.Getpagesize()))
		if boot, ok := numberAfter("/proc/stat", "btime"); ok {
			gauge("start_time_seconds", "When this process started, in seconds since 1970.", boot+stat[statStart]/ticks)
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		gauge("open_fds", "Open file descriptors.", float64(max(len(open)-1, 0))) // but the one that reads them
	}
	if most, ok := numberAfter("/proc/self/limits", "Max open files"); ok {
		gauge("max_fds", "File descriptors that may be open.", most)
	}
	if most, ok := numberAfter("/proc/self/limits", "Max address space"); ok {
		gauge("virtual_memory_max_bytes", "Virtual memory that may be had.", most)
	}
	received, sent, ok := octets()
	if ok {
		counter("network_receive_bytes_total", "Bytes that the network namespace has received over IP.", received)
		counter("network_transmit_bytes_total", "Bytes that the network namespace has sent over IP.", sent)
	}
}

// Fields of /proc/self/stat, counted from the one behind the program's name.
const (
	statUser, statSystem   = 11, 12
	statStart              = 19
	statVirtual            = 20 // bytes
	statResident, statLast = 21, 22
)

func processStat() (fields [statLast]float64, ok bool) {
	b, err := os.ReadFile("/proc/self/stat")
	_, rest, found := bytes.Cut(b, []byte(") ")) // the name may hold anything but is ours
	words := bytes.Fields(rest)
	if err != nil || !found || len(words) < statLast {
		return fields, false
	}
	for i := range fields {
		fields[i], _ = strconv.ParseFloat(string(words[i]), 64) // the state is a letter
	}
	return fields, true
}

// numberAfter is the number behind the name at the beginning of a line, in files
// of /proc. Without a limit it is what the kernel has for none, as Prometheus's
// clients have it.
func numberAfter(file, name string) (float64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, name+" ")
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			continue
		}
		if words[0] == "unlimited" {
			return math.MaxUint64, true
		}
		v, err := strconv.ParseFloat(words[0], 64)
		return v, err == nil
	}
	return 0, false
}

// octets reads the columns InOctets and OutOctets of /proc/self/net/netstat: a
// line of names, and below it one of figures.
func octets() (in, out float64, ok bool) {
	b, err := os.ReadFile("/proc/self/net/netstat")
	if err != nil {
		return 0, 0, false
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "IpExt:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names[:min(len(names), len(words))] {
			switch v, _ := strconv.ParseFloat(words[i], 64); name {
			case "InOctets":
				in = v
			case "OutOctets":
				out = v
			}
		}
		return in, out, true
	}
	return 0, 0, false
}
