package container

import (
	"fmt"
	"slices"
)

// maxPieces is in how many pieces a coded picture may be that is checked. Writers make
// one.
const maxPieces = 16

// CheckAVIF finds out whether a still AVIF file can be decoded: whether it has each of
// its coded pictures whole, in a bitstream whose headers say what follows them. It reads
// headers alone, in microseconds. What can only be found by decoding it does not find.
//
// It is for what an encoder has just written: libaom 3.6.0, for one, writes files of
// large pictures that its own decoder reads and no browser does. Errors are of ErrFormat.
func CheckAVIF(file []byte) error {
	if err := checkCoded(file); err != nil {
		return fmt.Errorf("checking an AVIF file: %w", err)
	}
	return nil
}

func checkCoded(file []byte) error {
	if len(file) > maxAVIF {
		return unsound("%d bytes are more than is checked", len(file))
	}
	a, err := parseAVIF(file)
	if err != nil {
		return err
	}
	iinf, err := needed(a.boxes, "iinf", 6)
	if err != nil {
		return err
	}
	items, err := parseItems(iinf.body)
	if err != nil {
		return err
	}
	if len(items.coded) == 0 {
		return unsound("it has no item that is a coded picture")
	}
	coded, err := a.contents(items.coded)
	if err != nil {
		return err
	}
	for _, id := range items.coded {
		if err := checkStill(coded[id]); err != nil {
			return fmt.Errorf("its item %d: %w", id, err)
		}
	}
	return nil
}

// contents returns the bytes of items.
func (a *avifFile) contents(wanted []uint32) (map[uint32][]byte, error) {
	iloc, err := needed(a.boxes, "iloc", 8)
	if err != nil {
		return nil, err
	}
	idat, err := only(a.boxes, "idat")
	if err != nil {
		return nil, err
	}
	got := map[uint32][]byte{}
	err = eachLocation(iloc.body, func(l location) error {
		if slices.Contains(wanted, l.item) && (l.method == inItem || l.extents > maxPieces || got[l.item] != nil) {
			return unsound("its item %d is in more than one place, or in another item", l.item)
		}
		return nil
	}, func(l location, e extent) error {
		if !slices.Contains(wanted, l.item) {
			return nil
		}
		from := a.file
		if l.method == inIdat {
			if from = nil; idat != nil {
				from = idat.body
			}
		}
		if e.offset+e.length > uint64(len(from)) {
			return unsound("its item %d is cut off", l.item)
		}
		if piece := from[e.offset : e.offset+e.length : e.offset+e.length]; l.extents == 1 {
			got[l.item] = piece
		} else {
			got[l.item] = append(got[l.item], piece...)
		}
		return nil
	})
	return got, err
}
