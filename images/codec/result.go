package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// checkResult finds out whether an encoder wrote a file of the format, whole:
// a command that was cut short, or that is another program altogether, must
// not end as a broken image in somebody's browser.
func checkResult(f Format, file []byte) error {
	if f == AVIF {
		return checkAVIF(file)
	}
	return checkWebP(file)
}

// checkWebP looks at the header and its length: RFC 9649, 2.4. It names what
// follows the magic bytes "RIFF" and itself, padded to an even number.
func checkWebP(file []byte) error {
	if len(file) < 20 || string(file[:4]) != "RIFF" || string(file[8:15]) != "WEBPVP8" {
		return errors.New("what came out is not WebP")
	}
	if size := int64(binary.LittleEndian.Uint32(file[4:])); size+8 != int64(len(file)) {
		return fmt.Errorf("a WebP of %d bytes came out, it should have %d", len(file), size+8)
	}
	return nil
}

// checkAVIF looks at the brand and walks the boxes, which must fill the file:
// ISO/IEC 14496-12, 4.2 and 4.3.
func checkAVIF(file []byte) error {
	if len(file) < 16 || string(file[4:12]) != "ftypavif" {
		return errors.New("what came out is not AVIF")
	}
	for rest := file; len(rest) > 0; {
		if len(rest) < 8 {
			return errors.New("the AVIF that came out ends in the middle of a box")
		}
		size := int64(binary.BigEndian.Uint32(rest))
		switch {
		case size == 0: // to the end of the file
			return nil
		case size == 1 && len(rest) >= 16:
			size = int64(binary.BigEndian.Uint64(rest[8:]))
		}
		if size < 8 || size > int64(len(rest)) {
			return errors.New("the AVIF that came out ends in the middle of a box")
		}
		rest = rest[size:]
	}
	return nil
}
