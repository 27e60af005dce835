package convert

import (
	"encoding/binary"
	"image"

	"millrace/images/header"
)

// Fields of TIFF and their values: TIFF 6.0, section 8 (Compression,
// PhotometricInterpretation), section 11 (T.4 and T.6).
const (
	tagCompression  = 0x0103
	tagPhotometric  = 0x0106
	compressionFax3 = 3
	compressionFax4 = 4
	blackIsZero     = 1
)

// reversed reports whether a TIFF holds a fax whose black runs are to be shown
// white: its samples are 1 for what T.4 and T.6 call black, and it says that
// black is zero. "The image should display and print reversed" (TIFF 6.0,
// PhotometricInterpretation), which golang.org/x/image/tiff does not do.
func reversed(file []byte) bool {
	var order binary.ByteOrder = binary.LittleEndian
	if len(file) < 8 {
		return false
	}
	if file[0] == 'M' {
		order = binary.BigEndian
	}
	at := uint64(order.Uint32(file[4:]))
	if at+2 > uint64(len(file)) {
		return false
	}
	fields := file[at+2:]
	fields = fields[:min(int(order.Uint16(file[at:])), len(fields)/12)*12]
	fax, zero := false, false
	for ; len(fields) > 0; fields = fields[12:] {
		value := order.Uint16(fields[8:]) // both are of type SHORT
		switch order.Uint16(fields) {
		case tagCompression:
			fax = value == compressionFax3 || value == compressionFax4
		case tagPhotometric:
			zero = value == blackIsZero
		}
	}
	return fax && zero
}

// asShown puts right what a decoder makes of a format's rarer kinds.
func (j *job) asShown(m image.Image) image.Image {
	g, ok := m.(*image.Gray)
	if !ok || j.info.Format != header.TIFF || !reversed(j.source) {
		return m
	}
	for i, v := range g.Pix { // nobody else has it
		g.Pix[i] = 255 - v
	}
	return g
}
