package codec

import (
	"encoding/binary"
	"errors"
	"fmt"

	"millrace/images/container"
)

// checkResult finds out whether an encoder wrote a file of the format, whole:
// a command that was cut short, or that is another program altogether, must
// not end as a broken image in somebody's browser.
func checkResult(f Format, file []byte) error {
	if f == AVIF {
		return container.CheckAVIF(file) //nolint:wrapcheck // it says what it is about
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
