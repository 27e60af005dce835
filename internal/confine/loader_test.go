package confine

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// truth is what debug/elf says, of files that it can read.
func truth(file io.ReaderAt) (string, error) {
	f, err := elf.NewFile(file)
	if err != nil {
		return "", err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(io.LimitReader(p.Open(), longestPath))
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", nil
}

// program is an ELF file with two segments, of which the second names a loader.
func program(wide bool, order binary.ByteOrder, loader string) []byte {
	class, data, size := byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), 52
	if order == binary.BigEndian {
		data = byte(elf.ELFDATA2MSB)
	}
	if wide {
		class, size = byte(elf.ELFCLASS64), 64
	}
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', class, data, byte(elf.EV_CURRENT)}
	var b bytes.Buffer
	write := func(v any) {
		if err := binary.Write(&b, order, v); err != nil {
			panic(err)
		}
	}
	if wide {
		write(elf.Header64{Ident: ident, Type: 2, Machine: uint16(elf.EM_AARCH64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2})
		write(elf.Prog64{Type: uint32(elf.PT_LOAD)})
		write(elf.Prog64{Type: uint32(elf.PT_INTERP), Off: uint64(size + 2*56), Filesz: uint64(len(loader))})
	} else {
		write(elf.Header32{Ident: ident, Type: 2, Machine: uint16(elf.EM_ARM), Version: 1, Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 2})
		write(elf.Prog32{Type: uint32(elf.PT_LOAD)})
		write(elf.Prog32{Type: uint32(elf.PT_INTERP), Off: uint32(size + 2*32), Filesz: uint32(len(loader))})
	}
	b.WriteString(loader)
	return b.Bytes()
}

func TestLoader(t *testing.T) {
	for _, wide := range []bool{true, false} {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			file := program(wide, order, "/lib/ld.so.1\x00")
			want, err := truth(bytes.NewReader(file))
			if got := interpreter(bytes.NewReader(file)); err != nil || got != want || got != "/lib/ld.so.1" {
				t.Errorf("64 bits: %v, %v: %q, debug/elf says %q, %v", wide, order, got, want, err)
			}
			for cut := range len(file) {
				if got := interpreter(bytes.NewReader(file[:cut])); got != "" {
					t.Errorf("cut off after %d bytes: %q", cut, got)
				}
			}
		}
	}
	if sh, err := exec.LookPath("sh"); err == nil && Loader(sh) == "" {
		t.Logf("%s is loaded by nothing", sh)
	}
}

// What debug/elf reads, we read as it does.
func FuzzLoader(f *testing.F) {
	f.Add(program(true, binary.LittleEndian, "/lib64/ld-linux-x86-64.so.2\x00"))
	f.Add(program(false, binary.BigEndian, "/lib/ld.so.1\x00"))
	f.Fuzz(func(t *testing.T, file []byte) {
		got := interpreter(bytes.NewReader(file))
		if want, err := truth(bytes.NewReader(file)); err == nil && want != "" && got != "" && got != want {
			t.Errorf("%q, debug/elf says %q", got, want)
		}
	})
}
