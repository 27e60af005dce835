package jpeg

import (
	"bytes"
	"errors"
	"image"
	stdjpeg "image/jpeg"
	"slices"
	"testing"
)

func stdDecode(data []byte) (image.Image, error) { return stdjpeg.Decode(bytes.NewReader(data)) }

func TestErrors(t *testing.T) {
	good := encode(t, drawn(40, 30), 80)
	separate := layout{width: 40, height: 30, sampling: []string{"1x1", "1x1", "1x1"}, separate: true}.encode(3)
	scan := bytes.Index(separate, []byte{0xFF, markerSOS})
	sof := bytes.Index(good, []byte{0xFF, markerSOF0})
	sos := bytes.Index(good, []byte{0xFF, markerSOS})
	change := func(at int, v ...byte) []byte {
		data := bytes.Clone(good)
		copy(data[at:], v)
		return data
	}
	for _, test := range []struct {
		name string
		data []byte
		o    Options
		want error
	}{
		{"empty", nil, Options{}, ErrFormat},
		{"a PNG", []byte("\x89PNG\r\n\x1a\n"), Options{}, ErrFormat},
		{"nothing but a start", good[:2], Options{}, ErrFormat},
		{"cut off in the frame header", good[:sof+5], Options{}, ErrFormat},
		{"no scan", good[:sos], Options{}, ErrFormat},
		{"a lossless frame", change(sof+1, 0xC3), Options{}, ErrUnsupported},
		{"a hierarchical frame", change(sof+1, 0xC5), Options{}, ErrUnsupported},
		{"arithmetic coding", change(sof+1, 0xC9), Options{}, ErrUnsupported},
		{"12 bits", change(sof+4, 12), Options{}, ErrUnsupported},
		{"no height", change(sof+5, 0, 0), Options{}, ErrUnsupported},
		{"no width", change(sof+7, 0, 0), Options{}, ErrFormat},
		{"two channels", change(sof+9, 2), Options{}, ErrUnsupported},
		{"sampling 5", change(sof+11, 0x51), Options{}, ErrFormat},
		{"quantisation table 4", change(sof+12, 4), Options{}, ErrFormat},
		{"65535 × 65535", change(sof+5, 255, 255, 255, 255), Options{}, ErrTooLarge},
		{"little data for its size", change(sof+5, 27, 0, 27, 0), Options{}, ErrFormat},
		{"more than MaxPixels", good, Options{MaxPixels: 40*30 - 1}, ErrTooLarge},
		{"an unknown channel", change(sos+5, 9), Options{}, ErrFormat},
		{"a missing huffman table", change(sos+6, 0x33), Options{}, ErrFormat},
		{"two frames", slices.Concat(good[:sos], good[sof:sos], good[sos:]), Options{}, ErrFormat},
		{"a channel has two scans, as a whole", slices.Concat(separate[:scan], separate[scan:scan+40], separate[scan:]), Options{Whole: true}, ErrFormat},
		{"cut off, as a whole", good[:len(good)-200], Options{Whole: true}, ErrFormat},
	} {
		p, err := Decode(test.data, test.o)
		if !errors.Is(err, test.want) || p != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := Decode(good, Options{Denominator: 3}); err == nil {
		t.Error("1/3 is accepted")
	}
	if _, err := Decode(good, Options{MaxPixels: 40 * 30, Whole: true}); err != nil {
		t.Error(err)
	}
}

// TestTruncated cuts files anywhere: what comes before is as in the whole file,
// what is missing gray.
func TestTruncated(t *testing.T) {
	good := encode(t, drawn(96, 96), 80)
	whole, err := Decode(good, Options{})
	if err != nil {
		t.Fatal(err)
	}
	scan := bytes.Index(good, []byte{0xFF, markerSOS}) + 14
	for cut := scan; cut < len(good)-4; cut += 7 {
		p, err := Decode(good[:cut], Options{})
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", cut, len(good), err)
		}
		same := func(x, y int) bool { return sampleOf(p, x, y, 0) == sampleOf(whole, x, y, 0) }
		if cut > scan+(len(good)-scan)/2 && !same(0, 0) {
			t.Errorf("%d of %d bytes: the first pixel is %d instead of %d", cut, len(good), sampleOf(p, 0, 0, 0), sampleOf(whole, 0, 0, 0))
		}
		if cut < len(good)-100 && sampleOf(p, 95, 95, 0) != gray {
			t.Errorf("%d of %d bytes: the last pixel is %d", cut, len(good), sampleOf(p, 95, 95, 0))
		}
		if _, err := Decode(good[:cut], Options{Whole: true}); !errors.Is(err, ErrFormat) {
			t.Errorf("%d of %d bytes, as a whole: %v", cut, len(good), err)
		}
	}
	for _, denominator := range []int{1, 2, 4, 8} { // every cut, for panics
		for name, data := range stdPictures(t) {
			for cut := 0; cut < len(data); cut += 1499 {
				p, err := Decode(data[:cut], Options{Denominator: denominator})
				if err == nil {
					err = sound(p)
				} else if errors.Is(err, ErrFormat) {
					err = nil
				}
				if err != nil {
					t.Errorf("%d bytes of %s: %v", cut, name, err)
				}
			}
		}
	}
}

// TestEnds: a missing or wrong end, and garbage, do not matter.
func TestEnds(t *testing.T) {
	good := encode(t, drawn(96, 96), 80)
	sof := bytes.Index(good, []byte{0xFF, markerSOF0})
	want, err := Decode(good, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"no end":          good[:len(good)-2],
		"another end":     append(bytes.Clone(good[:len(good)-2]), 0xFF, 0xE1, 0, 0),
		"garbage behind":  append(bytes.Clone(good), "garbage \xFF\xC0\xFF"...),
		"garbage between": slices.Concat(good[:sof], []byte("\x00garbage\xFF\x00\xFF\xD3\xFF\xFF\xFF"), good[sof:]),
	} {
		got, err := Decode(data, Options{Whole: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(got.Y.Pix, want.Y.Pix) || !bytes.Equal(got.Cr.Pix, want.Cr.Pix) {
			t.Errorf("%s: the pixels are different", name)
		}
	}
}

// TestResynchronisation damages one interval between restart markers.
func TestResynchronisation(t *testing.T) {
	l := layout{width: 256, height: 64, sampling: []string{"1x1", "1x1", "1x1"}, interval: 4}
	good := l.encode(9)
	whole, err := Decode(good, Options{Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	var markers []int // of RSTn
	for i := range good[:len(good)-1] {
		if good[i] == 0xFF && good[i+1] >= markerRST0 && good[i+1] <= markerRST7 {
			markers = append(markers, i)
		}
	}
	without := func(from, to int) []byte { return slices.Concat(good[:from], good[to:]) }
	for name, test := range map[string]struct {
		data []byte
		hurt []int // intervals; all others must be as they were
	}{
		"an interval's data is missing":      {without(markers[9]+2, markers[10]), []int{10}},
		"half an interval's data is missing": {without(markers[9]+20, markers[10]), []int{10}},
		"a marker is missing":                {without(markers[9], markers[9]+2), []int{9, 10}},
		"an interval is missing":             {without(markers[9], markers[10]), []int{9, 10, 11}},
		"three intervals are missing":        {without(markers[9], markers[12]), []int{9, 10, 11, 12}},
		"a marker is repeated":               {slices.Concat(good[:markers[9]], good[markers[8]:markers[8]+2], good[markers[9]:]), nil},
		"garbage before a marker":            {slices.Concat(good[:markers[9]], []byte("garbage"), good[markers[9]:]), nil},
	} {
		p, err := Decode(test.data, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for m := range 32 * 8 {
			if slices.Contains(test.hurt, m/4) {
				continue
			}
			if x, y := m%32*8, m/32*8; sampleOf(p, x, y, 0) != sampleOf(whole, x, y, 0) || sampleOf(p, x+7, y+7, 2) != sampleOf(whole, x+7, y+7, 2) {
				t.Errorf("%s: interval %d is different", name, m/4)
				break
			}
		}
	}
}

// progressiveBomb has many scans of few bytes for a large image.
func progressiveBomb(scans int, refine bool) []byte {
	data := segment(markerSOF2, 8, 1000>>8, 1000&255, 1000>>8, 1000&255, 1, 1, 0x11, 0)
	data = append([]byte{0xFF, markerSOI}, data...)
	data = append(data, segment(markerDQT, make([]byte, 65)...)...)
	// One code of each length, for the longest run and others.
	dht := append([]byte{0x10}, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	data = append(data, segment(markerDHT, append(dht, 0xE0, 0x01, 0x00)...)...)
	approximation := byte(0x00)
	if refine {
		approximation = 0x10
	}
	for range scans {
		data = append(data, segment(markerSOS, 1, 1, 0, 1, 63, approximation)...)
		data = append(data, 0x3F, 0xFE, 0x3F, 0xFE) // E0 and 14 bits, twice
	}
	return append(data, make([]byte, 1000)...)
}

// TestScans: a scan of a few bytes costs a pass over the image, so their
// number is limited.
func TestScans(t *testing.T) {
	for _, refine := range []bool{false, true} {
		if _, err := Decode(progressiveBomb(5000, refine), Options{}); !errors.Is(err, ErrFormat) {
			t.Errorf("5000 scans: %v", err)
		}
		p, err := Decode(progressiveBomb(20, refine), Options{MaxScans: 20})
		if err != nil || sampleOf(p, 999, 999, 0) != gray {
			t.Errorf("20 scans: %v", err)
		}
	}
}
