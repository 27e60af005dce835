package record

import (
	"cmp"
	"runtime"
)

// ReadMachine describes the machine and the Go release of this program; Tools
// stays empty. What cannot be read is empty, too.
func ReadMachine() Machine {
	counters, _ := Counters()
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Counters: counters}
	describe(&m)
	m.CPU = cmp.Or(m.CPU, runtime.GOARCH)
	return m
}
