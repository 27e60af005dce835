package icc

import (
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf16"
)

// maxDescription is the longest description that is kept, in bytes: enough for
// a line of a log, where it ends up.
const maxDescription = 200

// description reads a name for people: textDescriptionType of version 2
// (ICC.1:2001-04, 6.5.17), multiLocalizedUnicodeType of version 4 (ICC.1:2022,
// 10.15), and textType, which some programs write instead. What cannot be read is
// empty: no conversion needs it.
func description(tag []byte) string {
	if len(tag) < 12 {
		return ""
	}
	switch string(tag[:4]) {
	case "desc":
		n := uint64(binary.BigEndian.Uint32(tag[8:]))
		return printable(string(tag[12:min(12+n, uint64(len(tag)), 12+maxDescription)]))
	case "text":
		return printable(string(tag[8:min(len(tag), 8+maxDescription)]))
	case "mluc":
		return localized(tag)
	}
	return ""
}

// localized returns the English text of a multiLocalizedUnicodeType, or the
// first.
func localized(tag []byte) string {
	if len(tag) < 16 || binary.BigEndian.Uint32(tag[12:]) != 12 {
		return ""
	}
	// Languages beyond the hundredth are not looked at.
	count := min(binary.BigEndian.Uint32(tag[8:]), 100, uint32(len(tag)-16)/12)
	text := ""
	for i := range int(count) {
		record := tag[16+12*i:]
		size := uint64(binary.BigEndian.Uint32(record[4:]))
		offset := uint64(binary.BigEndian.Uint32(record[8:]))
		if offset+size > uint64(len(tag)) {
			continue
		}
		english := string(record[:2]) == "en"
		if english || text == "" {
			text = utf16Text(tag[offset:][:min(size, 2*maxDescription)])
		}
		if english {
			break
		}
	}
	return text
}

func utf16Text(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	return printable(string(utf16.Decode(units)))
}

// printable cuts a text at its first NUL and at maxDescription bytes, and
// replaces what would disturb a line of a log.
func printable(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	var b strings.Builder
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = '\uFFFD'
		}
		if b.Len()+len(string(r)) > maxDescription {
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}
