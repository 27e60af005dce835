package header

import (
	"encoding/binary"
	"fmt"
)

// Values of TIFF fields: TIFF 6.0, section 8 and supplements.
const (
	tiffPalette    = 3
	tiffOldJPEG    = 6
	tiffJPEG       = 7
	extraPremult   = 1
	extraUnpremult = 2
)

// maxSamples is how many samples of a pixel are looked at, with their bits and
// formats. Images have up to five; satellites' have more.
const maxSamples = 16

// isBigTIFF knows the files with 64-bit offsets that are not TIFF 6.0.
func isBigTIFF(file []byte) bool {
	return len(file) >= 4 && (string(file[:4]) == "II+\x00" || string(file[:4]) == "MM\x00+")
}

// readTIFF reads the first directory. The further ones are pages or previews,
// not frames.
func readTIFF(file []byte) (Info, error) {
	i := Info{Lossless: true, Depth: 1} // the default: TIFF 6.0, section 8
	if isBigTIFF(file) {
		return i, fmt.Errorf("%w: BigTIFF", ErrUnsupported)
	}
	d, ok := openDirectory(file)
	if !ok {
		return i, broken("there is no sound directory where it should be")
	}
	for f := range d.all() {
		n, _ := f.number()
		if f.tag == tagWidth && i.Width != 0 || f.tag == tagHeight && i.Height != 0 {
			return i, broken("it has two sizes")
		}
		switch f.tag {
		case tagWidth:
			i.Width = n
		case tagHeight:
			i.Height = n
		case tagBitsPerSample:
			i.Depth = n
		case tagCompression:
			i.Lossless = n != tiffOldJPEG && n != tiffJPEG
		case tagPhotometric:
			i.Palette = n == tiffPalette
		case tagExtraSamples:
			i.Alpha = n == extraPremult || n == extraUnpremult
		case tagICC:
			i.setICC(f.value)
		default:
			i.exifField(f)
		}
	}
	return i, nil
}

// TIFFLayout is how the first image of a TIFF is stored. Fields that are not
// in the file have the defaults of TIFF 6.0, section 8, or -1 where there is none.
type TIFFLayout struct {
	Order         binary.AppendByteOrder
	Width, Height int
	Samples       int   // a pixel
	Bits          []int // of each sample; the first 16
	Formats       []int // SampleFormat of each; empty: whole numbers
	Extra         []int // what samples beyond the colours are
	Compression   int
	Photometric   int // -1: not said
	Planar        int // 1: a pixel's samples together; 2: each in a plane
	Predictor     int
	FillOrder     int // 2: the first pixel is in the lowest bit
	T4Options     int
	ColorMap      []int
	// Chunk is the size of a strip or tile in pixels. The last strip may be
	// lower; tiles are filled up.
	Chunk struct{ Width, Height int }
	Tiled bool

	file            []byte
	offsets, counts field
}

// ReadTIFF reads the layout of a TIFF that is in memory as a whole. Errors wrap
// ErrBroken or ErrUnsupported.
func ReadTIFF(file []byte) (TIFFLayout, error) {
	l := TIFFLayout{
		Order: binary.LittleEndian, Samples: 1, Compression: 1, Photometric: -1, Planar: 1, Predictor: 1, FillOrder: 1, file: file,
	}
	if isBigTIFF(file) {
		return l, fmt.Errorf("%w: BigTIFF", ErrUnsupported)
	}
	d, ok := openDirectory(file)
	if !ok || d.cut {
		return l, broken("there is no sound directory where it should be")
	}
	if d.order == binary.BigEndian {
		l.Order = binary.BigEndian
	}
	for f := range d.all() {
		l.field(f)
	}
	if len(l.Bits) == 0 {
		l.Bits = []int{1}
	}
	if !l.Tiled {
		l.Chunk.Width = l.Width
		if l.Chunk.Height <= 0 || l.Chunk.Height > l.Height {
			l.Chunk.Height = l.Height
		}
	}
	if l.Width <= 0 || l.Height <= 0 || l.Chunk.Width <= 0 || l.Chunk.Height <= 0 {
		return l, broken("a picture of %d × %d pixels in parts of %d × %d", l.Width, l.Height, l.Chunk.Width, l.Chunk.Height)
	}
	return l, nil
}

func (l *TIFFLayout) field(f field) {
	single := map[uint16]*int{
		tagWidth: &l.Width, tagHeight: &l.Height, tagSamplesPerPixel: &l.Samples,
		tagCompression: &l.Compression, tagPhotometric: &l.Photometric, tagPlanar: &l.Planar,
		tagPredictor: &l.Predictor, tagFillOrder: &l.FillOrder, tagT4Options: &l.T4Options,
		tagRowsPerStrip: &l.Chunk.Height, tagTileWidth: &l.Chunk.Width, tagTileLength: &l.Chunk.Height,
	}
	n, there := f.number()
	if to := single[f.tag]; to != nil && there {
		*to = n
	}
	switch f.tag {
	case tagTileWidth:
		l.Tiled = true
	case tagBitsPerSample:
		l.Bits = f.numbers(maxSamples)
	case tagSampleFormat:
		l.Formats = f.numbers(maxSamples)
	case tagExtraSamples:
		l.Extra = f.numbers(maxSamples)
	case tagColorMap:
		l.ColorMap = f.numbers(3 << 8)
	case tagStripOffsets, tagTileOffsets:
		l.offsets = f
	case tagStripByteCounts, tagTileByteCounts:
		l.counts = f
	}
}

// numbers are a field's first whole numbers.
func (f field) numbers(most int) []int {
	all := make([]int, min(f.count(), most))
	for i := range all {
		all[i] = f.at(i)
	}
	return all
}

// Across and Down are how many strips or tiles there are in a plane.
func (l *TIFFLayout) Across() int { return (l.Width + l.Chunk.Width - 1) / l.Chunk.Width }

// Down is how many rows of them.
func (l *TIFFLayout) Down() int { return (l.Height + l.Chunk.Height - 1) / l.Chunk.Height }

// Part is the bytes of a strip or tile, as they are in the file: those of the
// first plane come first, in rows. ok is false for one that is not there.
func (l *TIFFLayout) Part(i int) (part []byte, ok bool) {
	if i >= l.offsets.count() || i >= l.counts.count() {
		return nil, false
	}
	from, n := uint64(l.offsets.at(i)), uint64(l.counts.at(i))
	if from+n > uint64(len(l.file)) {
		return nil, false
	}
	return l.file[from : from+n], true
}

// Size is the length of the file in bytes.
func (l *TIFFLayout) Size() int { return len(l.file) }
