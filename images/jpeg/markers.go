package jpeg

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
)

// Markers (table B.1).
const (
	markerSOF0 = 0xC0 // baseline
	markerSOF1 = 0xC1 // extended sequential
	markerSOF2 = 0xC2 // progressive
	markerDHT  = 0xC4
	markerJPG  = 0xC8
	markerDAC  = 0xCC
	markerSOFF = 0xCF // the last frame header; those not above are not supported
	markerRST0 = 0xD0
	markerRST7 = 0xD7
	markerSOI  = 0xD8
	markerEOI  = 0xD9
	markerSOS  = 0xDA
	markerDQT  = 0xDB
	markerDRI  = 0xDD
	markerAPP0 = 0xE0
	markerAPPE = 0xEE
	markerTEM  = 0x01
)

// decoder is one file being decoded.
type decoder struct {
	data []byte
	pos  int
	o    Options

	size int  // samples a block's side: 8, 4, 2, 1
	last uint // the last coefficient that is needed for it

	width, height int
	progressive   bool
	components    []component
	mcusX, mcusY  int
	hMax, vMax    int

	quantisers [4]*[64]uint16
	huffmans   [2][4]*spec // DC, AC
	interval   int         // MCUs from one restart marker to the next; 0: none
	jfif       bool
	adobe      bool
	transform  byte // of adobe

	scans   int
	scanned bool // some scan's header was sound
	// damage is the first thing that was wrong with a file that goes on being
	// decoded.
	damage string
}

func (d *decoder) damaged(what string) {
	d.damage = cmp.Or(d.damage, what)
}

// read reads the whole file. After it each component has its samples.
func (d *decoder) read() error {
	if !bytes.HasPrefix(d.data, []byte{0xFF, markerSOI}) {
		return fmt.Errorf("%w: it does not begin with FF D8", ErrFormat)
	}
	d.pos = 2
	for !d.complete() {
		marker, ok := d.nextMarker()
		if !ok || marker == markerEOI {
			d.ended(ok)
			break
		}
		if marker >= markerRST0 && marker <= markerSOI || marker == markerTEM {
			continue // without a length (B.1.1.3); not where they belong, but harmless
		}
		segment, ok := d.segment()
		if !ok {
			d.damaged("it ends within its headers")
			break
		}
		if err := d.handle(marker, segment); err != nil {
			if !d.scanned || d.scans > d.o.MaxScans || !errors.Is(err, ErrFormat) {
				return err
			}
			d.damaged("what follows its first scan is broken")
			break
		}
	}
	switch {
	case !d.scanned && d.damage != "":
		return fmt.Errorf("%w: %s", ErrFormat, d.damage)
	case !d.scanned:
		return fmt.Errorf("%w: it has no picture", ErrFormat)
	case d.o.Whole && d.damage != "":
		return fmt.Errorf("%w: %s", ErrFormat, d.damage)
	}
	for i := range d.components {
		d.components[i].finish(d.progressive)
	}
	return nil
}

// ended is called at the end of a file that may not be complete.
func (d *decoder) ended(marker bool) {
	if !marker {
		d.damaged("its end is missing")
	}
	for i := range d.components {
		if !d.components[i].seen {
			d.damaged("a channel is missing")
		}
	}
}

// complete reports whether all of a sequential image has been read: what
// follows does not matter then, nor does a missing end.
func (d *decoder) complete() bool {
	if d.progressive || len(d.components) == 0 {
		return false
	}
	for i := range d.components {
		if !d.components[i].seen {
			return false
		}
	}
	return true
}

// nextMarker goes past the next marker, over garbage and fill bytes.
func (d *decoder) nextMarker() (marker byte, ok bool) {
	for {
		i := bytes.IndexByte(d.data[d.pos:], 0xFF)
		if i < 0 || d.pos+i+1 >= len(d.data) {
			d.pos = len(d.data)
			return 0, false
		}
		d.pos += i + 1
		if c := d.data[d.pos]; c != 0xFF {
			d.pos++
			if c != 0 {
				return c, true
			}
		}
	}
}

// segment returns the parameters of the marker before pos and goes past them.
func (d *decoder) segment() ([]byte, bool) {
	if d.pos+2 > len(d.data) {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(d.data[d.pos:]))
	if n < 2 || d.pos+n > len(d.data) {
		return nil, false
	}
	s := d.data[d.pos+2 : d.pos+n]
	d.pos += n
	return s, true
}

func (d *decoder) handle(marker byte, s []byte) error {
	switch {
	case marker == markerSOF0 || marker == markerSOF1 || marker == markerSOF2:
		return d.readFrame(s, marker == markerSOF2)
	case marker == markerDHT:
		return d.readHuffman(s)
	case marker == markerDAC:
		return fmt.Errorf("%w: arithmetic coding", ErrUnsupported)
	case marker >= markerSOF0 && marker <= markerSOFF && marker != markerJPG:
		return fmt.Errorf("%w: lossless, hierarchical or arithmetic coding (frame type %d)", ErrUnsupported, marker-markerSOF0)
	case marker == markerSOS:
		return d.readScan(s)
	case marker == markerDQT:
		return d.readQuantisers(s)
	case marker == markerDRI:
		if len(s) >= 2 {
			d.interval = int(binary.BigEndian.Uint16(s))
		}
	case marker == markerAPP0 && bytes.HasPrefix(s, []byte("JFIF\x00")):
		d.jfif = true
	case marker == markerAPPE && bytes.HasPrefix(s, []byte("Adobe")) && len(s) >= 12:
		d.adobe, d.transform = true, s[11]
	}
	return nil
}

// readQuantisers reads DQT (B.2.4.1).
func (d *decoder) readQuantisers(s []byte) error {
	for len(s) > 0 {
		precision, id := s[0]>>4, s[0]&15
		n := 1 + 64*(1+int(precision))
		if precision > 1 || id > 3 || len(s) < n {
			return fmt.Errorf("%w: a quantisation table is broken", ErrFormat)
		}
		table := new([64]uint16)
		for k := range table {
			if precision == 0 {
				table[k] = uint16(s[1+k])
			} else {
				table[k] = binary.BigEndian.Uint16(s[1+2*k:])
			}
		}
		d.quantisers[id] = table
		s = s[n:]
	}
	return nil
}

// readHuffman reads DHT (B.2.4.2). Tables are made ready when a scan wants
// them: a file may define any number.
func (d *decoder) readHuffman(s []byte) error {
	for len(s) > 0 {
		if len(s) < 17 || s[0]>>4 > 1 || s[0]&15 > 3 {
			return fmt.Errorf("%w: a huffman table is broken", ErrFormat)
		}
		t := new(spec)
		n := 0
		for i := range t.counts {
			t.counts[i] = s[1+i]
			n += int(s[1+i])
		}
		if n > 256 || len(s) < 17+n {
			return fmt.Errorf("%w: a huffman table is broken", ErrFormat)
		}
		t.symbols = s[17 : 17+n]
		d.huffmans[s[0]>>4][s[0]&15] = t
		s = s[17+n:]
	}
	return nil
}

// readFrame reads a frame header (B.2.2) and allocates the image.
func (d *decoder) readFrame(s []byte, progressive bool) error {
	if d.components != nil {
		return fmt.Errorf("%w: it has two frames", ErrFormat)
	}
	if len(s) < 6 || len(s) < 6+3*int(s[5]) {
		return fmt.Errorf("%w: its frame header is cut off", ErrFormat)
	}
	if s[0] != 8 {
		return fmt.Errorf("%w: %d bits a sample", ErrUnsupported, s[0])
	}
	d.height, d.width = int(binary.BigEndian.Uint16(s[1:])), int(binary.BigEndian.Uint16(s[3:]))
	pixels := d.width * d.height
	switch {
	case d.width == 0:
		return fmt.Errorf("%w: its width is 0", ErrFormat)
	case d.height == 0:
		return fmt.Errorf("%w: its height is not in its header (DNL)", ErrUnsupported)
	case pixels > d.o.MaxPixels:
		return fmt.Errorf("%w: %d × %d of %d", ErrTooLarge, d.width, d.height, d.o.MaxPixels)
	case pixels/maxPixelsPerByte > len(d.data):
		return fmt.Errorf("%w: %d bytes cannot hold %d × %d pixels", ErrFormat, len(d.data), d.width, d.height)
	}
	d.progressive = progressive
	switch s[5] {
	case 1, 3, 4:
	default:
		return fmt.Errorf("%w: %d channels", ErrUnsupported, s[5])
	}
	components := make([]component, s[5])
	for i := range components {
		p := s[6+3*i:]
		h, v := int(p[1]>>4), int(p[1]&15)
		if h < 1 || h > 4 || v < 1 || v > 4 || p[2] > 3 {
			return fmt.Errorf("%w: the sampling of a channel is %d × %d, its table %d", ErrFormat, h, v, p[2])
		}
		if len(components) == 1 {
			h, v = 1, 1 // never interleaved, so it does not matter (A.2.2)
		}
		components[i] = component{id: p[0], h: h, v: v, table: int(p[2]), size: d.size, last: d.last}
		d.hMax, d.vMax = max(d.hMax, h), max(d.vMax, v)
	}
	d.components = components
	d.layOut()
	return nil
}
