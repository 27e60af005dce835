package header

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Markers of JPEG: ITU-T T.81, table B.1.
const (
	markTEM  = 0x01
	markDHT  = 0xc4
	markJPG  = 0xc8
	markDAC  = 0xcc
	markRST0 = 0xd0
	markRST7 = 0xd7
	markSOI  = 0xd8
	markEOI  = 0xd9
	markSOS  = 0xda
	markAPP1 = 0xe1
	markAPP2 = 0xe2
)

const (
	exifPrefix = "Exif\x00"        // and one more byte, mostly zero: EXIF 2.32, 4.7.2
	iccPrefix  = "ICC_PROFILE\x00" // ICC.1:2022, B.4
	xmpPrefix  = "http://ns.adobe.com/xap/1.0/\x00"
	mpfPrefix  = "MPF\x00"                         // CIPA DC-007, 5.1
	gainPrefix = "urn:iso:std:iso:ts:21496:-1\x00" // ISO 21496-1, annex C
)

// gainMapMarks are what XMP says of gain maps: the namespaces of Ultra HDR and
// of Apple's.
func gainMapMarks() [2]string {
	return [2]string{"http://ns.adobe.com/hdr-gain-map/1.0/", "http://ns.apple.com/HDRGainMap/1.0/"}
}

// gainMap reports whether there is one of the marks.
func gainMap(b []byte) bool {
	for _, mark := range gainMapMarks() {
		if bytes.Contains(b, []byte(mark)) {
			return true
		}
	}
	return false
}

// segments walks over the marker segments of a JPEG file.
type segments struct {
	file []byte
	pos  int
}

// next returns a marker and its content, none for those without. ok is false
// where the file ends or a segment is cut off. Like libjpeg it skips bytes that
// stand between segments.
func (s *segments) next() (marker byte, body []byte, ok bool) {
	for {
		at := bytes.IndexByte(s.file[s.pos:], 0xff)
		if at < 0 {
			return 0, nil, false
		}
		s.pos += at
		for s.pos < len(s.file) && s.file[s.pos] == 0xff {
			s.pos++
		}
		if s.pos == len(s.file) {
			return 0, nil, false
		}
		marker = s.file[s.pos]
		s.pos++
		switch {
		case marker == 0, marker == markTEM, marker >= markRST0 && marker <= markRST7:
			continue
		case marker == markSOI, marker == markEOI, marker == markSOS:
			return marker, nil, true
		}
		rest := s.file[s.pos:]
		if len(rest) < 2 {
			return 0, nil, false
		}
		n := int(binary.BigEndian.Uint16(rest))
		if n < 2 || n > len(rest) {
			return 0, nil, false
		}
		s.pos += n
		return marker, rest[2:n], true
	}
}

// isSOF says whether a marker begins a frame: ITU-T T.81, B.1.1.3.
func isSOF(marker byte) bool {
	return marker >= 0xc0 && marker <= 0xcf && marker != markDHT && marker != markJPG && marker != markDAC
}

// readJPEG reads the segments before the first scan. Images inside APP1
// (thumbnails) and after the end of the first one (MPF) are not looked at but
// for what the latter are called.
func readJPEG(file []byte) (Info, error) {
	i := Info{Depth: 8}
	s := segments{file: file, pos: 2}
	var (
		icc               profileParts
		seenEXIF, seenSOF bool
		several           bool // images in the file
	)
walk:
	for {
		marker, body, ok := s.next()
		switch {
		case !ok, marker == markSOS, marker == markEOI:
			break walk
		case marker == markSOI:
			return i, broken("a second picture begins before the first has a size")
		case isSOF(marker):
			if seenSOF { // which one a decoder believes is anybody's guess
				return i, broken("it has two frame headers")
			}
			if err := i.frameHeader(marker, body); err != nil {
				return i, err
			}
			seenSOF = true
		case marker == markAPP1 && !seenEXIF && len(body) > 6 && bytes.HasPrefix(body, []byte(exifPrefix)):
			seenEXIF = true
			i.readEXIF(body[6:])
		case marker == markAPP2 && bytes.HasPrefix(body, []byte(iccPrefix)):
			icc.add(body[len(iccPrefix):])
		default:
			several = several || marker == markAPP2 && bytes.HasPrefix(body, []byte(mpfPrefix))
			i.gainMapSegment(marker, body)
		}
	}
	if several && !i.GainMap {
		i.GainMap = gainMap(file[s.pos:]) // the second image says what it is
	}
	if !seenSOF {
		return i, broken("it ends or its pixels begin before there is a frame header")
	}
	if profile, there := icc.join(); there {
		i.setICC(profile)
	}
	return i, nil
}

// gainMapSegment looks for what tells of a gain map.
func (i *Info) gainMapSegment(marker byte, body []byte) {
	switch {
	case marker == markAPP1 && bytes.HasPrefix(body, []byte(xmpPrefix)):
		i.GainMap = i.GainMap || gainMap(body)
	case marker == markAPP2 && bytes.HasPrefix(body, []byte(gainPrefix)):
		i.GainMap = true
	}
}

// frameHeader reads an SOF segment: ITU-T T.81, B.2.2.
func (i *Info) frameHeader(marker byte, body []byte) error {
	if len(body) < 6 {
		return broken("the frame header is too short")
	}
	i.Depth = int(body[0])
	i.Height = int(binary.BigEndian.Uint16(body[1:]))
	i.Width = int(binary.BigEndian.Uint16(body[3:]))
	i.Components = int(body[5])
	i.Progressive = marker&3 == 2 // SOF2, 6, 10, 14
	if i.Height == 0 {
		return fmt.Errorf("%w: its height comes after the pixels (DNL)", ErrUnsupported)
	}
	return nil
}

// profileParts collects an ICC profile's chunks, which carry their number and
// how many there are: ICC.1:2022, B.4.
type profileParts struct {
	parts  [256][]byte // by number; 0 is never used
	count  byte
	seen   int
	broken bool
}

func (p *profileParts) add(chunk []byte) {
	if len(chunk) < 2 {
		p.broken = true
		return
	}
	number, count := chunk[0], chunk[1]
	if p.seen > 0 && count != p.count || number == 0 || number > count || p.parts[number] != nil {
		p.broken = true
		return
	}
	p.count = count
	p.parts[number] = chunk[2:]
	p.seen++
}

// join returns the profile, nil if it is broken; false if there is none.
func (p *profileParts) join() (profile []byte, there bool) {
	switch {
	case p.seen == 0:
		return nil, p.broken
	case p.broken, p.seen != int(p.count):
		return nil, true
	case p.count == 1:
		return p.parts[1], true
	}
	return bytes.Join(p.parts[1:int(p.count)+1], nil), true
}
