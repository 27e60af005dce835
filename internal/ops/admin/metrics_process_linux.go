package admin

import (
	"github.com/prometheus/procfs"

	"millrace/internal/ops/exposition"
)

// processMetrics puts on a page what /proc says of this process, under the names
// of Prometheus's clients. What cannot be read is left out.
func processMetrics(p *exposition.Page) {
	gauge := func(name, help string, value float64) {
		p.Gauge(&exposition.Metric{Name: "process_" + name, Help: help}, value)
	}
	counter := func(name, help string, value float64) {
		p.Counter(&exposition.Metric{Name: "process_" + name, Help: help}, value)
	}
	self, err := procfs.Self()
	if err != nil {
		return
	}
	if stat, err := self.Stat(); err == nil {
		counter("cpu_seconds_total", "CPU time of this process, in user and system mode.", stat.CPUTime())
		gauge("virtual_memory_bytes", "Virtual memory.", float64(stat.VirtualMemory()))
		gauge("resident_memory_bytes", "Resident memory.", float64(stat.ResidentMemory()))
		if start, err := stat.StartTime(); err == nil {
			gauge("start_time_seconds", "When this process started, in seconds since 1970.", start)
		}
	}
	if open, err := self.FileDescriptorsLen(); err == nil {
		gauge("open_fds", "Open file descriptors.", float64(open))
	}
	if limits, err := self.Limits(); err == nil { // the largest number where there is none, as Prometheus's clients have it
		gauge("max_fds", "File descriptors that may be open.", float64(limits.OpenFiles))
		gauge("virtual_memory_max_bytes", "Virtual memory that may be had.", float64(limits.AddressSpace))
	}
	if ip, err := self.Netstat(); err == nil && ip.InOctets != nil && ip.OutOctets != nil {
		counter("network_receive_bytes_total", "Bytes that the network namespace has received over IP.", *ip.InOctets)
		counter("network_transmit_bytes_total", "Bytes that the network namespace has sent over IP.", *ip.OutOctets)
	}
}
