package header

import "encoding/binary"

// readGIF walks over the blocks: GIF89a specification, sections 17 to 27.
func readGIF(file []byte) (Info, error) {
	i := Info{Lossless: true, Palette: true, Depth: 8}
	if len(file) < 13 {
		return i, broken("it ends in its screen descriptor")
	}
	i.Width = int(binary.LittleEndian.Uint16(file[6:]))
	i.Height = int(binary.LittleEndian.Uint16(file[8:]))
	pos := 13 + colourTable(file[10])
	disposed := false
	for pos < len(file) && i.Frames < MaxFrames {
		kind := file[pos]
		pos++
		switch kind {
		case 0x2c:
			next, err := i.gifFrame(file, pos)
			if err != nil {
				return i, err
			}
			pos = next
		case 0x21:
			if pos+4 < len(file) && file[pos] == 0xf9 && file[pos+1] == 4 { // graphic control
				flags := file[pos+2]
				i.Alpha = i.Alpha || flags&1 != 0
				disposed = disposed || flags>>2&7 == 2
			}
			pos = skipBlocks(file, pos+1)
		default: // 0x3b ends the file; so does, to most readers, rubbish
			pos = len(file)
		}
	}
	if i.Frames == 0 {
		return i, broken("there is no frame in it")
	}
	// To the background means to nothing, with all browsers.
	i.Alpha = i.Alpha || i.Frames > 1 && disposed
	return i, nil
}

// colourTable is the length in bytes of the table that flags announce.
func colourTable(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 3 << (flags&7 + 1)
}

// gifFrame reads an image descriptor at pos and returns where its data ends.
func (i *Info) gifFrame(file []byte, pos int) (int, error) {
	if len(file)-pos < 9 {
		return len(file), nil // cut off: not there
	}
	le := binary.LittleEndian
	x, y := int(le.Uint16(file[pos:])), int(le.Uint16(file[pos+2:]))
	width, height := int(le.Uint16(file[pos+4:])), int(le.Uint16(file[pos+6:]))
	flags := file[pos+8]
	if i.Frames == 0 {
		if i.Width == 0 && i.Height == 0 { // some old writers leave the screen out
			i.Width, i.Height = x+width, y+height
		}
		i.Progressive = flags&0x40 != 0
		i.Alpha = i.Alpha || x > 0 || y > 0 || width < i.Width || height < i.Height
	}
	// Readers differ in what they do with such a frame: some let the screen
	// grow, which would make every limit on its size void.
	if x+width > i.Width || y+height > i.Height {
		return 0, broken("frame %d has %d × %d pixels at %d, %d and does not fit on the screen of %d × %d",
			i.Frames+1, width, height, x, y, i.Width, i.Height)
	}
	i.Frames++
	return skipBlocks(file, pos+9+colourTable(flags)+1), nil // 1: the code size
}

// skipBlocks returns where the sub-blocks at pos end, at most the file's end.
func skipBlocks(file []byte, pos int) int {
	for pos < len(file) {
		n := int(file[pos])
		pos += 1 + n
		if n == 0 {
			return pos
		}
	}
	return len(file)
}
