// Package icc reads ICC colour profiles (ICC.1:2022, and ICC.1:2001-04 for
// version 2) as far as a web server needs: to tell that one is sRGB and can be
// left out, to convert pixels to sRGB where a profile cannot be kept, and to write
// one shorter that is too large for its image.
//
// Profiles come with images and so from anyone. What is read is looked up in
// the file's bytes when it is needed and never copied, so memory is bounded by
// constants, and so is the time of everything but the pass over the pixels.
//
// The way of a colour: device values → (curves, a matrix or a table) → the
// profile connection space, XYZ or Lab under D50 → linear sRGB → 8 bits. It is
// relative colorimetric without black point compensation: white becomes white,
// and black as black as the profile says that the ink is. The tag chad is not
// needed for that: it only leads back from D50 to the light of the device.
package icc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The errors of Parse and ToSRGB, wrapped.
var (
	ErrBroken      = errors.New("the colour profile is broken")
	ErrUnsupported = errors.New("a kind of colour profile that cannot be converted")
)

// Space is the colour space of the samples that a profile describes.
type Space string

// Spaces, by their ICC signature (ICC.1:2022, 7.2.8). Parse reads profiles of
// others, too; only ToSRGB refuses them.
const (
	RGB  Space = "RGB "
	Gray Space = "GRAY"
	CMYK Space = "CMYK"
)

const (
	headerSize = 128
	tagSize    = 12
	// maxTags bounds the tag table. Profiles have 9 to 30 tags; 100 leaves room
	// for private ones.
	maxTags = 100
	// maxInputs bounds the samples of a pixel: CMYK.
	maxInputs = 4
)

// Profile is a parsed profile. It refers to the bytes that it was parsed from,
// which must not change; it does not change itself and may be used by several
// goroutines.
type Profile struct {
	// Space is what the samples of an image with this profile are.
	Space Space
	// Description is the profile's name for people, at most 200 bytes of
	// printable UTF-8; empty when it has none that can be read.
	Description string

	head        []byte // of the file
	tags        map[string][]byte
	size        int
	unsupported string // why ToSRGB refuses, or ""
	lab         bool   // the connection space is Lab, not XYZ

	// One of the following is what the profile is made of.
	table  *lut     // A2B1 or A2B0, any space
	curves []curve  // 3 of RGB, 1 of Gray
	matrix matrix33 // of RGB without table: linear device RGB → XYZ under D50
}

// Parse reads a profile. Errors wrap ErrBroken. Kinds that cannot be converted
// are parsed without error as long as their header and their tag table are
// sound. Time and memory do not depend on the size that the file declares.
func Parse(data []byte) (*Profile, error) {
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading a colour profile of %d bytes: %w: %w", len(data), ErrBroken, err)
	}
	return p, nil
}

func parse(data []byte) (*Profile, error) {
	if len(data) < headerSize+4 {
		return nil, errors.New("it is shorter than its header")
	}
	if string(data[36:40]) != "acsp" {
		return nil, errors.New(`the signature "acsp" is missing`)
	}
	size := binary.BigEndian.Uint32(data)
	if uint64(size) > uint64(len(data)) || size < headerSize+4 {
		return nil, fmt.Errorf("it declares %d bytes", size)
	}
	tags, err := parseTags(data[:size])
	if err != nil {
		return nil, err
	}
	p := &Profile{Space: Space(data[16:20]), Description: description(tags["desc"]), head: data[:headerSize], tags: tags, size: int(size)}
	major, class, pcs := data[8], string(data[12:16]), string(data[20:24])
	if p.unsupported = unsupported(major, class, p.Space); p.unsupported != "" {
		return p, nil
	}
	// ITU-T H.273: PQ and HLG, which a conversion to sRGB would cut off.
	if cicp := tags["cicp"]; len(cicp) >= 12 && (cicp[9] == 16 || cicp[9] == 18) {
		p.unsupported = "high dynamic range"
		return p, nil
	}
	if pcs != "XYZ " && pcs != "Lab " {
		return nil, fmt.Errorf("its connection space is %q instead of XYZ or Lab", pcs)
	}
	p.lab = pcs == "Lab "
	return p, p.parseModel(tags, class)
}

// parseTags reads the tag table (ICC.1:2022, 7.3). Tags that lie outside are
// left out, as if they were missing; the first of a name counts.
func parseTags(data []byte) (map[string][]byte, error) {
	count := binary.BigEndian.Uint32(data[headerSize:])
	if count > maxTags {
		return nil, fmt.Errorf("it declares %d tags, at most %d are read", count, maxTags)
	}
	table := data[headerSize+4:]
	if uint64(len(table)) < uint64(count)*tagSize {
		return nil, fmt.Errorf("it ends within its table of %d tags", count)
	}
	tags := make(map[string][]byte, count)
	for ; count > 0; count-- {
		name := string(table[:4])
		offset := uint64(binary.BigEndian.Uint32(table[4:]))
		size := uint64(binary.BigEndian.Uint32(table[8:]))
		table = table[tagSize:]
		if _, ok := tags[name]; ok || size < 8 || offset+size > uint64(len(data)) {
			continue
		}
		tags[name] = data[offset : offset+size]
	}
	return tags, nil
}

// unsupported says what kind of profile it is that cannot be converted, or "".
func unsupported(major byte, class string, space Space) string {
	switch class {
	case "scnr", "mntr", "prtr", "spac":
	case "nmcl":
		return "named colours"
	case "link":
		return "a device link"
	case "abst":
		return "an abstract profile"
	default:
		return fmt.Sprintf("a profile of class %q", class)
	}
	switch {
	case major > 4:
		return fmt.Sprintf("ICC version %d", major)
	case space == RGB, space == Gray, space == CMYK:
		return ""
	case len(space) == 4 && space[1:] == "CLR":
		return fmt.Sprintf("%c colour channels", space[0])
	default:
		return fmt.Sprintf("colours of kind %q", string(space))
	}
}

// parseModel reads what the colours are computed with. A table wins over
// curves and matrix (ICC.1:2022, 8.10.2), and the colorimetric one over the perceptual.
func (p *Profile) parseModel(tags map[string][]byte, class string) error {
	err := errors.New("it has neither a table nor curves")
	for _, name := range []string{"A2B1", "A2B0"} {
		tag, ok := tags[name]
		if !ok {
			continue
		}
		var table *lut
		if table, err = parseLUT(tag, p.inputs(), p.lab); err == nil {
			p.table = table
			return nil
		}
		err = fmt.Errorf("tag %s: %w", name, err)
	}
	switch p.Space {
	case RGB:
		if tags["rTRC"] != nil && !p.lab {
			err = p.parseMatrix(tags, class)
		}
	case Gray:
		if tags["kTRC"] != nil {
			err = p.parseCurves(tags, "kTRC")
		}
	}
	return err
}

// inputs is the number of samples of a pixel.
func (p *Profile) inputs() int {
	switch p.Space {
	case Gray:
		return 1
	case CMYK:
		return 4
	default:
		return 3
	}
}

func (p *Profile) parseCurves(tags map[string][]byte, names ...string) error {
	for _, name := range names {
		c, _, err := parseCurve(tags[name])
		if err != nil {
			return fmt.Errorf("tag %s: %w", name, err)
		}
		p.curves = append(p.curves, c)
	}
	return nil
}

// parseMatrix reads the three components of a matrix profile (ICC.1:2022, F.3).
func (p *Profile) parseMatrix(tags map[string][]byte, class string) error {
	if err := p.parseCurves(tags, "rTRC", "gTRC", "bTRC"); err != nil {
		return err
	}
	for i, name := range []string{"rXYZ", "gXYZ", "bXYZ"} {
		tag := tags[name]
		if len(tag) < 20 || string(tag[:4]) != "XYZ " {
			return fmt.Errorf("tag %s is missing or no colour", name)
		}
		for row := range 3 {
			p.matrix[row][i] = fixed(tag[8+4*row:])
		}
	}
	if class == "scnr" {
		return nil // whose full signal need not be white
	}
	adapted, ok := adaptWhite(p.matrix)
	if !ok {
		return errors.New("its white is not a colour")
	}
	p.matrix = adapted
	return nil
}

// fixed reads an s15Fixed16Number (ICC.1:2022, 4.6).
func fixed(b []byte) float64 {
	return float64(int32(binary.BigEndian.Uint32(b))) / 65536
}

// xyz computes the colour of a pixel, samples from 0 to 1, under D50.
func (p *Profile) xyz(device [maxInputs]float64) vector {
	switch {
	case p.table != nil:
		return p.table.xyz(p.table.shape(device))
	case p.Space == Gray:
		y := p.curves[0].at(device[0])
		if p.lab { // the curve gives L* (ICC.1:2022, F.2)
			return labToXYZ(vector{100 * y, 0, 0})
		}
		return vector{y * whiteX, y, y * whiteZ}
	default:
		return p.matrix.mul(vector{
			p.curves[0].at(device[0]), p.curves[1].at(device[1]), p.curves[2].at(device[2]),
		})
	}
}

// srgb computes the sRGB of a pixel, samples from 0 to 1. What is out of gamut
// is below 0 or above 1.
func (p *Profile) srgb(device [maxInputs]float64) vector {
	v := fromD50.mul(p.xyz(device))
	return vector{encode(v[0]), encode(v[1]), encode(v[2])}
}
