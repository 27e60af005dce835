package icc

import (
	"bytes"
	"testing"

	"millrace/images/picture"
)

// heavyMatrixProfile is one as programs for displays write: curves with a sample for each
// of 4096 levels, a table for printing, and what only its maker reads.
func heavyMatrixProfile(version int, m mat, trc []byte) []byte {
	xyz := func(c int) []byte { return append(tagXYZ([3]float64{m[0][c], m[1][c], m[2][c]}), 0, 0, 0, 0) }
	return build(string(rune('0'+version))+" mntr RGB XYZ ",
		tag{"desc", tagDesc2("a display")}, tag{"wtpt", tagXYZ(pcsWhite)}, tag{"chad", s15(typed("sf32"), 1, 0, 0, 0, 1, 0, 0, 0, 1)},
		tag{"rXYZ", xyz(0)}, tag{"gXYZ", xyz(1)}, tag{"bXYZ", xyz(2)},
		tag{"rTRC", trc}, tag{"gTRC", trc}, tag{"bTRC", trc},
		tag{"B2A0", make([]byte, 100<<10)}, tag{"priv", make([]byte, 300<<10)})
}

// TestCompact: the short profile has the colours of the long one, at every level.
//
// Little CMS 2.19 (by Pillow, relative colorimetric) makes the same sRGB of both: of 46,656
// colours in each of these 21 profiles not one differed.
func TestCompact(t *testing.T) {
	var grays [][3]byte
	for i := range 256 {
		grays = append(grays, [3]byte{byte(i), byte(i), byte(i)})
	}
	for _, s := range rgbSpaces() {
		for name, c := range map[string]struct {
			file []byte
			most int
		}{
			"of version 2, sampled":    {heavyMatrixProfile(2, s.prim.toD50(), tagTable(4096, s.light)), 1200},
			"of version 4, sampled":    {heavyMatrixProfile(4, s.prim.toD50(), tagTable(1025, s.light)), 1200},
			"of version 4, parametric": {heavyMatrixProfile(4, s.prim.toD50(), s.para), 600},
		} {
			file := mustParse(t, c.file).Compact()
			if file == nil || len(file) > c.most {
				t.Errorf("%s %s: %d bytes of %d", s.name, name, len(file), len(c.file))
				continue
			}
			p := mustParse(t, file)
			for _, needed := range []string{"desc", "cprt", "wtpt", "chad", "rXYZ", "gXYZ", "bXYZ", "rTRC", "gTRC", "bTRC"} {
				if p.tags[needed] == nil {
					t.Errorf("%s %s: the tag %s is missing", s.name, name, needed)
				}
			}
			if p.Description != "RGB" || p.Compact() != nil {
				t.Errorf("%s %s: %q, and shorter still: %d bytes", s.name, name, p.Description, len(p.Compact()))
			}
			for _, in := range []*picture.Picture{spread(36), colours(grays...)} {
				long, short := convertTo(t, c.file, in), convertTo(t, file, in)
				for i := range long.Pix {
					if d := int(long.Pix[i]) - int(short.Pix[i]); d < -1 || d > 1 {
						t.Fatalf("%s %s: byte %d of the colours is %d instead of %d", s.name, name, i, short.Pix[i], long.Pix[i])
					}
				}
			}
		}
	}
}

func TestCompactOfOthers(t *testing.T) {
	square := func(d []float64) [3]float64 { return [3]float64{d[0], 0.5, 0.5} }
	pad := tag{"priv", make([]byte, 100<<10)}
	for name, file := range map[string][]byte{
		"short":    matrixProfile(4, primP3.toD50(), paraSRGB()),
		"tables":   build("2 mntr RGB Lab ", tag{"A2B0", tagMFT(1, 3, 2, square, same, same)}, pad),
		"gray":     build("2 mntr GRAYXYZ ", tag{"kTRC", tagGamma(2)}, pad),
		"named":    build("2 nmcl RGB XYZ ", pad),
		"HDR (PQ)": build("4 mntr RGB XYZ ", append(p3Tags(), tag{"cicp", append(typed("cicp"), 9, 16, 0, 1)}, pad)...),
	} {
		if c := mustParse(t, file).Compact(); c != nil {
			t.Errorf("%s: %d bytes of %d", name, len(c), len(file))
		}
	}
	hdr := mustParse(t, build("4 mntr RGB XYZ ", append(p3Tags(), tag{"cicp", append(typed("cicp"), 9, 16, 0, 1)})...))
	if out, err := hdr.ToSRGB(spread(2)); err == nil {
		t.Errorf("PQ became %v", out.Pix[:4])
	}
	if p := mustParse(t, build("4 mntr RGB XYZ ", append(p3Tags(), tag{"cicp", append(typed("cicp"), 12, 13, 0, 1)})...)); p.unsupported != "" {
		t.Error("Display P3 by cicp is refused")
	}
}

// The bytes that the profile was parsed from are left alone.
func TestCompactLeavesAlone(t *testing.T) {
	file := heavyMatrixProfile(2, primP3.toD50(), tagTable(4096, lightSRGB))
	before := bytes.Clone(file)
	mustParse(t, file).Compact()
	if !bytes.Equal(file, before) {
		t.Error("the profile has changed")
	}
}
