// Package buildinfo reads what the go command wrote into an executable: the version
// of Go, the modules and the settings of the build, for Linux, macOS and Windows.
//
// debug/buildinfo reads the same and every other format of executables, with a
// package for each of them: 170 KB of program. The tests compare the two.
package buildinfo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// ErrNone is a file that is no executable, or one that Go did not build with
// modules in version 1.18 or later.
var ErrNone = errors.New("the file has no build information of Go")

const (
	// The information begins with magic at a multiple of align, in the file too:
	// sections of data begin at larger multiples (cmd/link/internal/ld/data.go, buildinfo).
	magic = "\xff Go buildinf:"
	align = 16
	// headBytes are magic, the size of a pointer, flags, and two pointers that
	// inline strings leave unused.
	headBytes = 32
	flagsAt   = 15
	inline    = 2
	// sentinelBytes stand before and after the list of modules (cmd/go/internal/modload).
	sentinelBytes = 16

	blockBytes   = 256 << 10 // what is searched at once, a multiple of align
	maxTextBytes = 1 << 20   // version and modules; the full Millrace has 5 KB of them
)

// ReadFile returns what was written into an executable, or an error that is [ErrNone].
func ReadFile(name string) (*debug.BuildInfo, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading build information: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return info, nil
}

// Read is [ReadFile] for an open file.
func Read(file io.ReaderAt) (*debug.BuildInfo, error) {
	block := make([]byte, blockBytes+headBytes) // what begins in this block ends in it
	for at := int64(0); ; at += blockBytes {
		n, err := file.ReadAt(block, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading build information: %w", err)
		}
		if at == 0 && !executable(block[:n]) {
			return nil, ErrNone
		}
		for from := 0; ; {
			i := bytes.Index(block[from:n], []byte(magic))
			if i < 0 {
				break
			}
			// A program that searches for the magic has it as a string of its own.
			if found := from + i; found%align == 0 && found+headBytes <= n && block[found+flagsAt]&inline != 0 {
				if info := parse(io.NewSectionReader(file, at+int64(found)+headBytes, maxTextBytes)); info != nil {
					return info, nil
				}
			}
			from += i + 1
		}
		if n < len(block) {
			return nil, ErrNone
		}
	}
}

// executable reports whether a file begins as one of ELF, PE or Mach-O does.
func executable(start []byte) bool {
	for _, kind := range []string{"\x7fELF", "MZ", "\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "\xca\xfe\xba\xbe"} {
		if bytes.HasPrefix(start, []byte(kind)) {
			return true
		}
	}
	return false
}

// parse reads version and modules, two strings with their lengths before them; nil
// if that is not what is there.
func parse(r *io.SectionReader) *debug.BuildInfo {
	text := make([]byte, maxTextBytes)
	n, err := io.ReadFull(r, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	version, rest, ok := cut(text[:n])
	if !ok || len(version) == 0 {
		return nil
	}
	modules, _, ok := cut(rest)
	if !ok || len(modules) <= 2*sentinelBytes || modules[len(modules)-sentinelBytes-1] != '\n' {
		return nil
	}
	info, err := debug.ParseBuildInfo(string(modules[sentinelBytes : len(modules)-sentinelBytes]))
	if err != nil {
		return nil
	}
	info.GoVersion = string(version)
	return info
}

// cut takes a string with its length before it.
func cut(text []byte) (s, rest []byte, ok bool) {
	length, n := binary.Uvarint(text)
	if n <= 0 || length > uint64(len(text)-n) {
		return nil, nil, false
	}
	end := n + int(length)
	return text[n:end], text[end:], true
}
