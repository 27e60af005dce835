package header

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// maxProperties is how many properties of an AVIF can be told apart:
// associations have 15 bits (ISO/IEC 23008-12, 9.3.2).
const maxProperties = 1<<15 - 1

// boxes goes over the boxes of the ISO base media format (ISO/IEC 14496-12,
// 4.2): type and content, clipped to what is there.
func boxes(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for len(b) >= 8 {
			head, size := uint64(8), uint64(binary.BigEndian.Uint32(b))
			switch {
			case size == 0: // to the end
				size = uint64(len(b))
			case size == 1 && len(b) >= 16:
				head, size = 16, binary.BigEndian.Uint64(b[8:])
			}
			if size < head {
				return
			}
			size = min(size, uint64(len(b)))
			if !yield(string(b[4:8]), b[head:size]) {
				return
			}
			b = b[size:]
		}
	}
}

// isAVIF looks for the brands of AV1 images: ISO/IEC 23000-22 and the AV1
// Image File Format, 6.
func isAVIF(file []byte) bool {
	if len(file) < 12 || string(file[4:8]) != "ftyp" {
		return false
	}
	for _, brands := range boxes(file) { // the first
		for n, brand := range chunked(brands, 4) {
			if n != 1 && (string(brand) == "avif" || string(brand) == "avis") { // 1: a version
				return true
			}
		}
		return false
	}
	return false
}

// chunked is slices.Chunk with a number and without a last part that is short.
func chunked(b []byte, size int) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for n := 0; len(b) >= size; n++ {
			if !yield(n, b[:size]) {
				return
			}
			b = b[size:]
		}
	}
}

// readAVIF finds the properties of the primary item.
func readAVIF(file []byte) (Info, error) {
	i := Info{Depth: 8}
	found := false
	for kind, body := range boxes(file) {
		switch {
		case kind == "meta" && len(body) >= 4 && !found:
			found = true
			if err := i.avifMeta(body[4:]); err != nil {
				return i, err
			}
		case kind == "moov":
			i.Frames = max(i.Frames, samples(body))
		}
	}
	if !found {
		return i, broken("there is no meta box in it")
	}
	return i, nil
}

// avifMeta reads what is of interest in a meta box: ISO/IEC 23008-12, 6 and 9.3.
func (i *Info) avifMeta(meta []byte) error {
	var (
		primary uint32
		ok      bool
		iprp    []byte
		own     []uint16
		number  uint16
	)
	for kind, body := range boxes(meta) {
		switch kind {
		case "pitm":
			primary, ok = primaryItem(body)
		case "iprp":
			iprp = body
		}
	}
	if !ok {
		return broken("it does not say which of its items is the picture")
	}
	for kind, body := range boxes(iprp) {
		if kind == "ipma" && own == nil {
			own = associations(body, primary)
		}
	}
	var shown avifShown
	for kind, body := range boxes(iprp) {
		if kind != "ipco" {
			continue
		}
		for kind, body := range boxes(body) {
			if number++; number > maxProperties {
				break
			}
			mine := slices.Contains(own, number)
			i.avifProperty(kind, body, mine)
			if mine {
				shown.property(kind, body)
			}
		}
		break
	}
	if i.Width == 0 || i.Height == 0 {
		return broken("its picture has no size (ispe)")
	}
	i.Orientation = shown.orientation()
	i.NotSRGB = shown.otherColours && i.ICC == nil
	if shown.cropped {
		return fmt.Errorf("%w: a part of it is to be shown (clap)", ErrUnsupported)
	}
	return nil
}

// avifShown is how a picture is to be shown.
type avifShown struct {
	quarters     byte // turned, anticlockwise (irot)
	mirrored     bool // then (imir)
	leftRight    bool // which sides change places
	cropped      bool // to a part of it (clap)
	otherColours bool // than sRGB's
}

// property reads ISO/IEC 23008-12, 6.5.10 and 6.5.12, and ISO/IEC 14496-12, 12.1.4 and 12.1.5.
func (s *avifShown) property(kind string, body []byte) {
	switch {
	case kind == "irot" && len(body) >= 1:
		s.quarters = body[0] & 3
	case kind == "imir" && len(body) >= 1:
		s.mirrored, s.leftRight = true, body[0]&1 == 1
	case kind == "clap":
		s.cropped = true
	case kind == "colr" && len(body) >= 10 && string(body[:4]) == "nclx":
		// ITU-T H.273: BT.709's primaries, and the curves that browsers take for sRGB's.
		primaries, curve := binary.BigEndian.Uint16(body[4:]), binary.BigEndian.Uint16(body[6:])
		s.otherColours = primaries != 1 && primaries != 2 || !slices.Contains([]uint16{1, 2, 6, 13}, curve)
	}
}

// orientation is the same as EXIF says it.
func (s *avifShown) orientation() int {
	switch {
	case !s.mirrored:
		return [4]int{1, 8, 3, 6}[s.quarters]
	case s.leftRight:
		return [4]int{2, 7, 4, 5}[s.quarters]
	default:
		return [4]int{4, 5, 2, 7}[s.quarters]
	}
}

func (i *Info) avifProperty(kind string, body []byte, own bool) {
	switch {
	case kind == "auxC" && bytes.Contains(body[:min(len(body), 64)], []byte(":alpha\x00")):
		i.Alpha = true // of whichever item: may be transparent
	case !own:
	case kind == "ispe" && len(body) >= 12:
		i.Width, i.Height = int(binary.BigEndian.Uint32(body[4:])), int(binary.BigEndian.Uint32(body[8:]))
	case kind == "pixi" && len(body) >= 6:
		i.Depth = int(body[5])
	case kind == "colr" && len(body) >= 4 && (string(body[:4]) == "prof" || string(body[:4]) == "rICC"):
		i.setICC(body[4:])
	}
}

// primaryItem reads pitm: ISO/IEC 14496-12, 8.11.4.
func primaryItem(b []byte) (uint32, bool) {
	switch {
	case len(b) >= 6 && b[0] == 0:
		return uint32(binary.BigEndian.Uint16(b[4:])), true
	case len(b) >= 8:
		return binary.BigEndian.Uint32(b[4:]), true
	}
	return 0, false
}

// associations reads from ipma which properties an item has, by their numbers
// from 1: ISO/IEC 23008-12, 9.3.2.
func associations(b []byte, item uint32) []uint16 {
	if len(b) < 8 {
		return nil
	}
	idSize, size := 2, 1
	if b[0] > 0 {
		idSize = 4
	}
	if b[3]&1 != 0 {
		size = 2
	}
	for b = b[8:]; len(b) >= idSize+1; {
		id := uint32(binary.BigEndian.Uint16(b))
		if idSize == 4 {
			id = binary.BigEndian.Uint32(b)
		}
		n := int(b[idSize]) * size
		b = b[idSize+1:]
		if n > len(b) {
			return nil
		}
		if id == item {
			var own []uint16
			for _, a := range chunked(b[:n], size) {
				own = append(own, property(a))
			}
			return own
		}
		b = b[n:]
	}
	return nil
}

// property is the number in an association; the first bit says "essential".
func property(a []byte) uint16 {
	if len(a) == 1 {
		return uint16(a[0] & 0x7f)
	}
	return binary.BigEndian.Uint16(a) & 0x7fff
}

// samples counts the frames of a sequence: those of its longest track, by stsz
// (ISO/IEC 14496-12, 8.7.3).
func samples(moov []byte) int {
	most := 0
	for kind, b := range boxes(moov) {
		if kind != "trak" {
			continue
		}
		for _, inner := range []string{"mdia", "minf", "stbl", "stsz"} {
			b = child(b, inner)
		}
		if len(b) >= 12 {
			most = max(most, int(min(binary.BigEndian.Uint32(b[8:]), MaxFrames)))
		}
	}
	return most
}

// child is the content of the first box of a type.
func child(b []byte, kind string) []byte {
	for k, body := range boxes(b) {
		if k == kind {
			return body
		}
	}
	return nil
}
