package jpeg

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// component is one channel.
type component struct {
	id    byte
	h, v  int // sampling factors
	table int // of quantisation
	size  int // samples a block's side
	last  uint

	// across and down are the blocks that the image needs (A.2.3), stride
	// and lines the samples of the plane, which has whole MCUs.
	across, down  int
	blocksX       int // of the plane
	stride, lines int
	pix           []byte

	// coefficients, of progressive files, are kept in the order of the file,
	// per of each block; highest is the index of the last one that may not be
	// zero.
	coefficients []int16
	highest      []uint8
	per          int

	seen      bool // in a scan
	weights   [64]uint64
	dc, ac    *huffman // of the current scan
	predicted int32    // the DC coefficient (F.1.1.5.1)
}

// layOut gives every component its size and memory (A.1.1, A.2).
func (d *decoder) layOut() {
	d.mcusX = ceilDiv(d.width, 8*d.hMax)
	d.mcusY = ceilDiv(d.height, 8*d.vMax)
	for i := range d.components {
		c := &d.components[i]
		c.across = ceilDiv(ceilDiv(d.width*c.h, d.hMax), 8)
		c.down = ceilDiv(ceilDiv(d.height*c.v, d.vMax), 8)
		c.blocksX = d.mcusX * c.h
		c.stride = c.blocksX * c.size
		c.lines = d.mcusY * c.v * c.size
		c.pix = make([]byte, c.stride*c.lines)
		if d.progressive {
			c.per = 64
			if c.last == 0 {
				c.per = 1
			}
			blocks := c.blocksX * d.mcusY * c.v
			c.coefficients = make([]int16, blocks*c.per)
			c.highest = make([]uint8, blocks)
		}
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// scan is a scan being read.
type scan struct {
	bits       bitReader
	components []*component
	sequential bool
	// Of a progressive scan (G.1.1.1): the band of coefficients, and the bit
	// positions, high being 0 for the first scan of a band.
	first, last uint
	high, low   uint
	endRun      int // blocks whose band has ended (G.1.2.2)

	across, total int // MCUs
	blk           block
}

// readScan reads a scan header (B.2.3) and the scan after it.
func (d *decoder) readScan(h []byte) error {
	if d.components == nil {
		return fmt.Errorf("%w: a scan comes before its frame", ErrFormat)
	}
	if len(h) < 1 || len(h) < 4+2*int(h[0]) || h[0] < 1 || h[0] > 4 {
		return fmt.Errorf("%w: a scan header is broken", ErrFormat)
	}
	if d.scans++; d.scans > d.o.MaxScans {
		return fmt.Errorf("%w: more than %d scans", ErrFormat, d.o.MaxScans)
	}
	n := int(h[0])
	s := &scan{sequential: !d.progressive, bits: bitReader{data: d.data, pos: d.pos}}
	p := h[1+2*n:]
	s.first, s.last, s.high, s.low = uint(p[0]), uint(p[1]), uint(p[2]>>4), uint(p[2]&15)
	if s.sequential {
		s.first, s.last, s.high, s.low = 0, 63, 0, 0
	}
	if s.first > s.last || s.last > 63 || s.low > 13 || !s.sequential && s.first == 0 && s.last != 0 || s.first > 0 && n > 1 {
		return fmt.Errorf("%w: a scan header is broken", ErrFormat)
	}
	for i := range n {
		c, err := d.scanComponent(h[1+2*i], h[2+2*i], s)
		if err != nil {
			return err
		}
		s.components = append(s.components, c)
	}
	d.scanned = true
	if d.progressive && s.first > d.last && d.last == 0 {
		return nil // no detail is needed at this size
	}
	s.across, s.total = d.mcusX, d.mcusX*d.mcusY
	if n == 1 {
		c := s.components[0]
		s.across, s.total = c.across, c.across*c.down
	}
	d.run(s)
	d.pos = s.bits.pos
	if s.bits.damaged {
		d.damaged("its data is damaged")
	}
	return nil
}

// scanComponent prepares the component with an id for a scan. The quantisation
// table is the one that is there with a component's first scan.
func (d *decoder) scanComponent(id, tables byte, s *scan) (*component, error) {
	var c *component
	for i := range d.components {
		if d.components[i].id == id {
			c = &d.components[i]
			break
		}
	}
	if c == nil {
		return nil, fmt.Errorf("%w: a scan has a channel that the picture has not", ErrFormat)
	}
	if slices.Contains(s.components, c) {
		return nil, fmt.Errorf("%w: a scan has a channel twice", ErrFormat)
	}
	if s.sequential && c.seen { // or a scan without data would be painted over and over
		return nil, fmt.Errorf("%w: a channel has two scans", ErrFormat)
	}
	if !c.seen {
		q := d.quantisers[c.table]
		if q == nil {
			return nil, fmt.Errorf("%w: a quantisation table is missing", ErrFormat)
		}
		c.weights = weigh(q, c.size)
		c.seen = true
	}
	var err error
	if s.first == 0 && s.high == 0 {
		if c.dc, err = d.huffman(0, tables>>4); err != nil {
			return nil, err
		}
	}
	if s.last > 0 {
		if c.ac, err = d.huffman(1, tables&15); err != nil {
			return nil, err
		}
		if s.sequential && c.last < 63 {
			c.ac.makeSkips()
		}
	}
	return c, nil
}

func (d *decoder) huffman(class int, id byte) (*huffman, error) {
	if id > 3 || d.huffmans[class][id] == nil {
		return nil, fmt.Errorf("%w: a huffman table is missing", ErrFormat)
	}
	return newHuffman(d.huffmans[class][id], class == 0)
}

// run reads the data of a scan, interval by interval (E.2.4). What cannot be
// read stays gray.
func (d *decoder) run(s *scan) {
	interval := cmp.Or(d.interval, s.total)
	for m, next := 0, 0; m < s.total; {
		for _, c := range s.components {
			c.predicted = 0
		}
		s.endRun = 0
		end := min(m+interval, s.total)
		if m = s.read(m, end); m < end {
			d.damaged("its data is cut off or damaged")
			s.blank(m, end)
			m = end
		}
		if s.endRun > 0 {
			d.damaged("a run of empty blocks is longer than its scan")
		}
		if m == s.total {
			break
		}
		lost, ok := s.bits.seekRestart(next)
		if !ok {
			d.damaged("its data is cut off")
			s.blank(m, s.total)
			break
		}
		if lost > 0 {
			d.damaged("a part of its data is missing")
			end = min(m+lost*interval, s.total)
			s.blank(m, end)
			m = end
		}
		next = (next + lost + 1) & 7
	}
}

// seekRestart goes past the next restart marker, which should be RSTwant. One
// that is a little ahead says how many intervals are lost; one that is behind
// is ignored. ok is false if there is none before another marker or the end.
func (b *bitReader) seekRestart(want int) (lost int, ok bool) {
	for {
		i := bytes.IndexByte(b.data[b.pos:], 0xFF)
		if i < 0 || b.pos+i+1 >= len(b.data) {
			b.pos = len(b.data)
			return 0, false
		}
		b.pos += i
		switch c := b.data[b.pos+1]; {
		case c == 0:
			b.pos += 2
		case c == 0xFF:
			b.pos++
		case c < markerRST0 || c > markerRST7:
			return 0, false
		default:
			b.pos += 2
			if lost = (int(c-markerRST0) - want) & 7; lost < 4 {
				b.restart()
				return lost, true
			}
		}
	}
}

// read reads MCUs from m to end. It returns the first one that could not be
// read for want of data.
func (s *scan) read(m, end int) int {
	if s.first > 0 {
		return s.readBand(m, end)
	}
	x, y := m%s.across, m/s.across
	for ; m < end; m++ {
		for _, c := range s.components {
			if len(s.components) == 1 {
				if !s.readBlock(c, x, y) {
					return m
				}
				continue
			}
			for by := y * c.v; by < (y+1)*c.v; by++ {
				for bx := x * c.h; bx < (x+1)*c.h; bx++ {
					if !s.readBlock(c, bx, by) {
						return m
					}
				}
			}
		}
		if x++; x == s.across {
			x, y = 0, y+1
		}
	}
	return m
}

// readBlock reads one block of a sequential scan, or of a DC scan. It reports
// false when the data has ended before the block has.
func (s *scan) readBlock(c *component, x, y int) bool {
	if !s.sequential {
		return s.readDC(c, y*c.blocksX+x)
	}
	last := s.bits.block(c, &s.blk)
	if s.bits.exhausted() {
		s.blk = block{}
		return false
	}
	c.draw(&s.blk, last, c.pix[(y*c.stride+x)*c.size:])
	return true
}

// blank makes MCUs gray. Those of progressive files are, as long as their
// coefficients are zero.
func (s *scan) blank(m, end int) {
	if !s.sequential {
		return
	}
	for ; m < end; m++ {
		x, y := m%s.across, m/s.across
		for _, c := range s.components {
			h, v := c.h, c.v
			if len(s.components) == 1 {
				h, v = 1, 1
			}
			for line := y * v * c.size; line < (y+1)*v*c.size; line++ {
				row := c.pix[line*c.stride+x*h*c.size:]
				paint(row[:h*c.size], gray)
			}
		}
	}
}

// gray is the sample of a block without coefficients.
const gray = 128

func paint(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}
