package convert

import (
	"bytes"
	"encoding/binary"
	"image/color"
	"math"
	"slices"
	"testing"

	"millrace/images/codec"
	"millrace/images/header"
	"millrace/images/icc"
)

// A profile of 432 KB is no part of a thumbnail. Where only curves and a matrix count of
// it, a short one of the same colours takes its place; where tables do, the pixels become
// sRGB, which is compared with the formulas here.
//
// Files of 492 and 506 KB became WebPs of 1.8 and 1.7 KB, 100 pixels wide. Little CMS 2.19
// (by Pillow) makes the same sRGB of both as of their originals: the mean difference was
// 1.8 of 255 with either, which is what scaling and coding cost; it was 11 and 12 where
// the profile was ignored.
func TestLargeProfile(t *testing.T) {
	const size = 432 << 10
	photo := asJPEG(t, photograph(400, 300))
	thumb := func(profile []byte, f codec.Format) (*fakeEncoder, *Result) {
		e := &fakeEncoder{}
		return e, convertTo(t, &Converter{Encoder: e}, withProfile(photo, profile), Spec{Format: f, Width: 100})
	}

	matrix := heavy(displayP3(), size)
	e, res := thumb(matrix, codec.WebP)
	found := chunks(t, res.Data)["ICCP"]
	if len(res.Data) > 1000 || len(found) != 1 || len(e.pictures) != 1 || e.pictures[0].ICC == nil {
		t.Fatalf("curves and a matrix: %d bytes, %d profiles, coded %d times", len(res.Data), len(found), len(e.pictures))
	}
	long, err := icc.Parse(matrix)
	if err != nil {
		t.Fatal(err)
	}
	short, err := icc.Parse(found[0])
	if err != nil {
		t.Fatal(err)
	}
	want, _ := long.ToSRGB(e.pictures[0])
	got, _ := short.ToSRGB(e.pictures[0])
	if !bytes.Equal(want.Pix, got.Pix) {
		t.Error("the short profile has other colours")
	}

	e, res = thumb(heavy(tables(displayP3()), size), codec.WebP)
	if len(chunks(t, res.Data)["ICCP"]) != 0 || len(e.pictures) != 2 || e.pictures[1].ICC != nil {
		t.Fatalf("tables: %d bytes, coded %d times", len(res.Data), len(e.pictures))
	}
	before, after := e.pictures[0].NRGBA(), e.pictures[1].NRGBA()
	changed := 0
	for i := 0; i < len(before.Pix); i += 4 {
		c := color.NRGBA{before.Pix[i], before.Pix[i+1], before.Pix[i+2], 255}
		got, want := color.NRGBA{after.Pix[i], after.Pix[i+1], after.Pix[i+2], 255}, p3AsSRGB(c)
		if far(got, want) > 2 {
			t.Fatalf("pixel %d: %v became %v instead of %v", i/4, c, got, want)
		}
		changed = max(changed, far(got, c))
	}
	if changed < 10 {
		t.Errorf("colours changed by %d at most: this proves nothing", changed)
	}
}

// A profile stays as it is where it is a tenth of the result at most.
func TestProfileThatFits(t *testing.T) {
	photo := asPNG(t, photograph(600, 400))
	plain := len(convertTo(t, embedded(t), photo, Spec{}).Data)
	source := asJPEG(t, photograph(600, 400))
	for size, kept := range map[int]bool{plain / 15: true, plain / 5: false} {
		profile := heavy(displayP3(), size&^3)
		res := convertTo(t, embedded(t), withProfile(source, profile), Spec{})
		found := chunks(t, res.Data)["ICCP"]
		if len(found) != 1 || bytes.Equal(found[0], profile) != kept {
			t.Errorf("%d bytes of %d: %d profiles, kept: %t", len(profile), len(res.Data), len(found), !kept)
		}
		if share := float64(len(found[0])) / float64(len(res.Data)); share > 0.1 {
			t.Errorf("%d bytes: %.2f of the result", size, share)
		}
	}
}

// The pixels that are converted are reckoned with.
func TestMemoryOfLargeProfiles(t *testing.T) {
	i := header.Info{Format: header.JPEG, Width: 3000, Height: 2000, Components: 3, Frames: 1}
	plain := Memory(i, Spec{Format: codec.WebP}, "tools")
	i.ProfileSize = 3144
	if small := Memory(i, Spec{Format: codec.WebP}, "tools"); small != plain {
		t.Errorf("%d bytes with a small profile, %d without", small, plain)
	}
	i.ProfileSize = 432 << 10
	if large := Memory(i, Spec{Format: codec.WebP}, "tools"); large != plain+4*3000*2000 {
		t.Errorf("%d bytes with a large profile, %d without", large, plain)
	}
}

// p3AsSRGB computes a colour of displayP3 in sRGB (IEC 61966-2-1), clipped. Red has no
// Z, since a table holds nothing below 0.
func p3AsSRGB(c color.NRGBA) color.NRGBA {
	light := func(v uint8) float64 { return math.Pow(float64(v)/255, 2.2) }
	r, g, b := light(c.R), light(c.G), light(c.B)
	x, y, z := 0.5151*r+0.2920*g+0.1571*b, 0.2412*r+0.6922*g+0.0666*b, 0.0419*g+0.7841*b
	signal := func(v float64) uint8 {
		if v <= 0.0031308 {
			v *= 12.92
		} else {
			v = 1.055*math.Pow(v, 1/2.4) - 0.055
		}
		return uint8(math.Round(255 * min(max(v, 0), 1)))
	}
	// From XYZ under D50 to linear sRGB, whose white is D65 at 0.3127, 0.3290: by Bradford.
	return color.NRGBA{
		signal(3.13419*x - 1.61721*y - 0.49069*z),
		signal(-0.97875*x + 1.91613*y + 0.03343*z),
		signal(0.07196*x - 0.22887*y + 1.40575*z), 255,
	}
}

// heavy pads a profile with a table for printing, which nothing here reads.
func heavy(profile []byte, size int) []byte {
	be := binary.BigEndian
	n := int(be.Uint32(profile[128:]))
	at := 128 + 4 + 12*n
	out := be.AppendUint32(slices.Clone(profile[:128]), uint32(n+1))
	for i := range n {
		entry := slices.Clone(profile[132+12*i:][:12])
		be.PutUint32(entry[4:], be.Uint32(entry[4:])+12)
		out = append(out, entry...)
	}
	out = append(out, "B2A0"...)
	out = be.AppendUint32(out, uint32(len(profile)+12))
	out = be.AppendUint32(out, uint32(size-len(profile)-12))
	out = append(append(out, profile[at:]...), make([]byte, size-len(profile)-12)...)
	be.PutUint32(out, uint32(len(out)))
	return out
}

// tables makes a profile of displayP3's colours whose A2B0 is a table of two points a
// channel behind curves of 256 samples (ICC.1:2022, 10.10): light adds up, so it is exact.
func tables(profile []byte) []byte {
	be := binary.BigEndian
	lut := []byte("mft2\x00\x00\x00\x00\x03\x03\x02\x00")
	for i := range 9 { // a matrix that does nothing
		lut = append(lut, 0, byte(1-min(i%4, 1)), 0, 0)
	}
	lut = be.AppendUint16(be.AppendUint16(lut, 256), 2)
	for range 3 {
		for i := range 256 {
			lut = be.AppendUint16(lut, uint16(math.Round(65535*math.Pow(float64(i)/255, 2.2))))
		}
	}
	primaries := [3][3]float64{{0.5151, 0.2412, 0}, {0.2920, 0.6922, 0.0419}, {0.1571, 0.0666, 0.7841}}
	for corner := range 8 {
		for c := range 3 {
			v := 0.0
			for p := range 3 {
				v += float64(corner>>(2-p)&1) * primaries[p][c]
			}
			lut = be.AppendUint16(lut, uint16(math.Round(32768*v)))
		}
	}
	for range 3 {
		lut = be.AppendUint16(be.AppendUint16(lut, 0), 65535)
	}
	out := heavy(profile, len(profile)+12+len(lut))
	copy(out[len(out)-len(lut):], lut)
	return bytes.Replace(out, []byte("B2A0"), []byte("A2B0"), 1)
}
