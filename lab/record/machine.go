package record

import (
	"runtime"

	"millrace/lab/result"
)

// ReadMachine describes the machine and the Go release of this program; Tools
// stays empty. What cannot be read is empty, too.
func ReadMachine() result.Machine {
	counters, _ := Counters()
	m := result.Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Counters: counters}
	describe(&m)
	if m.CPU == "" {
		m.CPU = runtime.GOARCH
	}
	return m
}
