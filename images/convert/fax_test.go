package convert

import (
	"encoding/binary"
	"testing"
)

// fax is a TIFF of 8 × 2 pixels in T.6, whose upper row is a black run: the
// horizontal mode with 0 white and 8 black, then a vertical one each for the
// white row below.
func fax(order binary.AppendByteOrder, photometric uint16) []byte {
	magic := []byte("II*\x00")
	if order.String() == "BigEndian" {
		magic = []byte("MM\x00*")
	}
	// 001 00110101 000101 (horizontal, white 0, black 8), then the second row:
	// horizontal, white 8 (10011), black 0 (0000110111); then the end, twice
	// 000000000001.
	const bits = "00100110101000101" + "001100110000110111" + "000000000001000000000001"
	data := make([]byte, (len(bits)+7)/8)
	for i, b := range bits {
		data[i/8] |= byte(b-'0') << (7 - i%8)
	}
	fields := [][3]uint32{ // tag, type, value
		{256, 3, 8},
		{257, 3, 2},
		{258, 3, 1},
		{259, 3, 4},
		{262, 3, uint32(photometric)},
		{273, 4, 0},
		{277, 3, 1},
		{278, 3, 2},
		{279, 4, uint32(len(data))},
	}
	fields[5][2] = uint32(8 + 2 + 12*len(fields) + 4)
	b := order.AppendUint32(magic, 8)
	b = order.AppendUint16(b, uint16(len(fields)))
	for _, f := range fields {
		b = order.AppendUint16(b, uint16(f[0]))
		b = order.AppendUint16(b, uint16(f[1]))
		b = order.AppendUint32(b, 1)
		if f[1] == 3 {
			b = order.AppendUint16(order.AppendUint16(b, uint16(f[2])), 0)
		} else {
			b = order.AppendUint32(b, f[2])
		}
	}
	return append(order.AppendUint32(b, 0), data...)
}

// TestFax: what is black in a fax is white where the file says so.
func TestFax(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for photometric, want := range map[uint16][2]byte{0: {0, 255}, 1: {255, 0}} {
			f := &fakeEncoder{}
			source := append(fax(order, photometric), make([]byte, 1000)...) // large enough to be worth it
			convertTo(t, &Converter{Encoder: f}, source, Spec{})
			p := f.pictures[0].NRGBA()
			if got := [2]byte{p.Pix[0], p.Pix[p.Stride]}; got != want {
				t.Errorf("%s, photometric interpretation %d: rows of %d, want %d", order, photometric, got, want)
			}
		}
	}
	for n := range 30 { // cut off
		if _, err := decodeTIFF(fax(binary.LittleEndian, 1)[:n]); err == nil {
			t.Errorf("%d bytes are a picture", n)
		}
	}
}
