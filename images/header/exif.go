package header

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tags of TIFF 6.0 and EXIF 2.32, 4.6.4, by rising number as directories have them.
const (
	tagWidth           = 0x0100
	tagHeight          = 0x0101
	tagBitsPerSample   = 0x0102
	tagCompression     = 0x0103
	tagPhotometric     = 0x0106
	tagFillOrder       = 0x010a
	tagStripOffsets    = 0x0111
	tagOrientation     = 0x0112
	tagSamplesPerPixel = 0x0115
	tagRowsPerStrip    = 0x0116
	tagStripByteCounts = 0x0117
	tagPlanar          = 0x011c
	tagT4Options       = 0x0124
	tagArtist          = 0x013b
	tagPredictor       = 0x013d
	tagColorMap        = 0x0140
	tagTileWidth       = 0x0142
	tagTileLength      = 0x0143
	tagTileOffsets     = 0x0144
	tagTileByteCounts  = 0x0145
	tagExtraSamples    = 0x0152
	tagSampleFormat    = 0x0153
	tagCopyright       = 0x8298
	tagICC             = 0x8773
)

// Types of fields: TIFF 6.0, section 2, and EXIF 3.0 for UTF-8.
const (
	typeByte      = 1
	typeASCII     = 2
	typeShort     = 3
	typeLong      = 4
	typeUndefined = 7
	typeUTF8      = 129
)

const (
	// maxFields is the most that a directory may have. Files have some dozens.
	maxFields = 1000
	// maxText is the length of a copyright or an artist, in bytes.
	maxText = 4096
)

// directory is the first directory (IFD0) of a TIFF file or an EXIF block.
type directory struct {
	order  binary.ByteOrder
	block  []byte // offsets count from its beginning
	fields []byte // of 12 bytes each
	cut    bool   // some are missing
}

// field is one entry of a directory. Value is nil where it lies outside.
type field struct {
	tag, kind uint16
	value     []byte
	order     binary.ByteOrder
}

// openDirectory finds IFD0. What is cut off of its fields is left out.
func openDirectory(block []byte) (directory, bool) {
	d := directory{block: block}
	switch {
	case bytes.HasPrefix(block, []byte("II*\x00")):
		d.order = binary.LittleEndian
	case bytes.HasPrefix(block, []byte("MM\x00*")):
		d.order = binary.BigEndian
	default:
		return d, false
	}
	if len(block) < 8 {
		return d, false
	}
	at := uint64(d.order.Uint32(block[4:]))
	if at < 8 || at+2 > uint64(len(block)) {
		return d, false
	}
	count := int(d.order.Uint16(block[at:]))
	if count > maxFields {
		return d, false
	}
	d.fields = block[at+2:]
	d.cut = count > len(d.fields)/12
	d.fields = d.fields[:min(count, len(d.fields)/12)*12]
	return d, true
}

// all goes over the fields.
func (d directory) all() iter.Seq[field] {
	return func(yield func(field) bool) {
		for raw := range slices.Chunk(d.fields, 12) {
			f := field{tag: d.order.Uint16(raw), kind: d.order.Uint16(raw[2:]), order: d.order}
			f.value = d.value(f.kind, d.order.Uint32(raw[4:]), raw[8:])
			if !yield(f) {
				return
			}
		}
	}
}

// value is where a field's values are: in its last four bytes if they fit.
func (d directory) value(kind uint16, count uint32, last []byte) []byte {
	size := uint64(count)
	switch kind {
	case typeByte, typeASCII, typeUndefined, typeUTF8:
	case typeShort:
		size *= 2
	case typeLong:
		size *= 4
	default:
		return nil // no kind that is asked for
	}
	if size <= 4 {
		return last[:size]
	}
	at := uint64(d.order.Uint32(last))
	if at+size > uint64(len(d.block)) {
		return nil
	}
	return d.block[at : at+size]
}

// size is the length in bytes of a whole number of the field, 0 if it has none.
func (f field) size() int {
	switch f.kind {
	case typeByte:
		return 1
	case typeShort:
		return 2
	case typeLong:
		return 4
	}
	return 0
}

// count is how many whole numbers a field has.
func (f field) count() int {
	if n := f.size(); n > 0 {
		return len(f.value) / n
	}
	return 0
}

// at is a field's whole number i, which must be below its count.
func (f field) at(i int) int {
	switch v := f.value[i*f.size():]; f.kind {
	case typeShort:
		return int(f.order.Uint16(v))
	case typeLong:
		return int(f.order.Uint32(v))
	default:
		return int(v[0])
	}
}

// number is the first value of a field of whole numbers.
func (f field) number() (int, bool) {
	if f.count() == 0 {
		return 0, false
	}
	return f.at(0), true
}

// text is a field of text: what is not UTF-8 is taken for Latin-1, the parts
// of a copyright (photographer NUL editor: EXIF 2.32, 4.6.4.D) are joined.
func (f field) text() string {
	if f.kind != typeASCII && f.kind != typeUTF8 {
		return ""
	}
	return cleanText(f.value)
}

func cleanText(raw []byte) string {
	raw = raw[:min(len(raw), maxText)]
	if i := len(raw) - 1; i >= 0 && !utf8.Valid(raw) {
		for ; i > 0 && !utf8.RuneStart(raw[i]); i-- {
		}
		if utf8.Valid(raw[:i]) { // a character was cut in two
			raw = raw[:i]
		}
	}
	s := string(raw)
	if !utf8.Valid(raw) {
		runes := make([]rune, len(raw))
		for i, b := range raw {
			runes[i] = rune(b)
		}
		s = string(runes)
	}
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == 0 })
	kept := parts[:0]
	for _, p := range parts {
		p = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, p)
		if p = strings.TrimSpace(p); p != "" {
			kept = append(kept, p)
		}
	}
	return clip(strings.Join(kept, ", "))
}

// clip cuts a text down to maxText bytes between two characters.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// readEXIF takes what is of interest from an EXIF block, with or without the
// "Exif\0\0" that belongs to JPEG only. A broken one changes nothing.
func (i *Info) readEXIF(block []byte) {
	if len(block) > 6 && bytes.HasPrefix(block, []byte(exifPrefix)) {
		block = block[6:]
	}
	d, ok := openDirectory(block)
	if !ok {
		return
	}
	for f := range d.all() {
		i.exifField(f)
	}
}

// exifField takes a field; the first of each tag counts.
func (i *Info) exifField(f field) {
	switch f.tag {
	case tagOrientation:
		if n, ok := f.number(); ok && i.Orientation == 0 && n >= 1 && n <= 8 {
			i.Orientation = n
		}
	case tagCopyright:
		if i.Copyright == "" {
			i.Copyright = f.text()
		}
	case tagArtist:
		if i.Artist == "" {
			i.Artist = f.text()
		}
	}
}

// EXIF builds a minimal EXIF block (TIFF, no "Exif\0\0" before it) that holds a
// copyright and an artist, of at most 4096 bytes each; nil when both are empty.
func EXIF(copyright, artist string) []byte {
	type entry struct {
		tag  uint16
		text string
	}
	var entries []entry
	for _, e := range []entry{{tagArtist, artist}, {tagCopyright, copyright}} {
		if e.text = cleanText([]byte(e.text)); e.text != "" {
			e.text += "\x00" // which counts: TIFF 6.0, section 2
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	le := binary.LittleEndian
	block := le.AppendUint32([]byte("II*\x00"), 8)
	block = le.AppendUint16(block, uint16(len(entries)))
	at := 8 + 2 + 12*len(entries) + 4
	var texts []byte
	for _, e := range entries {
		block = le.AppendUint16(block, e.tag)
		block = le.AppendUint16(block, typeASCII)
		block = le.AppendUint32(block, uint32(len(e.text)))
		if len(e.text) <= 4 {
			block = append(block, (e.text + "\x00\x00\x00")[:4]...)
			continue
		}
		block = le.AppendUint32(block, uint32(at+len(texts)))
		texts = append(texts, e.text...)
		if len(texts)%2 == 1 { // values begin on even places
			texts = append(texts, 0)
		}
	}
	block = le.AppendUint32(block, 0) // no further directory
	return append(block, texts...)
}
