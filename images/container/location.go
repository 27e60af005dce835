package container

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
)

// WithoutLocation returns a file without the places that it was made at: the GPS directories of
// EXIF, GPS values of XMP, and those of the film in a motion photo. It looks for them in
// all of the file, whatever that is, so that second images and unknown containers are
// searched, too. Nothing is moved, but for PNG: what is removed is overwritten. It
// returns file itself, which is never changed, where there is nothing of the kind.
func WithoutLocation(file []byte) []byte {
	if bytes.HasPrefix(file, []byte("\x89PNG\r\n\x1a\n")) {
		return pngWithoutLocation(file)
	}
	return blank(file)
}

// blank overwrites locations in a copy, or returns what it was given.
func blank(file []byte) []byte {
	b := &blanker{file: file}
	b.exif([]byte("II*\x00"), binary.LittleEndian)
	b.exif([]byte("MM\x00*"), binary.BigEndian)
	b.xmp(":GPS")
	b.xmp(":Gps")
	b.film()
	return b.file
}

type blanker struct {
	file   []byte
	copied bool
}

// at is the file from somewhere on, to be written to.
func (b *blanker) at(from, n int) []byte {
	if !b.copied {
		b.file, b.copied = slices.Clone(b.file), true
	}
	return b.file[from:][:n]
}

const (
	entrySize = 12     // of a directory (TIFF 6.0, section 2)
	gpsTag    = 0x8825 // EXIF 3.0, 4.6.3
	maxGPS    = 64     // entries of a GPS directory; there are 32 tags
	maxFields = 512    // entries of another one
	maxPages  = 1000   // of a TIFF
)

// exif removes the GPS entry from each directory that a TIFF header points to, and all that
// the entry points to. A file that is a TIFF itself has a directory for each of its pages.
func (b *blanker) exif(magic []byte, order binary.ByteOrder) {
	for from := 0; ; {
		at := bytes.Index(b.file[from:], magic)
		if at < 0 {
			return
		}
		from += at
		pages := 1
		if from == 0 {
			pages = maxPages
		}
		for pointer := 4; pages > 0 && pointer > 0; pages-- {
			pointer = b.directory(from, pointer, order)
		}
		from += len(magic)
	}
}

// directory looks at the directory whose place stands at pointer, in the block that begins at
// start. It returns where the place of the next one stands, 0 if there is no such directory.
func (b *blanker) directory(start, pointer int, order binary.ByteOrder) (next int) {
	block := b.file[start:]
	count, at := entries(block, order, pointer)
	if count == 0 || count > maxFields {
		return 0
	}
	for n := range count {
		if !pointsToGPS(block[at+n*entrySize:], order) {
			continue
		}
		b.gps(start, count, at, order)
		// Those behind it move up, with the place of the next directory.
		last := at + count*entrySize + 4
		whole := b.at(start, min(last, len(block)))
		count--
		order.PutUint16(whole[at-2:], uint16(count))
		copy(whole[at+n*entrySize:], whole[at+(n+1)*entrySize:])
		clear(whole[len(whole)-entrySize:])
		break
	}
	return at + count*entrySize
}

// pointsToGPS reports whether an entry is the place of a GPS directory.
func pointsToGPS(entry []byte, order binary.ByteOrder) bool {
	const long, directory = 4, 13 // types
	kind := order.Uint16(entry[2:])
	return order.Uint16(entry) == gpsTag && (kind == long || kind == directory) && order.Uint32(entry[4:]) == 1
}

// entries is how many entries of a directory there are, whose place stands at pointer.
func entries(block []byte, order binary.ByteOrder, pointer int) (count, at int) {
	if pointer+4 > len(block) {
		return 0, 0
	}
	place := uint64(order.Uint32(block[pointer:]))
	if place < 8 || place+2 > uint64(len(block)) {
		return 0, 0
	}
	at = int(place) + 2
	return min(int(order.Uint16(block[place:])), (len(block)-at)/entrySize), at
}

// gps clears the GPS directory that one of these entries points to, and the values that are
// outside of it.
func (b *blanker) gps(start, count, at int, order binary.ByteOrder) {
	block := b.file[start:]
	for n := range count {
		pointer := at + n*entrySize
		if !pointsToGPS(block[pointer:], order) {
			continue
		}
		fields, first := entries(block, order, pointer+8)
		if fields == 0 || fields > maxGPS {
			continue
		}
		for f := range fields {
			entry := block[first+f*entrySize:][:entrySize]
			sizes := map[uint16]uint64{1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 7: 1, 9: 4, 10: 8, 129: 1} // by type
			size := sizes[order.Uint16(entry[2:])] * uint64(order.Uint32(entry[4:]))
			from := uint64(order.Uint32(entry[8:]))
			if size > 4 && from >= 8 && from+size <= uint64(len(block)) && size < 64<<10 {
				clear(b.at(start+int(from), int(size)))
			}
		}
		clear(b.at(start+first-2, 2+fields*entrySize))
	}
}

// xmp overwrites the values of properties like exif:GPSLatitude, which are attributes
// (exif:GPSLatitude="52,31.2N") or elements. Drones have their own: drone-dji:GpsLatitude.
func (b *blanker) xmp(name string) {
	for from := 0; ; {
		at := bytes.Index(b.file[from:], []byte(name))
		if at < 0 {
			return
		}
		from += at + len(name)
		rest := b.file[from:]
		end := bytes.IndexAny(rest[:min(len(rest), 64)], "=> \t\r\n/")
		if end < 0 {
			continue
		}
		from += end
		rest = bytes.TrimLeft(rest[end:], " \t\r\n")
		start := len(b.file) - len(rest)
		switch {
		case bytes.HasPrefix(rest, []byte("=")):
			quoted := bytes.TrimLeft(rest[1:], " \t\r\n")
			if len(quoted) > 0 && (quoted[0] == '"' || quoted[0] == '\'') {
				start = len(b.file) - len(quoted) + 1
				b.spaces(start, bytes.IndexByte(quoted[1:], quoted[0]))
			}
		case bytes.HasPrefix(rest, []byte(">")):
			b.spaces(start+1, bytes.IndexByte(rest[1:], '<'))
		}
	}
}

// maxValue is the longest value of XMP that is overwritten.
const maxValue = 4096

func (b *blanker) spaces(from, n int) {
	if n <= 0 || n > maxValue || len(bytes.TrimSpace(b.file[from:from+n])) == 0 {
		return
	}
	value := b.at(from, n)
	for i := range value {
		value[i] = ' '
	}
}

// film overwrites the place of a film in QuickTime's atom ©xyz: a length, a language, and a
// text like +52.5200+013.4050/.
func (b *blanker) film() {
	name := []byte("\xa9xyz")
	for from := 0; ; {
		at := bytes.Index(b.file[from:], name)
		if at < 0 {
			return
		}
		from += at + len(name)
		rest := b.file[from:]
		if len(rest) < 5 || rest[4] != '+' && rest[4] != '-' {
			continue
		}
		n := int(binary.BigEndian.Uint16(rest))
		if n == 0 || 4+n > len(rest) || n > maxValue {
			continue
		}
		for i := range b.at(from+4, n) {
			b.file[from+4+i] = '0'
		}
	}
}

// pngWithoutLocation goes over the chunks: those of EXIF and XMP are overwritten, with a new
// check sum, and those in which ImageMagick has put the same as digits, or in which it is
// compressed, are left out.
func pngWithoutLocation(file []byte) []byte {
	const head, tail = 8, 4 // of a chunk: length and name; check sum
	out, changed := make([]byte, 0, len(file)), false
	out = append(out, file[:8]...)
	rest := file[8:]
	for len(rest) >= head+tail {
		n := uint64(binary.BigEndian.Uint32(rest)) + head + tail
		if n > uint64(len(rest)) {
			break
		}
		one, kind, body := rest[:n], string(rest[4:8]), rest[head:n-tail]
		rest = rest[n:]
		switch kind {
		case "eXIf", "iTXt":
			if kind == "iTXt" && hides(body) {
				changed = true
				continue
			}
			if without := blank(body); !bytes.Equal(without, body) {
				changed = true
				one = slices.Clone(one)
				copy(one[head:], without)
				binary.BigEndian.PutUint32(one[n-tail:], crc32.ChecksumIEEE(one[4:n-tail]))
			}
		case "tEXt", "zTXt":
			if hides(body) {
				changed = true
				continue
			}
		}
		out = append(out, one...)
	}
	if !changed {
		return file
	}
	return append(out, rest...)
}

// hides reports whether a text of a PNG may hold EXIF or XMP in another form than as it is.
func hides(body []byte) bool {
	keyword, text, _ := bytes.Cut(body, []byte{0})
	name := string(bytes.ToLower(keyword))
	if strings.HasPrefix(name, "exif:gps") { // ImageMagick writes a text for each field
		return true
	}
	switch name {
	case "raw profile type exif", "raw profile type app1", "raw profile type xmp":
		return true
	case "xml:com.adobe.xmp":
		return len(text) > 0 && text[0] == 1 // compressed (PNG, third edition, 11.3.3.4)
	}
	return false
}
