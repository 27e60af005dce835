package jpeg

import (
	"encoding/binary"
	"fmt"
	"slices"

	"millrace/images/picture"
)

// maxSide is what 16 bits hold (B.2.2).
const maxSide = 65535

// Encode writes a picture as a progressive JPEG with Huffman tables made for it:
// 4:2:0 with the quantisation tables of annex K, or gray. quality is 1 to 100 on
// the scale that JPEG encoders share: at 50 those tables as they are, at 100 no
// quantisation. The picture is taken to be opaque, its profile is not written
// (package container does it). CMYK is ErrUnsupported.
//
// Five scans: the means of all blocks, five more coefficients of luma, then all of
// chroma, then the rest of luma. So a browser shows a first picture after a tenth
// of the file.
func Encode(p *picture.Picture, quality int) ([]byte, error) {
	switch {
	case p.Model == picture.CMYK:
		return nil, fmt.Errorf("writing CMYK: %w", ErrUnsupported)
	case p.Width > maxSide || p.Height > maxSide:
		return nil, fmt.Errorf("writing %d × %d pixels, a side has at most %d: %w", p.Width, p.Height, maxSide, ErrTooLarge)
	}
	p = p.Full420()
	luma, chroma := quantisersFor(min(max(quality, 1), 100))
	e := &encoder{width: p.Width, height: p.Height}
	if p.Model == picture.Gray {
		e.channels = []*channel{newChannel(p.Y, p.Width, p.Height, 1, 1, luma)}
	} else {
		w, h := (p.Width+1)/2, (p.Height+1)/2
		e.channels = []*channel{
			newChannel(p.Y, p.Width, p.Height, 2, (w+7)/8*2, luma),
			newChannel(p.Cb, w, h, 1, 0, chroma),
			newChannel(p.Cr, w, h, 1, 0, chroma),
		}
	}
	e.head(luma, chroma)
	e.scan(e.channels, 0, 0)
	e.scan(e.channels[:1], 1, 5)
	for _, c := range e.channels[1:] {
		e.scan([]*channel{c}, 1, 63)
	}
	e.scan(e.channels[:1], 6, 63)
	return append(e.out, 0xFF, markerEOI), nil
}

// quantisersFor are the tables K.1 and K.2 in rows, scaled by the quality.
func quantisersFor(quality int) (luma, chroma *[64]uint16) {
	annexK := [2][64]uint16{{
		16, 11, 10, 16, 24, 40, 51, 61,
		12, 12, 14, 19, 26, 58, 60, 55,
		14, 13, 16, 24, 40, 57, 69, 56,
		14, 17, 22, 29, 51, 87, 80, 62,
		18, 22, 37, 56, 68, 109, 103, 77,
		24, 35, 55, 64, 81, 104, 113, 92,
		49, 64, 78, 87, 103, 121, 120, 101,
		72, 92, 95, 98, 112, 100, 103, 99,
	}, {
		17, 18, 24, 47, 99, 99, 99, 99,
		18, 21, 26, 66, 99, 99, 99, 99,
		24, 26, 56, 99, 99, 99, 99, 99,
		47, 66, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
	}}
	percent := 200 - 2*quality
	if quality < 50 {
		percent = 5000 / quality
	}
	for t := range annexK {
		for i, v := range annexK[t] {
			annexK[t][i] = uint16(min(max((int(v)*percent+50)/100, 1), 255))
		}
	}
	return &annexK[0], &annexK[1]
}

// channel is one component as quantised coefficients.
type channel struct {
	sampling int // horizontally and vertically, of luma's
	// cols and rows are the blocks that its samples fill. A scan of several
	// components has columns and rows of whole MCUs (A.2.4).
	cols, rows, padded int
	// coefs are 64 of each block, in the order of the file; last is the number of
	// the last one that is not 0.
	coefs []int16
	last  []uint8
}

// newChannel transforms and quantises a plane. padded is how many columns of blocks
// there are in whole MCUs; 0: as many as are filled.
func newChannel(pl picture.Plane, width, height, sampling, padded int, q *[64]uint16) *channel {
	c := &channel{sampling: sampling, cols: (width + 7) / 8, rows: (height + 7) / 8, padded: padded}
	c.padded = max(c.padded, c.cols)
	c.coefs, c.last = make([]int16, 64*c.cols*c.rows), make([]uint8, c.cols*c.rows)
	var scale [64]float32
	for i := range scale {
		scale[i] = 1 / float32(q[i])
	}
	var samples [64]float32
	for row := range c.rows {
		for col := range c.cols {
			take(&samples, pl, 8*col, 8*row, width, height)
			transform(&samples)
			n := row*c.cols + col
			out := (*[64]int16)(c.coefs[64*n:])
			for k, natural := range zigzag {
				// The offset keeps the number positive, so that cutting it off rounds it.
				v := int16(int32(samples[natural]*scale[natural]+4096.5) - 4096)
				if out[k] = v; v != 0 {
					c.last[n] = uint8(k)
				}
			}
		}
	}
	return c
}

// take reads a block of samples, the last ones of a row or column again where the
// picture has ended (A.2.4), and shifts them around 0.
func take(to *[64]float32, pl picture.Plane, x, y, width, height int) {
	for j := range 8 {
		row := pl.Pix[min(y+j, height-1)*pl.Stride:]
		out := to[8*j:][:8]
		if x+8 <= width {
			for i, v := range row[x:][:8] {
				out[i] = float32(v) - 128
			}
			continue
		}
		for i := range out {
			out[i] = float32(row[min(x+i, width-1)]) - 128
		}
	}
}

// transform is the DCT of A.3.3, rows first, then columns.
func transform(b *[64]float32) {
	for i := 0; i < 64; i += 8 {
		r := (*[8]float32)(b[i:])
		dct(r)
	}
	for i := range 8 {
		c := [8]float32{b[i], b[i+8], b[i+16], b[i+24], b[i+32], b[i+40], b[i+48], b[i+56]}
		dct(&c)
		for k, v := range c {
			b[i+8*k] = v
		}
	}
}

// dct transforms eight samples. The sums of opposite samples give the even
// coefficients, their differences the odd ones.
func dct(x *[8]float32) {
	// Half the cosine of k·π/16.
	const (
		c1 = 0.490392640201615
		c2 = 0.461939766255643
		c3 = 0.415734806151273
		c4 = 0.353553390593274
		c5 = 0.277785116509801
		c6 = 0.191341716182545
		c7 = 0.097545161008064
	)
	s0, s1, s2, s3 := x[0]+x[7], x[1]+x[6], x[2]+x[5], x[3]+x[4]
	d0, d1, d2, d3 := x[0]-x[7], x[1]-x[6], x[2]-x[5], x[3]-x[4]
	x[0], x[4] = c4*(s0+s3+s1+s2), c4*(s0+s3-s1-s2)
	x[2], x[6] = c2*(s0-s3)+c6*(s1-s2), c6*(s0-s3)-c2*(s1-s2)
	x[1] = c1*d0 + c3*d1 + c5*d2 + c7*d3
	x[3] = c3*d0 - c7*d1 - c1*d2 - c5*d3
	x[5] = c5*d0 - c1*d1 + c7*d2 + c3*d3
	x[7] = c7*d0 - c5*d1 + c3*d2 - c1*d3
}

// encoder writes a file.
type encoder struct {
	out           []byte
	width, height int
	channels      []*channel
}

// marker writes a marker segment (B.1.1.4).
func (e *encoder) marker(m byte, parameters ...byte) {
	e.out = append(e.out, 0xFF, m)
	e.out = binary.BigEndian.AppendUint16(e.out, uint16(2+len(parameters)))
	e.out = append(e.out, parameters...)
}

// head writes all in front of the first scan.
func (e *encoder) head(luma, chroma *[64]uint16) {
	e.out = append(make([]byte, 0, e.width*e.height/8+1024), 0xFF, markerSOI)
	e.marker(markerAPP0, 'J', 'F', 'I', 'F', 0, 1, 2, 0, 0, 1, 0, 1, 0, 0)
	for i, q := range [2]*[64]uint16{luma, chroma} {
		if i == 1 && len(e.channels) == 1 {
			break
		}
		table := []byte{byte(i)}
		for _, natural := range zigzag {
			table = append(table, byte(q[natural]))
		}
		e.marker(markerDQT, table...)
	}
	frame := binary.BigEndian.AppendUint16([]byte{8}, uint16(e.height))
	frame = binary.BigEndian.AppendUint16(frame, uint16(e.width))
	frame = append(frame, byte(len(e.channels)))
	for i, c := range e.channels {
		frame = append(frame, byte(i+1), byte(c.sampling*0x11), byte(min(i, 1)))
	}
	e.marker(markerSOF2, frame...)
}

// scan writes the coefficients from first to last of some components: once to
// count its symbols, then by the tables that are best for them.
func (e *encoder) scan(channels []*channel, first, last int) {
	w := &scanWriter{}
	e.walk(w, channels, first, last)
	header := []byte{byte(len(channels))}
	for _, c := range channels {
		id, table := byte(slices.Index(e.channels, c)), byte(0)
		if first == 0 {
			table = min(id, 1) << 4 // of components that share a scan, chroma has a table of its own
		}
		header = append(header, id+1, table)
	}
	for i := range w.tables {
		t := &w.tables[i]
		if !t.used() {
			continue
		}
		lengths, symbols := t.build()
		class := byte(0x10)
		if first == 0 {
			class = 0
		}
		e.marker(markerDHT, append(append([]byte{class | byte(i)}, lengths[:]...), symbols...)...)
	}
	e.marker(markerSOS, append(header, byte(first), byte(last), 0)...)
	w.out = e.out
	e.walk(w, channels, first, last)
	w.flush()
	e.out = w.out
}

func (e *encoder) walk(w *scanWriter, channels []*channel, first, last int) {
	if first > 0 {
		w.table = &w.tables[0]
		channels[0].spectrum(w, first, last)
		return
	}
	// Means, of one component or of MCUs (A.2.3): of 4:2:0 four blocks of luma and
	// one of each chroma.
	var predicted [3]int
	main := channels[0]
	rows, cols := (main.rows+main.sampling-1)/main.sampling, main.padded/main.sampling
	for row := range rows {
		for col := range cols {
			for i, c := range channels {
				w.table = &w.tables[min(i, 1)]
				for n := range c.sampling * c.sampling {
					// Blocks beyond the picture are like the last ones in it.
					x := min(col*c.sampling+n%c.sampling, c.cols-1)
					y := min(row*c.sampling+n/c.sampling, c.rows-1)
					v := int(c.coefs[64*(y*c.cols+x)])
					w.value(0, v-predicted[i])
					predicted[i] = v
				}
			}
		}
	}
}

// spectrum writes coefficients that are not means (G.1.2.2).
func (c *channel) spectrum(w *scanWriter, first, last int) {
	empty := 0 // blocks in a row with nothing more in them
	end := func() {
		if empty > 0 {
			size := bitLength(empty) - 1
			w.symbol(byte(size << 4))
			w.bits(uint32(empty)&(1<<size-1), uint(size))
			empty = 0
		}
	}
	const most = 0x7FFF // that a symbol can say
	for n := range c.last {
		coefs := c.coefs[64*n:][:64]
		zeros := 0
		till := min(last, int(c.last[n]))
		for k := first; k <= till; k++ {
			v := int(coefs[k])
			if v == 0 {
				zeros++
				continue
			}
			end()
			for ; zeros > 15; zeros -= 16 {
				w.symbol(0xF0)
			}
			w.value(zeros, v)
			zeros = 0
		}
		if till < last || zeros > 0 {
			if empty++; empty == most {
				end()
			}
		}
	}
	end()
}
