package convert

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"millrace/images/codec"
	"millrace/images/picture"
)

// A lossless WebP whose header says that it has no alpha has none, whatever its
// pixels and its container say: so libwebp shows it.
func TestAlphaBit(t *testing.T) {
	m := quadrants(64, 48)
	for i := 3; i < len(m.Pix); i += 4 {
		m.Pix[i] = byte(i)
	}
	e, err := codec.NewEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, err := e.Encode(t.Context(), picture.FromImage(m), codec.Params{Format: codec.WebP, Lossless: true})
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(file, []byte("VP8L"))
	for _, flag := range []bool{true, false} {
		if !flag {
			file[at+8+4] &^= 1 << 4 // RFC 9649, 3.4: bit 28 behind the signature
		}
		extended := slices.Concat([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, uint32(4+18+len(file)-at)),
			[]byte("WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\x3f\x00\x00\x2f\x00\x00"), file[at:])
		for name, source := range map[string][]byte{"simple": file, "extended": extended} {
			f := &fakeEncoder{lengths: map[bool]int{true: 10, false: 10}}
			res := convertTo(t, &Converter{Encoder: f}, source, Spec{Width: 32})
			if f.pictures[0].Opaque() == flag || res.Source.Alpha != flag {
				t.Errorf("%s, alpha bit %t: opaque %t", name, flag, f.pictures[0].Opaque())
			}
		}
	}
}

// Where a gain map would be lost, the original stays; no smaller one has it.
func TestGainMap(t *testing.T) {
	file := withSegment(asJPEG(t, photograph(200, 160)), 0xe1, []byte("http://ns.adobe.com/xap/1.0/\x00"+
		`<rdf:Description xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"/>`))
	c := &Converter{Encoder: &fakeEncoder{}}
	for _, s := range []Spec{{}, {Width: 200}, {Width: 5000, Height: 5000, Fit: Outside}} {
		s.Format = codec.WebP
		if _, err := c.Convert(t.Context(), file, s); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if res := convertTo(t, c, file, Spec{Width: 100}); res.Width != 100 {
		t.Errorf("%d pixels wide", res.Width)
	}
}
