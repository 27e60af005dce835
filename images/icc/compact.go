package icc

import (
	"bytes"
	"encoding/binary"
	"math"
)

// compactLevels is how many samples a curve needs for images of 8 bits: one a level.
const compactLevels = 256

// leastSaved is how many bytes shorter a profile must get to lose its name for it.
const leastSaved = 256

// Compact writes a profile of curves and a matrix with what images of 8 bits need of it,
// in 460 to 2100 bytes: no private tags, no names in thirty languages, no tables for
// printing, and curves of at most 256 samples, which are exact at all levels. nil where
// that saves less than 256 bytes, and for profiles of other kinds.
func (p *Profile) Compact() []byte {
	if p.unsupported != "" || p.table != nil || p.Space != RGB {
		return nil
	}
	type tag struct {
		name string
		data []byte
	}
	text := textTag
	if p.head[8] < 4 {
		text = oldTextTag
	}
	tags := []tag{{"desc", text("desc", "RGB")}, {"cprt", text("text", "none")}}
	for _, name := range []string{"wtpt", "chad", "rXYZ", "gXYZ", "bXYZ"} {
		n := 20 // of an XYZType
		if name == "chad" {
			n = 44 // of nine numbers
		}
		if data := p.tags[name]; len(data) >= n {
			tags = append(tags, tag{name, data[:n]})
		}
	}
	for i, name := range []string{"rTRC", "gTRC", "bTRC"} {
		tags = append(tags, tag{name, p.curves[i].compact(p.tags[name])})
	}
	out := append(bytes.Clone(p.head), 0, 0, 0, byte(len(tags)))
	clear(out[84:100]) // the sum of all bytes: ICC.1:2022, 7.2.18
	body := make([]byte, 0, len(tags)*tagSize)
	at := len(out) + len(tags)*tagSize
	begins := map[string]int{} // tags that are equal share their bytes
	for _, t := range tags {
		begin, ok := begins[string(t.data)]
		if !ok {
			begin = at + len(body)
			begins[string(t.data)] = begin
			body = append(body, t.data...)
			body = append(body, make([]byte, -len(body)&3)...)
		}
		out = append(out, t.name...)
		out = binary.BigEndian.AppendUint32(out, uint32(begin))
		out = binary.BigEndian.AppendUint32(out, uint32(len(t.data)))
	}
	out = append(out, body...)
	binary.BigEndian.PutUint32(out, uint32(len(out)))
	if len(out)+leastSaved > p.size {
		return nil
	}
	return out
}

// compact is the curve's tag as it is, or with a sample for each of 256 levels.
func (c *curve) compact(tag []byte) []byte {
	if _, n, err := parseCurve(tag); err == nil && n <= 12+2*compactLevels {
		return tag[:n]
	}
	out := append([]byte("curv\x00\x00\x00\x00"), 0, 0, compactLevels>>8, 0)
	for i := range compactLevels {
		out = binary.BigEndian.AppendUint16(out, uint16(math.Round(65535*c.at(float64(i)/(compactLevels-1)))))
	}
	return out
}

// textTag is a multiLocalizedUnicodeType with one English text: ICC.1:2022, 10.15.
func textTag(_, ascii string) []byte {
	out := append([]byte("mluc\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x0cenUS\x00\x00\x00"), byte(2*len(ascii)), 0, 0, 0, 28)
	for _, c := range []byte(ascii) {
		out = append(out, 0, c)
	}
	return out
}

// oldTextTag is a textDescriptionType or a textType: ICC.1:2001-04, 6.5.17 and 6.5.18.
func oldTextTag(kind, ascii string) []byte {
	out := append([]byte(kind), 0, 0, 0, 0)
	if kind == "text" {
		return append(append(out, ascii...), 0)
	}
	out = append(out, 0, 0, 0, byte(len(ascii)+1))
	out = append(append(out, ascii...), 0)
	return append(out, make([]byte, 4+4+2+1+67)...) // no Unicode, no Macintosh script
}
