package container

import (
	"encoding/binary"
	"math"
	"slices"
)

// Construction methods: where an item's bytes are. ISO/IEC 14496-12, 8.11.3.
const (
	inFile = 0
	inIdat = 1
	inItem = 2
)

// maxWiped is in how many pieces an Exif item may be that is replaced. Writers
// make one.
const maxWiped = 16

// setEXIF makes EXIF the content of the Exif item that describes the primary
// item, a new one if there is none: ISO/IEC 23008-12, annex A.2.
func (a *avifFile) setEXIF(exif []byte) error {
	iinf, err := needed(a.boxes, "iinf", 6)
	if err != nil {
		return err
	}
	iref, err := only(a.boxes, "iref")
	if err != nil {
		return err
	}
	items, err := parseItems(iinf.body)
	if err != nil {
		return err
	}
	refs, err := parseReferences(iref)
	if err != nil {
		return err
	}
	// The offset of the TIFF header, which follows at once.
	a.exif.payload = append([]byte{0, 0, 0, 0}, exif...)
	describing := refs.describing(a.primary)
	for _, id := range items.exif {
		if describing[id] {
			a.exif.item, a.exif.known = id, true
			return nil
		}
	}
	iloc, err := needed(a.boxes, "iloc", 8)
	if err != nil {
		return err
	}
	err = eachLocation(iloc.body, func(l location) error {
		items.use(l.item)
		return nil
	}, func(location, extent) error { return nil })
	if err != nil {
		return err
	}
	if a.exif.item, err = items.free(a.primary); err != nil {
		return err
	}
	if iinf.body, err = items.add(a.exif.item); err != nil {
		return err
	}
	body, err := refs.add(a.exif.item, a.primary)
	if err != nil {
		return err
	}
	if iref != nil {
		iref.body = body
	} else {
		a.boxes = append(a.boxes, box{kind: "iref", body: body})
	}
	return nil
}

// itemInfo is an iinf box: ISO/IEC 14496-12, 8.11.6.
type itemInfo struct {
	body  []byte
	used  [1 << 16 / 64]uint64 // a bit for each number of 16 bits that is taken
	exif  []uint32             // items of the type Exif
	coded []uint32             // items that are pictures coded in AV1
}

func parseItems(body []byte) (*itemInfo, error) {
	i := &itemInfo{body: body}
	c := cursor{b: body[4:]}
	count := c.uint(idSize(body[0] > 0))
	entries, err := parseBoxes(c.b, false)
	if err != nil {
		return nil, err
	}
	if c.short || count != uint64(len(entries)) {
		return nil, unsound("it should have %d items and has %d", count, len(entries))
	}
	for _, e := range entries {
		if e.kind != "infe" || len(e.body) < 6 {
			return nil, unsound("it has a box %q with %d bytes among its items", e.kind, len(e.body))
		}
		c := cursor{b: e.body[4:]}
		id := uint32(c.uint(idSize(e.body[0] >= 3)))
		i.use(id)
		c.uint(2) // protection
		if e.body[0] < 2 || c.short || len(c.b) < 4 {
			continue
		}
		switch string(c.b[:4]) {
		case "Exif":
			i.exif = append(i.exif, id)
		case "av01":
			i.coded = append(i.coded, id)
		}
	}
	return i, nil
}

func (i *itemInfo) use(id uint32) {
	if id <= math.MaxUint16 {
		i.used[id/64] |= 1 << (id % 64)
	}
}

// free is a number that no item has.
func (i *itemInfo) free(primary uint32) (uint32, error) {
	i.use(primary)
	for id := uint32(1); id <= math.MaxUint16; id++ {
		if i.used[id/64]>>(id%64)&1 == 0 {
			return id, nil
		}
	}
	return 0, unsound("there is no number left for a further item")
}

// add writes the box with a further item of the type Exif.
func (i *itemInfo) add(id uint32) ([]byte, error) {
	infe := appendUint([]byte{2, 0, 0, 0}, uint64(id), 2)
	infe = append(infe, "\x00\x00Exif\x00"...) // not protected, and without a name
	out := append(slices.Clip(i.body), appendBox(nil, "infe", infe)...)
	if i.body[0] > 0 {
		binary.BigEndian.PutUint32(out[4:], binary.BigEndian.Uint32(out[4:])+1)
		return out, nil
	}
	count := binary.BigEndian.Uint16(out[4:])
	if count == math.MaxUint16 {
		return nil, unsound("there is no room for a further item")
	}
	binary.BigEndian.PutUint16(out[4:], count+1)
	return out, nil
}

// references is an iref box: ISO/IEC 14496-12, 8.11.12.
type references struct {
	body    []byte // nil: there is none
	entries []box
}

func parseReferences(iref *box) (references, error) {
	if iref == nil {
		return references{}, nil
	}
	if len(iref.body) < 4 {
		return references{}, unsound("its box \"iref\" has %d bytes", len(iref.body))
	}
	entries, err := parseBoxes(iref.body[4:], false)
	return references{iref.body, entries}, err
}

// describing are the items that are metadata of another.
func (r references) describing(to uint32) map[uint32]bool {
	items := map[uint32]bool{} // at most one for each box: maxBoxes
	for _, e := range r.entries {
		if e.kind != "cdsc" {
			continue
		}
		size := idSize(r.body[0] > 0)
		c := cursor{b: e.body}
		from := uint32(c.uint(size))
		for n := c.uint(2); n > 0 && !c.short; n-- {
			if uint32(c.uint(size)) == to && !c.short {
				items[from] = true
			}
		}
	}
	return items
}

// add writes the box with a further reference.
func (r references) add(from, to uint32) ([]byte, error) {
	body := r.body
	switch {
	case body == nil && to > math.MaxUint16:
		body = []byte{1, 0, 0, 0}
	case body == nil:
		body = []byte{0, 0, 0, 0}
	case body[0] == 0 && to > math.MaxUint16:
		return nil, unsound("its box \"iref\" cannot name the picture's item %d", to)
	}
	size := idSize(body[0] > 0)
	cdsc := appendUint(nil, uint64(from), size)
	cdsc = appendUint(cdsc, 1, 2)
	cdsc = appendUint(cdsc, uint64(to), size)
	return append(slices.Clip(body), appendBox(nil, "cdsc", cdsc)...), nil
}
