package header

import (
	"encoding/binary"
)

// Lengths of the headers that a BMP may have after its 14 bytes of file header.
const (
	bmpCore = 12  // OS/2 1
	bmpInfo = 40  // Windows 3, the usual one
	bmpV3   = 56  // with masks of red, green, blue and alpha
	bmpV4   = 108 // with colours
	bmpV5   = 124 // with a profile
)

// isBMP asks for more than the two letters that also begin other files.
func isBMP(file []byte) bool {
	if len(file) < 18 || file[0] != 'B' || file[1] != 'M' {
		return false
	}
	switch binary.LittleEndian.Uint32(file[14:]) {
	case bmpCore, bmpInfo, 52, bmpV3, 64, bmpV4, bmpV5:
		return true
	}
	return false
}

// readBMP reads the headers of a BMP: "Bitmap Header Types" of the Windows GDI.
func readBMP(file []byte) (Info, error) {
	i := Info{Lossless: true, Depth: 8}
	le := binary.LittleEndian
	dib := file[14:]
	size := int(le.Uint32(dib))
	if len(dib) < size {
		return i, broken("it ends in its header")
	}
	var bits int
	if size == bmpCore {
		i.Width, i.Height = int(le.Uint16(dib[4:])), int(le.Uint16(dib[6:]))
		bits = int(le.Uint16(dib[10:]))
	} else {
		i.Width, i.Height = int(int32(le.Uint32(dib[4:]))), int(int32(le.Uint32(dib[8:])))
		bits = int(le.Uint16(dib[14:]))
		if i.Height < 0 { // from the top down
			i.Height = -i.Height
		}
	}
	switch bits {
	case 1, 2, 4, 8:
		i.Palette, i.Depth = true, bits
	case 16, 24, 32:
	default:
		return i, broken("there are no bitmaps with %d bits a pixel", bits)
	}
	i.Alpha = bits == 32 && size >= bmpV3 && size != 64 && le.Uint32(dib[52:]) != 0
	if size == bmpV5 && string(dib[56:60]) == "DEBM" { // 'MBED', little-endian: embedded
		at, n := uint64(le.Uint32(dib[112:])), uint64(le.Uint32(dib[116:]))
		var profile []byte
		if at+n <= uint64(len(dib)) {
			profile = dib[at : at+n]
		}
		i.setICC(profile)
	}
	return i, nil
}
