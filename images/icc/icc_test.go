package icc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustParse(t testing.TB, data []byte) *Profile {
	t.Helper()
	p, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConstants computes the matrices that are written down as numbers.
func TestConstants(t *testing.T) {
	near := func(name string, got matrix33, want mat) {
		t.Helper()
		for r := range 3 {
			for c := range 3 {
				if math.Abs(got[r][c]-want[r][c]) > 1e-9 {
					t.Errorf("%s: row %d is %v, want %v", name, r, got[r], want[r])
				}
			}
		}
	}
	near("srgbD50", srgbD50, primSRGB.toD50())
	near("fromD50", fromD50, primSRGB.toD50().inverse())
	near("unBradford", unBradford, mat{bradford[0], bradford[1], bradford[2]}.inverse())
}

// sRGB as it is found in files. The primaries of the first are those that HP
// and Microsoft published in 1998, of the last what D65 from its spectrum gives.
func TestIsSRGB(t *testing.T) {
	hp := mat{{0.43607, 0.38515, 0.14307}, {0.22249, 0.71687, 0.06061}, {0.01392, 0.09708, 0.71410}}
	google := mat{{0.43604, 0.38512, 0.14305}, {0.22249, 0.71690, 0.06061}, {0.01392, 0.09706, 0.71391}}
	compact := mat{{0.43671, 0.38515, 0.14249}, {0.22249, 0.71686, 0.06062}, {0.01392, 0.09708, 0.71393}}
	swapped := mat{}
	for r := range 3 {
		swapped[r] = [3]float64{hp[r][1], hp[r][0], hp[r][2]}
	}
	for _, c := range []struct {
		name string
		data []byte
		want bool
	}{
		{"HP, version 2, 1024 samples", matrixProfile(2, hp, tagTable(1024, lightSRGB)), true},
		{"version 4, parametric", matrixProfile(4, google, paraSRGB()), true},
		{"version 4, parametric of 7 numbers", matrixProfile(4, google, tagPara(4, 2.4, 1/1.055, 0.055/1.055, 1/12.92, 0.04045, 0, 0)), true},
		{"compact, 26 samples", matrixProfile(2, compact, tagTable(26, lightSRGB)), true},
		{"compact, 42 samples", matrixProfile(2, compact, tagTable(42, lightSRGB)), true},
		{"primaries not adapted to D50", matrixProfile(2, primSRGB.toXYZ(), tagTable(1024, lightSRGB)), true},
		{"gray with the curve", grayProfile("XYZ ", tagTable(1024, lightSRGB)), true},
		{"power 2.2", matrixProfile(2, hp, tagGamma(2.2)), false},
		{"linear", matrixProfile(4, google, tagPara(0, 1)), false},
		{"red and green swapped", matrixProfile(2, swapped, tagTable(1024, lightSRGB)), false},
		{"Display P3", matrixProfile(4, primP3.toD50(), paraSRGB()), false},
		{"Adobe RGB", matrixProfile(2, primAdobe.toD50(), tagGamma(2.19921875)), false},
		{"SMPTE C", matrixProfile(2, primaries{{0.630, 0.340}, {0.310, 0.595}, {0.155, 0.070}, d65}.toD50(), tagTable(1024, lightSRGB)), false},
		{"gray of 2.2", grayProfile("XYZ ", tagGamma(2.2)), false},
		{"named sRGB, is not", build("2 mntr RGB XYZ ", append([]tag{{"desc", tagDesc2("sRGB IEC61966-2.1")}}, p3Tags()...)...), false},
	} {
		if got := mustParse(t, c.data).IsSRGB(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func p3Tags() []tag {
	m := primP3.toD50()
	return []tag{
		{"rXYZ", tagXYZ([3]float64{m[0][0], m[1][0], m[2][0]})},
		{"gXYZ", tagXYZ([3]float64{m[0][1], m[1][1], m[2][1]})},
		{"bXYZ", tagXYZ([3]float64{m[0][2], m[1][2], m[2][2]})},
		{"rTRC", paraSRGB()},
		{"gTRC", paraSRGB()},
		{"bTRC", paraSRGB()},
	}
}

func TestDescription(t *testing.T) {
	long := strings.Repeat("ä", 300)
	for _, c := range []struct {
		name string
		tag  []byte
		want string
	}{
		{"version 2", tagDesc2("Adobe RGB (1998)"), "Adobe RGB (1998)"},
		{"version 4", tagDesc4("enUS", "Display P3"), "Display P3"},
		{"English before others", tagDesc4("deDE", "Farben", "enGB", "Colours"), "Colours"},
		{"the first without English", tagDesc4("deDE", "Farben", "frFR", "Couleurs"), "Farben"},
		{"plain text", append(typed("text"), "plain\x00rest"...), "plain"},
		{"control characters", tagDesc2("a\x1b[31m\nb"), "a\uFFFD[31m\uFFFDb"},
		{"long", tagDesc4("enUS", long), long[:200]},
		{"cut off", tagDesc2("Adobe RGB (1998)")[:17], "Adobe"},
		{"none", nil, ""},
		{"another type", tagGamma(1), ""},
	} {
		tags := p3Tags()
		if c.tag != nil {
			tags = append(tags, tag{"desc", c.tag})
		}
		if got := mustParse(t, build("4 mntr RGB XYZ ", tags...)).Description; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCurves(t *testing.T) {
	half := u16(u32(typed("curv"), 3), 0, 16384, 65535)
	for _, c := range []struct {
		name    string
		tag     []byte
		x, want float64
	}{
		{"identity", u32(typed("curv"), 0), 0.3, 0.3},
		{"power", tagGamma(2), 0.5, 0.25},
		{"samples", half, 0.5, 16384. / 65535},
		{"between samples", half, 0.75, (16384. + 65535) / 2 / 65535},
		{"last sample", half, 1, 1},
		{"type 0", tagPara(0, 3), 0.5, 0.125},
		{"type 1", tagPara(1, 2, 2, -0.5), 0.5, 0.25},
		{"type 1 below", tagPara(1, 2, 2, -0.5), 0.2, 0},
		{"type 2", tagPara(2, 2, 2, -0.5, 0.25), 0.5, 0.5},
		{"type 2 below", tagPara(2, 2, 2, -0.5, 0.25), 0.2, 0.25},
		{"type 3", tagPara(3, 2, 1, 0, 0.5, 0.5), 0.5, 0.25},
		{"type 3 below", tagPara(3, 2, 1, 0, 0.5, 0.5), 0.4, 0.2},
		{"type 4", tagPara(4, 2, 1, 0, 0.5, 0.5, 0.25, 0.125), 0.5, 0.5},
		{"type 4 below", tagPara(4, 2, 1, 0, 0.5, 0.5, 0.25, 0.125), 0.25, 0.25},
		{"too high", tagPara(2, 1, 3, 0, 0), 0.5, 1},
		{"no number", tagPara(3, 0.5, 1, -1, 0, 0), 0.5, 0},
		{"infinite", tagPara(0, -1), 0, 1},
	} {
		curve, size, err := parseCurve(c.tag)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := curve.at(c.x); math.Abs(got-c.want) > 1e-5 {
			t.Errorf("%s: %v at %v, want %v", c.name, got, c.x, c.want)
		}
		if size != len(c.tag) {
			t.Errorf("%s: takes %d bytes, want %d", c.name, size, len(c.tag))
		}
	}
}

func TestBroken(t *testing.T) {
	good := matrixProfile(2, primP3.toD50(), tagGamma(2.2))
	change := func(at int, b ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[at:], b)
		return out
	}
	table := func(tagData []byte) []byte { return build("2 prtr CMYKLab ", tag{"A2B0", tagData}) }
	mft2 := tagMFT(2, 4, 3, func([]float64) [3]float64 { return [3]float64{} }, same, same)
	mab := tagMAB(4, elements{
		a: repeat(tagGamma(1), 4), b: repeat(tagGamma(1), 3), points: 2, width: 1,
		grid: func([]float64) [3]float64 { return [3]float64{} },
	})
	edit := func(b []byte, at int, v ...byte) []byte {
		out := bytes.Clone(b)
		copy(out[at:], v)
		return out
	}
	for name, data := range map[string][]byte{
		"empty":                     nil,
		"shorter than a header":     good[:100],
		"no signature":              change(36, 'x'),
		"declares more":             change(0, 0x7f),
		"declares too little":       change(0, 0, 0, 0, 100),
		"too many tags":             change(128, 0, 0, 1, 0),
		"all tags there are":        change(128, 0xff, 0xff, 0xff, 0xff),
		"cut off in the tags":       edit(good[:170], 0, 0, 0, 0, 170),
		"another connection space":  change(20, 'R', 'G', 'B', ' '),
		"matrix under Lab":          change(20, 'L', 'a', 'b', ' '),
		"no tags":                   build("2 mntr RGB XYZ "),
		"CMYK without table":        build("2 prtr CMYKLab ", p3Tags()...),
		"gray without curve":        build("2 mntr GRAYXYZ ", p3Tags()...),
		"no blue":                   build("2 mntr RGB XYZ ", p3Tags()[:2]...),
		"no blue curve":             build("2 mntr RGB XYZ ", p3Tags()[:5]...),
		"black white":               matrixProfile(2, mat{}, tagGamma(2.2)),
		"curve of another type":     matrixProfile(2, primP3.toD50(), tagDesc2("x")),
		"curve cut off":             matrixProfile(2, primP3.toD50(), tagTable(100, same)[:100]),
		"curve of 2^32-1 samples":   matrixProfile(2, primP3.toD50(), u32(typed("curv"), -1)),
		"parametric type 9":         matrixProfile(2, primP3.toD50(), tagPara(9, 1, 1, 1)),
		"parametric cut off":        matrixProfile(2, primP3.toD50(), tagPara(4, 1, 1, 1)),
		"parametric by zero":        matrixProfile(2, primP3.toD50(), tagPara(1, 1, 0, 1)),
		"table of three inputs":     table(edit(mft2, 8, 3)),
		"table of four outputs":     table(edit(mft2, 9, 4)),
		"table of one point":        table(edit(mft2, 10, 1)),
		"table of 255^4":            table(edit(mft2, 10, 255)),
		"table of empty curves":     table(edit(mft2, 48, 0, 0)),
		"table cut off":             table(mft2[:len(mft2)-1]),
		"table of another type":     table(tagGamma(1)),
		"table of 40 bytes":         table(mft2[:40]),
		"elements without B":        table(edit(mab, 12, 0, 0, 0, 0)),
		"elements without grid":     table(edit(mab, 24, 0, 0, 0, 0)),
		"elements, B far out":       table(edit(mab, 12, 0xff, 0xff, 0xff, 0xff)),
		"elements, matrix far out":  table(edit(mab, 16, 0xff, 0xff, 0xff, 0xff)),
		"elements, M far out":       table(edit(mab, 20, 0x80, 0, 0, 0)),
		"elements, grid far out":    table(edit(mab, 24, 0xff, 0xff, 0xff, 0xff)),
		"elements, A far out":       table(edit(mab, 28, 0, 0, 0xff, 0)),
		"elements, samples of 3":    table(edit(mab, int(binary.BigEndian.Uint32(mab[24:]))+16, 3)),
		"elements, grid of 255^4":   table(edit(mab, int(binary.BigEndian.Uint32(mab[24:])), 255, 255, 255, 255)),
		"elements, grid of nothing": table(edit(mab, int(binary.BigEndian.Uint32(mab[24:])), 0)),
	} {
		p, err := Parse(data)
		if !errors.Is(err, ErrBroken) || p != nil {
			t.Errorf("%s: %v, %v; want ErrBroken", name, p, err)
		}
	}
	for name, data := range map[string][]byte{
		"good":               good,
		"with bytes behind":  append(bytes.Clone(good), 1, 2, 3),
		"good CMYK":          table(mft2),
		"good elements":      table(mab),
		"a stray tag":        build("2 mntr RGB XYZ ", append(p3Tags(), tag{"zzzz", nil})...),
		"broken table, else": build("2 mntr RGB XYZ ", append(p3Tags(), tag{"A2B0", mft2[:40]})...),
	} {
		if _, err := Parse(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Profiles of the machine, where colord or ghostscript brought some.
func TestInstalledProfiles(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.ic[cm]", "*/*.ic[cm]"} {
		found, _ := filepath.Glob(filepath.Join("/usr/share/color/icc", pattern))
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Skip("no profiles in /usr/share/color/icc: install colord-data or libgs-common for this test")
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Skip(err)
		}
		p, err := Parse(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		switch filepath.Base(name) {
		case "sRGB.icc", "srgb.icc", "default_rgb.icc":
			if !p.IsSRGB() {
				t.Errorf("%s is not recognised", name)
			}
		case "AdobeRGB1998.icc", "ProPhotoRGB.icc", "AppleRGB.icc", "a98.icc", "rommrgb.icc", "SMPTE-C-RGB.icc":
			if p.IsSRGB() {
				t.Errorf("%s is taken for sRGB", name)
			}
		}
	}
}
