package container

import (
	"encoding/binary"
	"slices"
)

// maxBoxes is how many boxes may stand side by side. It is what an association
// with a property can count to (ISO/IEC 23008-12, 9.3.2), and far more than
// images have.
const maxBoxes = 1<<15 - 1

// box is a box of the ISO base media format: ISO/IEC 14496-12, 4.2.
type box struct {
	kind       string
	body       []byte // shares the file's memory
	start, end int    // in what was parsed, head included
	open       bool   // of size 0, which means to the end
}

// parseBoxes cuts bytes into boxes. Only the outermost may have no size.
func parseBoxes(b []byte, outermost bool) ([]box, error) {
	var all []box
	for at := 0; at < len(b); {
		rest := b[at:]
		if len(rest) < 8 {
			return nil, unsound("%d bytes are left where a box should begin", len(rest))
		}
		x := box{kind: string(rest[4:8]), start: at}
		head, size := uint64(8), uint64(binary.BigEndian.Uint32(rest))
		switch {
		case size == 0 && outermost:
			x.open = true
			size = uint64(len(rest))
		case size == 1 && len(rest) >= 16:
			head, size = 16, binary.BigEndian.Uint64(rest[8:])
		}
		if size < head || size > uint64(len(rest)) {
			return nil, unsound("the box %q says that it has %d bytes, and %d are left", x.kind, size, len(rest))
		}
		if len(all) == maxBoxes {
			return nil, unsound("it has more than %d boxes in a row", maxBoxes)
		}
		x.body = rest[head:size:size]
		at += int(size)
		x.end = at
		all = append(all, x)
	}
	return all, nil
}

// appendBox writes a box. All of a file's have less than 4 GiB: see maxAVIF.
func appendBox(b []byte, kind string, body ...[]byte) []byte {
	size := 8
	for _, part := range body {
		size += len(part)
	}
	b = slices.Grow(b, size)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = append(b, kind...)
	for _, part := range body {
		b = append(b, part...)
	}
	return b
}

// joinBoxes writes boxes one after another.
func joinBoxes(boxes []box) []byte {
	size := 0
	for _, x := range boxes {
		size += 8 + len(x.body)
	}
	b := make([]byte, 0, size)
	for _, x := range boxes {
		b = appendBox(b, x.kind, x.body)
	}
	return b
}

// only is the one box of a kind, nil if there is none.
func only(boxes []box, kind string) (*box, error) {
	var found *box
	for n := range boxes {
		if boxes[n].kind != kind {
			continue
		}
		if found != nil {
			return nil, unsound("it has two boxes %q where one belongs", kind)
		}
		found = &boxes[n]
	}
	return found, nil
}

// needed is the one box of a kind, with at least so many bytes in it.
func needed(boxes []box, kind string, least int) (*box, error) {
	found, err := only(boxes, kind)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, unsound("it has no box %q", kind)
	case len(found.body) < least:
		return nil, unsound("its box %q has %d bytes", kind, len(found.body))
	}
	return found, nil
}

// cursor reads numbers of several sizes. After a read beyond the end short is
// true and all further ones are zero.
type cursor struct {
	b     []byte
	short bool
}

// uint reads a number of 0, 1, 2, 4 or 8 bytes; one of none is zero.
func (c *cursor) uint(size int) uint64 {
	if c.short || len(c.b) < size {
		c.short = true
		return 0
	}
	var v uint64
	for _, x := range c.b[:size] {
		v = v<<8 | uint64(x)
	}
	c.b = c.b[size:]
	return v
}

// appendUint writes a number of 0 to 8 bytes.
func appendUint(b []byte, v uint64, size int) []byte {
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}
