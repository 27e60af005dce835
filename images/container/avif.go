package container

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// maxAVIF is the largest file that is edited, in bytes, and the largest profile
// and EXIF: with less than 4 GiB in all, 32 bits do for every size and offset.
const maxAVIF = 1 << 30

// avifFile is a file while it is edited. The bodies of meta's boxes are
// replaced, never written into.
type avifFile struct {
	file []byte
	top  []box
	meta *box // in top
	head []byte
	// boxes are those in meta. primary is the item that is the image.
	boxes   []box
	primary uint32
	exif    exifItem
}

// exifItem is what is to be written of an Exif item.
type exifItem struct {
	payload []byte // nil: nothing is to be done
	item    uint32
	known   bool // the file has it already; the old content is to be wiped
}

// AVIF puts a profile and EXIF into a still AVIF file (ISO/IEC 23000-22,
// 23008-12): a colr box of type prof among the item's properties, an Exif item.
// A colr box of type nclx stays. It returns file itself when there is nothing
// to add. Sequences, files over 1 GiB and images whose parts are outside of
// the file are refused with ErrFormat.
func AVIF(file []byte, m Metadata) ([]byte, error) {
	if m.empty() {
		return file, nil
	}
	out, err := editAVIF(file, m)
	if err != nil {
		return nil, fmt.Errorf("putting metadata into an AVIF file: %w", err)
	}
	return out, nil
}

func editAVIF(file []byte, m Metadata) ([]byte, error) {
	if len(file) > maxAVIF || len(m.ICC) > maxAVIF || len(m.EXIF) > maxAVIF {
		return nil, unsound("%d bytes, with %d of profile and %d of EXIF, are more than is edited", len(file), len(m.ICC), len(m.EXIF))
	}
	a, err := parseAVIF(file)
	if err != nil {
		return nil, err
	}
	if len(m.ICC) > 0 {
		if err := a.setProfile(m.ICC); err != nil {
			return nil, err
		}
	}
	if len(m.EXIF) > 0 {
		if err := a.setEXIF(m.EXIF); err != nil {
			return nil, err
		}
	}
	return a.write()
}

// parseAVIF finds the boxes that say where everything is.
func parseAVIF(file []byte) (*avifFile, error) {
	top, err := parseBoxes(file, true)
	if err != nil {
		return nil, err
	}
	if len(top) == 0 || top[0].kind != "ftyp" || !hasBrand(top[0].body, "avif") {
		return nil, unsound("it does not begin as an AVIF file of a still picture")
	}
	for _, x := range top {
		switch x.kind {
		case "moov", "moof", "mfra", "sidx": // they hold offsets of their own
			return nil, unsound("it is a sequence (it has a box %q)", x.kind)
		}
	}
	a := &avifFile{file: file, top: top}
	if a.meta, err = needed(top, "meta", 4); err != nil {
		return nil, err
	}
	a.head = a.meta.body[:4]
	if a.boxes, err = parseBoxes(a.meta.body[4:], false); err != nil {
		return nil, err
	}
	pitm, err := needed(a.boxes, "pitm", 6)
	if err != nil {
		return nil, err
	}
	c := cursor{b: pitm.body[4:]}
	a.primary = uint32(c.uint(idSize(pitm.body[0] > 0)))
	if c.short || a.primary == 0 {
		return nil, unsound("it does not say which of its items is the picture")
	}
	return a, nil
}

// hasBrand looks through ftyp: a main brand, a version, and further brands.
func hasBrand(ftyp []byte, want string) bool {
	n := 0
	for brand := range slices.Chunk(ftyp, 4) {
		if n != 1 && string(brand) == want {
			return true
		}
		n++
	}
	return false
}

// idSize is how many bytes an item's number takes.
func idSize(wide bool) int {
	if wide {
		return 4
	}
	return 2
}

// write puts the file together: what was before meta, the new meta, the rest,
// and the EXIF in a box of its own.
func (a *avifFile) write() ([]byte, error) {
	iloc, err := needed(a.boxes, "iloc", 8)
	if err != nil {
		return nil, err
	}
	before, after := a.file[:a.meta.start], a.file[a.meta.end:]
	old := iloc.body
	// The length of meta does not depend on the offsets in it, but they depend
	// on its length. So it is written twice.
	r := relocation{file: a}
	if r.idat, err = only(a.boxes, "idat"); err != nil {
		return nil, err
	}
	var meta []byte
	for range 2 {
		if iloc.body, err = r.rewrite(old); err != nil {
			return nil, err
		}
		r.wipeIdat()
		meta = appendBox(nil, "meta", a.head, joinBoxes(a.boxes))
		r.shift = len(meta) - (a.meta.end - a.meta.start)
		r.exifAt = len(a.file) + r.shift + 8
	}
	out := make([]byte, 0, len(a.file)+r.shift+8+len(a.exif.payload))
	out = append(out, before...)
	out = append(out, meta...)
	out = append(out, after...)
	r.wipeFile(out)
	if a.exif.payload == nil {
		return out, nil
	}
	if last := a.top[len(a.top)-1]; last.open && last.kind != "meta" {
		binary.BigEndian.PutUint32(out[last.start+r.shiftOf(last.start):], uint32(last.end-last.start))
	}
	return appendBox(out, "mdat", a.exif.payload), nil
}
