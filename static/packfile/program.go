package packfile

import (
	"encoding/binary"
	"io"
)

// programEnd is where a 64-bit ELF program ends by its own account; 0 where
// that cannot be told, as for those of other systems.
func programEnd(f io.ReaderAt) (end int64) {
	const (
		headerSize, sectionSize = 64, 64
		noBits                  = 8 // a section that takes no place in the file
	)
	h := make([]byte, headerSize)
	if _, err := f.ReadAt(h, 0); err != nil || string(h[:6]) != "\x7fELF\x02\x01" {
		return 0
	}
	at := int64(binary.LittleEndian.Uint64(h[0x28:])) //nolint:gosec // ReadAt refuses negative ones
	n := int64(binary.LittleEndian.Uint16(h[0x3c:]))
	end = at + n*sectionSize
	section := make([]byte, sectionSize)
	for i := range n {
		if _, err := f.ReadAt(section, at+i*sectionSize); err != nil {
			return 0
		}
		if binary.LittleEndian.Uint32(section[4:]) != noBits {
			end = max(end, int64(binary.LittleEndian.Uint64(section[0x18:])+binary.LittleEndian.Uint64(section[0x20:]))) //nolint:gosec // a wrong one finds no header
		}
	}
	return end
}
