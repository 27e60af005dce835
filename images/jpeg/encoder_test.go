package jpeg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace/images/picture"
)

// layout is a sequential file to be written with coefficients by chance.
type layout struct {
	width, height int
	sampling      []string // of each component, "2x1"
	ids           string   // default 1, 2, 3, 4
	separate      bool     // one scan a component
	interval      int
	adobe         int // the transform, plus one; 0: no marker
	wide          bool
	extended      bool
}

func (l layout) String() string {
	return fmt.Sprintf("%dx%d %s %s separate=%v interval=%d adobe=%d", l.width, l.height, strings.Join(l.sampling, " "), l.ids, l.separate, l.interval, l.adobe)
}

// bitWriter writes the data of a scan.
type bitWriter struct {
	bytes.Buffer
	acc uint64
	n   int
}

func (w *bitWriter) write(v uint32, n int) {
	w.acc = w.acc<<n | uint64(v)
	for w.n += n; w.n >= 8; w.n -= 8 {
		c := byte(w.acc >> (w.n - 8))
		w.WriteByte(c)
		if c == 0xFF {
			w.WriteByte(0)
		}
	}
}

func (w *bitWriter) flush() {
	if w.n > 0 {
		w.write(1<<(8-w.n)-1, 8-w.n)
	}
	w.acc, w.n = 0, 0
}

func segment(marker byte, parameters ...byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xFF, marker}, uint16(2+len(parameters))), parameters...)
}

// The tables of the written files: DC differences of up to 11 bits have codes
// of four, AC symbols with up to ten bits codes of eight, in their order.
func tables() []byte {
	dc := make([]byte, 17, 29)
	dc[4] = 12
	for i := range byte(12) {
		dc = append(dc, i)
	}
	ac := make([]byte, 17, 193)
	ac[0], ac[8] = 0x10, 176
	for run := range byte(16) {
		for size := range byte(11) {
			ac = append(ac, run<<4|size)
		}
	}
	return append(segment(markerDHT, dc...), segment(markerDHT, ac...)...)
}

func (w *bitWriter) value(v int) (size int, write func()) {
	size = bits.Len(uint(max(v, -v)))
	if v < 0 {
		v += 1<<size - 1
	}
	return size, func() { w.write(uint32(v), size) }
}

func (w *bitWriter) block(random *rand.Rand, predicted *int) {
	dc := random.IntN(120) - 60
	size, value := w.value(dc - *predicted)
	*predicted = dc
	w.write(uint32(size), 4)
	value()
	symbol := func(run, size int) { w.write(uint32(run*11+size), 8) }
	k := 0
	for random.IntN(4) > 0 {
		step := 1 + random.IntN(1+random.IntN(40))
		if k+step > 63 {
			break
		}
		k += step
		for ; step > 16; step -= 16 {
			symbol(15, 0)
		}
		size, value := w.value(1 + random.IntN(8) - 10*random.IntN(2))
		if size == 0 {
			size, value = w.value(1)
		}
		symbol(step-1, size)
		value()
	}
	if k < 63 {
		symbol(0, 0)
	}
}

// encode writes the file.
func (l layout) encode(seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	file := []byte{0xFF, markerSOI}
	if l.adobe > 0 {
		file = append(file, segment(markerAPPE, append([]byte("Adobe\x00\x64\x00\x00\x00\x00"), byte(l.adobe-1))...)...)
	}
	q := make([]byte, 65)
	for i := range q[1:] {
		q[1+i] = 12
	}
	if l.wide {
		q = make([]byte, 129)
		q[0] = 0x10
		for i := range 64 {
			q[2+2*i] = 12
		}
	}
	file = append(file, segment(markerDQT, q...)...)
	if l.interval > 0 {
		file = append(file, segment(markerDRI, byte(l.interval>>8), byte(l.interval))...)
	}
	ids := l.ids
	if ids == "" {
		ids = "\x01\x02\x03\x04"
	}
	type channel struct{ h, v, across, down int }
	channels := make([]channel, len(l.sampling))
	frame := []byte{8, byte(l.height >> 8), byte(l.height), byte(l.width >> 8), byte(l.width), byte(len(channels))}
	hMax, vMax := 1, 1
	for i, s := range l.sampling {
		c := &channels[i]
		fmt.Sscanf(s, "%dx%d", &c.h, &c.v)
		hMax, vMax = max(hMax, c.h), max(vMax, c.v)
		frame = append(frame, ids[i], byte(c.h<<4|c.v), 0)
	}
	sof := byte(markerSOF0)
	if l.extended {
		sof = markerSOF1
	}
	file = append(file, segment(sof, frame...)...)
	file = append(file, tables()...)
	for i := range channels {
		c := &channels[i]
		c.across = ceilDiv(ceilDiv(l.width*c.h, hMax), 8)
		c.down = ceilDiv(ceilDiv(l.height*c.v, vMax), 8)
	}
	scan := func(members []int, mcus int) {
		header := []byte{byte(len(members))}
		for _, i := range members {
			header = append(header, ids[i], 0)
		}
		file = append(file, segment(markerSOS, append(header, 0, 63, 0)...)...)
		var w bitWriter
		predicted := make([]int, len(channels))
		for m := range mcus {
			if l.interval > 0 && m > 0 && m%l.interval == 0 {
				w.flush()
				w.Write([]byte{0xFF, byte(markerRST0 + (m/l.interval-1)%8)})
				clear(predicted)
			}
			for _, i := range members {
				n := channels[i].h * channels[i].v
				if len(members) == 1 {
					n = 1
				}
				for range n {
					w.block(random, &predicted[i])
				}
			}
		}
		w.flush()
		file = append(file, w.Bytes()...)
	}
	if l.separate || len(channels) == 1 {
		for i, c := range channels {
			scan([]int{i}, c.across*c.down)
		}
	} else {
		scan([]int{0, 1, 2, 3}[:len(channels)], ceilDiv(l.width, 8*hMax)*ceilDiv(l.height, 8*vMax))
	}
	return append(file, 0xFF, markerEOI)
}

func layouts() []layout {
	var all []layout
	for _, y := range []string{"1x1", "2x1", "1x2", "2x2", "4x1", "4x2", "1x4", "2x4", "4x4", "3x1", "3x2"} {
		all = append(all,
			layout{width: 77, height: 51, sampling: []string{y, "1x1", "1x1"}},
			layout{width: 24, height: 24, sampling: []string{y, "1x1", "1x1"}, separate: true, wide: true},
			layout{width: 61, height: 40, sampling: []string{y, "1x1", "1x1"}, interval: 2, extended: true})
	}
	return append(all,
		layout{width: 40, height: 70, sampling: []string{"1x1"}},
		layout{width: 40, height: 70, sampling: []string{"3x4"}, interval: 3},
		layout{width: 33, height: 18, sampling: []string{"2x2", "2x1", "1x2"}},
		layout{width: 33, height: 18, sampling: []string{"1x1", "2x2", "2x2"}},
		layout{width: 33, height: 18, sampling: []string{"1x2", "4x1", "3x3"}, separate: true},
		layout{width: 33, height: 18, sampling: []string{"4x4", "2x2", "2x2"}, separate: true, interval: 4},
		layout{width: 20, height: 20, sampling: []string{"1x1", "1x1", "1x1"}, ids: "RGB"},
		layout{width: 20, height: 20, sampling: []string{"2x2", "1x1", "2x2"}, ids: "RGB"},
		layout{width: 20, height: 20, sampling: []string{"1x1", "1x1", "1x1"}, adobe: 1},
		layout{width: 20, height: 20, sampling: []string{"1x1", "1x1", "1x1"}, adobe: 2},
		layout{width: 20, height: 20, sampling: []string{"1x1", "1x1", "1x1", "1x1"}, adobe: 1},
		layout{width: 20, height: 20, sampling: []string{"1x1", "1x1", "1x1", "1x1"}, adobe: 3},
		layout{width: 30, height: 20, sampling: []string{"2x2", "1x1", "1x1", "2x2"}, adobe: 3})
}

// TestLayouts compares files of all samplings and orders with image/jpeg, where
// that reads them.
func TestLayouts(t *testing.T) {
	compared := 0
	for i, l := range layouts() {
		data := l.encode(uint64(i))
		for _, denominator := range []int{1, 2, 4, 8} {
			p, err := Decode(data, Options{Denominator: denominator, Whole: true})
			if err != nil {
				t.Errorf("%v at 1/%d: %v", l, denominator, err)
				continue
			}
			if err := sound(p); err != nil {
				t.Errorf("%v at 1/%d: %v", l, denominator, err)
			}
			if want := ceilDiv(l.width, denominator); p.Width != want {
				t.Errorf("%v at 1/%d: the width is %d instead of %d", l, denominator, p.Width, want)
			}
		}
		if matchesStd(t, data, l) {
			compared++
		}
	}
	if compared < 20 {
		t.Errorf("image/jpeg read only %d of the files", compared)
	}
}

func matchesStd(t *testing.T, data []byte, l layout) bool {
	want, err := stdDecode(data)
	if err != nil {
		t.Logf("%v: image/jpeg: %v", l, err)
		return false
	}
	got, err := Decode(data, Options{})
	if err != nil {
		return false // said already
	}
	limit := 2
	if got.Model == picture.CMYK || got.Model == picture.NRGBA {
		limit = 4 // a step more of each of YCbCr
	}
	if err := differ(got, want, limit, false); err != nil {
		t.Errorf("%v: %v", l, err)
	}
	return true
}

// TestSubsampling: what is stored in one of an image's four ways stays so, and
// the rest becomes the nearest.
func TestSubsampling(t *testing.T) {
	for y, want := range map[string]picture.Subsampling{
		"1x1": picture.Sub444, "2x1": picture.Sub422, "2x2": picture.Sub420, "1x2": picture.Sub440,
		"4x1": picture.Sub422, "4x2": picture.Sub420, "1x4": picture.Sub440, "3x1": picture.Sub422, "3x2": picture.Sub420,
	} {
		p, err := Decode(layout{width: 50, height: 50, sampling: []string{y, "1x1", "1x1"}}.encode(1), Options{})
		if err != nil || p.Sub != want {
			t.Errorf("%s: %v, %v", y, p, err)
		}
	}
}
