package gogc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Memory is how many bytes this process may use: the machine's, or what
// its control groups leave of it (cgroup v2, memory.max). 0: it cannot be told.
func Memory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	least := int64(info.Totalram) * int64(info.Unit)
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(text)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		// Each group above limits as well. In a container the path may be the
		// host's: then only the topmost one is there.
		for dir := filepath.Join("/sys/fs/cgroup", group); strings.HasPrefix(dir, "/sys/fs/cgroup"); dir = filepath.Dir(dir) {
			limit, err := os.ReadFile(filepath.Join(dir, "memory.max"))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil { // else "max"
				least = min(least, n)
			}
		}
	}
	return least
}
