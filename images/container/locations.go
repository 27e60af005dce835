package container

import (
	"math"
	"slices"
)

// location is where an item is, by an iloc box: ISO/IEC 14496-12, 8.11.3.
type location struct {
	item    uint32
	method  uint64
	extents uint64
}

// extent is a piece of an item; offset counts from what the method says.
type extent struct{ index, offset, length uint64 }

// eachLocation reads an iloc box of the versions 0 to 2.
func eachLocation(body []byte, visit func(location) error, piece func(location, extent) error) error {
	c := cursor{b: body}
	version := c.uint(1)
	c.uint(3) // flags
	sizes := c.uint(2)
	field := func(n uint) int { return int(sizes >> (12 - 4*n) & 15) }
	offsetSize, lengthSize, baseSize, indexSize := field(0), field(1), field(2), field(3)
	if version == 0 {
		indexSize = 0
	}
	for _, s := range []int{offsetSize, lengthSize, baseSize, indexSize} {
		if s != 0 && s != 4 && s != 8 {
			return unsound("its box \"iloc\" has numbers of %d bytes", s)
		}
	}
	// Without a length a piece would be all there is, and cost nothing to say.
	if version > 2 || lengthSize == 0 {
		return unsound("its box \"iloc\" has the version %d and lengths of %d bytes", version, lengthSize)
	}
	for count := c.uint(idSize(version == 2)); count > 0; count-- {
		l := location{item: uint32(c.uint(idSize(version == 2)))}
		if version > 0 {
			l.method = c.uint(2) & 15
		}
		elsewhere := c.uint(2)
		base := c.uint(baseSize)
		l.extents = c.uint(2)
		switch {
		case c.short:
			return unsound("its box \"iloc\" is cut off")
		case elsewhere != 0:
			return unsound("its item %d is in another file", l.item)
		case l.method > inItem:
			return unsound("its item %d is in no known place", l.item)
		}
		if err := visit(l); err != nil {
			return err
		}
		for range l.extents {
			e := extent{index: c.uint(indexSize), offset: c.uint(offsetSize), length: c.uint(lengthSize)}
			if c.short || base > math.MaxUint32 || e.offset > math.MaxUint32 || e.length > math.MaxUint32 || e.length == 0 {
				return unsound("a piece of its item %d is nowhere", l.item)
			}
			e.offset += base
			if err := piece(l, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// relocation writes an iloc box for a file in which meta has another length.
type relocation struct {
	file   *avifFile
	idat   *box
	shift  int // how much longer meta is
	exifAt int // where the content of the Exif item will be

	out   []byte
	seen  bool   // the Exif item is in the box
	wiped []span // what the Exif item was
}

// span is a piece of the old file, or of the box idat.
type span struct {
	method     uint64
	start, end int
}

// shiftOf is how far the byte at a place in the old file moves.
func (r *relocation) shiftOf(at int) int {
	if at >= r.file.meta.end {
		return r.shift
	}
	return 0
}

// rewrite writes the box anew: offsets and lengths of 4 bytes, no bases.
func (r *relocation) rewrite(body []byte) ([]byte, error) {
	version := body[0]
	indexSize := 0
	if version > 0 {
		indexSize = int(body[5] & 15)
	}
	r.seen, r.wiped = false, nil
	r.out = make([]byte, 0, len(body)+64)
	r.out = append(r.out, body[:4]...)
	r.out = append(r.out, 0x44, byte(indexSize))
	countSize := idSize(version == 2)
	c := cursor{b: body[6:]}
	count := c.uint(countSize)
	r.out = appendUint(r.out, count, countSize)
	skip := func(l location) bool { return r.file.exif.known && l.item == r.file.exif.item }
	err := eachLocation(body, func(l location) error {
		if !skip(l) {
			r.head(l, version)
			return nil
		}
		if r.seen || l.extents > maxWiped || l.method == inItem {
			return unsound("its Exif item is in more than one place, or in another item")
		}
		r.exifEntry(version, indexSize)
		return nil
	}, func(l location, e extent) error {
		at, err := r.place(l, e)
		if err != nil {
			return err
		}
		if skip(l) {
			return r.wipe(l, e)
		}
		r.out = appendUint(r.out, e.index, indexSize)
		r.out = appendUint(r.out, at, 4)
		r.out = appendUint(r.out, e.length, 4)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.file.exif.payload != nil && !r.seen {
		if count == 1<<(8*countSize)-1 {
			return nil, unsound("there is no room for a further item")
		}
		copy(r.out[6:], appendUint(nil, count+1, countSize))
		r.exifEntry(version, indexSize)
	}
	return r.out, r.keepShared(body)
}

// head writes what stands before an item's pieces.
func (r *relocation) head(l location, version byte) {
	r.out = appendUint(r.out, uint64(l.item), idSize(version == 2))
	if version > 0 {
		r.out = appendUint(r.out, l.method, 2)
	}
	r.out = appendUint(r.out, 0, 2) // in this file
	r.out = appendUint(r.out, l.extents, 2)
}

// exifEntry writes the new place of the Exif item.
func (r *relocation) exifEntry(version byte, indexSize int) {
	r.seen = true
	r.head(location{item: r.file.exif.item, method: inFile, extents: 1}, version)
	r.out = appendUint(r.out, 0, indexSize)
	r.out = appendUint(r.out, uint64(r.exifAt), 4)
	r.out = appendUint(r.out, uint64(len(r.file.exif.payload)), 4)
}

// place is the offset that a piece gets.
func (r *relocation) place(l location, e extent) (uint64, error) {
	end := e.offset + e.length
	switch l.method {
	case inFile:
		meta := r.file.meta
		if end > uint64(len(r.file.file)) {
			return 0, unsound("its item %d is cut off", l.item)
		}
		if e.offset < uint64(meta.end) && end > uint64(meta.start) {
			return 0, unsound("its item %d lies in the box \"meta\"", l.item)
		}
		return uint64(int(e.offset) + r.shiftOf(int(e.offset))), nil
	case inIdat:
		if r.idat == nil || end > uint64(len(r.idat.body)) {
			return 0, unsound("its item %d is cut off", l.item)
		}
	}
	if end > math.MaxUint32 {
		return 0, unsound("its item %d is cut off", l.item)
	}
	return e.offset, nil
}

// wipe notes that the old content of the Exif item, which nothing will point
// to any more, is not to go out with the file.
func (r *relocation) wipe(l location, e extent) error {
	w := span{l.method, int(e.offset), int(e.offset + e.length)}
	inside := func(x box) bool {
		return x.kind == "mdat" && w.start >= x.end-len(x.body) && w.end <= x.end
	}
	if l.method == inFile && !slices.ContainsFunc(r.file.top, inside) {
		return unsound("its Exif item is not where data belongs")
	}
	r.wiped = append(r.wiped, w)
	return nil
}

// keepShared refuses to wipe what other items use, too.
func (r *relocation) keepShared(body []byte) error {
	if len(r.wiped) == 0 {
		return nil
	}
	return eachLocation(body, func(location) error { return nil }, func(l location, e extent) error {
		if l.item == r.file.exif.item {
			return nil
		}
		for _, w := range r.wiped {
			if l.method == w.method && int(e.offset) < w.end && int(e.offset+e.length) > w.start {
				return unsound("its Exif item shares bytes with the item %d", l.item)
			}
		}
		return nil
	})
}

// wipeIdat clears what is to be wiped of the box idat.
func (r *relocation) wipeIdat() {
	for _, w := range r.wiped {
		if w.method == inIdat {
			r.idat.body = slices.Clone(r.idat.body)
			clear(r.idat.body[w.start:w.end])
		}
	}
}

// wipeFile clears what is to be wiped of the new file.
func (r *relocation) wipeFile(out []byte) {
	for _, w := range r.wiped {
		if w.method == inFile {
			to := r.shiftOf(w.start)
			clear(out[w.start+to : w.end+to])
		}
	}
}
