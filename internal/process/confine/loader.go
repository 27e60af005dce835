package confine

import (
	"debug/elf"
	"io"
	"strings"
)

// Loader returns the dynamic loader of a program, such as /lib64/ld-linux-x86-64.so.2; ""
// for a static program, or one that cannot be read.
func Loader(program string) string {
	f, err := elf.Open(program)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // read only
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			return ""
		}
		return strings.TrimRight(string(name), "\x00")
	}
	return ""
}
