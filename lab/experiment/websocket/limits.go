package websocket

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
)

// availableMemory is how many bytes can be used without swapping, 0 where that
// is not known.
func availableMemory() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return parseAvailable(text)
}

// parseAvailable finds MemAvailable in /proc/meminfo, which gives it in KiB.
func parseAvailable(text []byte) uint64 {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) == 3 && string(fields[0]) == "MemAvailable:" && string(fields[2]) == "kB" {
			kib, err := strconv.ParseUint(string(fields[1]), 10, 54) // times 1024 fits
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
