package confine

import (
	"encoding/binary"
	"io"
	"os"
	"strings"
)

// Where ELF says how a program is loaded (System V gABI, chapters 4 and 5), in bytes.
const (
	elfHead    = 64 // the larger of two
	elfClass   = 4  // 1: addresses of 32 bits, 2: of 64
	elfData    = 5  // 2: big endian
	elfSegment = 56 // an entry of the program header table, the larger of two
	ptInterp   = 3  // the segment that names the loader

	longestPath = 4096 // PATH_MAX
)

// Loader is the program that loads the libraries of another one; "" for a program
// that has none, or that cannot be read.
func Loader(program string) string {
	f, err := os.Open(program)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // read only
	return interpreter(f)
}

// interpreter is the loader that an ELF file names. debug/elf knows it as well, and
// all of debug information with it.
func interpreter(file io.ReaderAt) string {
	var head [elfHead]byte
	if n, _ := file.ReadAt(head[:], 0); n < len(head) || string(head[:elfClass]) != "\x7fELF" {
		return ""
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[elfData] == 2 {
		order = binary.BigEndian
	}
	wide := head[elfClass] == 2
	at, size, count := int64(order.Uint32(head[28:])), order.Uint16(head[42:]), order.Uint16(head[44:])
	if wide {
		at, size, count = int64(order.Uint64(head[32:])), order.Uint16(head[54:]), order.Uint16(head[56:]) //nolint:gosec // ReadAt refuses what is negative
	}
	for i := range int64(count) {
		var s [elfSegment]byte
		if n, _ := file.ReadAt(s[:min(int(size), len(s))], at+i*int64(size)); n < 32 {
			return ""
		}
		if order.Uint32(s[:]) != ptInterp {
			continue
		}
		from, length := int64(order.Uint32(s[4:])), uint64(order.Uint32(s[16:]))
		if wide {
			from, length = int64(order.Uint64(s[8:])), order.Uint64(s[32:]) //nolint:gosec // as above
		}
		name := make([]byte, min(length, longestPath))
		if n, _ := file.ReadAt(name, from); n < len(name) {
			return ""
		}
		return strings.TrimRight(string(name), "\x00")
	}
	return ""
}
