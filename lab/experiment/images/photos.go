package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
)

// photo is a photograph of one of Debian's packages of wallpapers.
type photo struct {
	name string // that it has in the folder
	pkg  string // of Debian
	file string // that it is copied from
	look bool   // a quick run has it, too
}

const (
	mate   = "mate-backgrounds"
	plasma = "plasma-workspace-wallpapers"

	mateFolder   = "/usr/share/backgrounds/mate/nature/"
	plasmaFolder = "/usr/share/wallpapers/"
)

// photos are those that are converted, always these: 2 to 6 megapixels, all kinds
// of JPEG that the packages have in that range. Two are among them for the sizes
// of their variants (see readyPhotos).
func photos() []photo {
	return []photo{
		{"RainDrops.jpg", mate, mateFolder + "RainDrops.jpg", true},
		{"Blinds.jpg", mate, mateFolder + "Blinds.jpg", true},
		{"Aqua.jpg", mate, mateFolder + "Aqua.jpg", true},
		{"Wood.jpg", mate, mateFolder + "Wood.jpg", false},
		{"BytheWater.jpg", plasma, plasmaFolder + "BytheWater/contents/images/2560x1600.jpg", true},
		{"SafeLanding.jpg", plasma, plasmaFolder + "SafeLanding/contents/images/1622x2880.jpg", false},
		{"ColorfulCups.jpg", plasma, plasmaFolder + "ColorfulCups/contents/images/2560x1600.jpg", true},
		{"Autumn.jpg", plasma, plasmaFolder + "Autumn/contents/images/2560x1600.jpg", false},
		{"Kite.jpg", plasma, plasmaFolder + "Kite/contents/images/2560x1600.jpg", false},
		{"PastelHills.jpg", plasma, plasmaFolder + "PastelHills/contents/images/3200x2000.jpg", false},
	}
}

// A readyPhoto is one whose variant is served.
type readyPhoto struct {
	size string // of the variant, about
	file string // that it is copied from
}

// path is what is asked for.
func (r readyPhoto) path() string { return "/ready-" + r.size + ".jpg" }

// readyPhotos are those whose variants are served; the first is as small as most
// images of pages.
func readyPhotos() []readyPhoto {
	return []readyPhoto{
		{"20k", plasmaFolder + "BytheWater/contents/screenshot.jpg"},
		{"70k", mateFolder + "Aqua.jpg"},
		{"350k", plasmaFolder + "BytheWater/contents/images/2560x1600.jpg"},
	}
}

const (
	// smallFile is what is asked for beside a crowd, smallSize its bytes.
	smallFile = "small.txt"
	smallSize = 501
	// crowdFrom are the megapixels that an image of the crowd has at least.
	crowdFrom = 4
)

// writePhotos makes the site: the photographs under several names, for each variant
// belongs to a name, and each workload has its own.
func (m *measurement) writePhotos() (err error) {
	crowd, crops := 20, 40
	if m.Quick {
		crowd, crops = 4, 8
	}
	if m.photos, err = copyPhotos(m.Site, photos(), m.Quick); err != nil {
		return err
	}
	for _, r := range readyPhotos() {
		data, err := os.ReadFile(r.file)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoPhotos, err)
		}
		if err := writeOld(filepath.Join(m.Site, r.path()), data); err != nil {
			return err
		}
	}
	if err := writeOld(filepath.Join(m.Site, smallFile), make([]byte, smallSize)); err != nil {
		return err
	}
	var all, large []string
	for _, p := range m.photos {
		all = append(all, filepath.Join(m.Site, p.name))
		if p.megapixels >= crowdFrom {
			large = append(large, filepath.Join(m.Site, p.name))
		}
	}
	if m.burstImages, err = spread(m.Site, large, crowd, "crowd"); err != nil {
		return err
	}
	m.crops, err = makeSmall(m.Site, all, crops)
	return err
}

// errNoPhotos says what to install.
var errNoPhotos = errors.New("photographs are missing; install Debian's packages " + mate + " and " + plasma +
	" (apt-get install --no-install-recommends " + mate + " " + plasma + ")")

// A photograph is one in the folder, and what it is.
type photograph struct {
	name, pkg     string
	width, height int
	megapixels    float64
	bytes         int64
	hash          string
}

// copyPhotos makes a folder with photographs in it, in a quick run with some.
func copyPhotos(dir string, list []photo, quick bool) ([]photograph, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a folder for photographs: %w", err)
	}
	var all []photograph
	for _, p := range list {
		if quick && !p.look {
			continue
		}
		data, err := os.ReadFile(p.file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no %s", errNoPhotos, p.file)
		}
		if err != nil {
			return nil, fmt.Errorf("reading a photograph: %w", err)
		}
		described, err := describe(data)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", p.file, err)
		}
		described.name, described.pkg = p.name, p.pkg
		if err := writeOld(filepath.Join(dir, p.name), data); err != nil {
			return nil, err
		}
		all = append(all, described)
	}
	return all, nil
}

// describe says what a JPEG is.
func describe(data []byte) (photograph, error) {
	c, err := jpeg.DecodeConfig(bytes.NewReader(data))
	return photograph{
		width: c.Width, height: c.Height, bytes: int64(len(data)), megapixels: float64(c.Width) * float64(c.Height) / 1e6, hash: hashOf(data),
	}, err
}

// photoTable says what was converted.
func (m *measurement) photoTable() record.Table {
	t := record.Table{Title: "The photographs", Columns: []string{"name", "Debian's package", "pixels", "bytes"}}
	for _, p := range m.photos {
		t.Rows = append(t.Rows, []string{p.name, p.pkg, fmt.Sprintf("%d × %d", p.width, p.height), experiment.Count(int(p.bytes))})
	}
	return t
}

// hashOf names bytes.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// pictureBytes is what a WebP takes without its profile and metadata, which some
// converters keep and others do not: its file without the chunks ICCP, EXIF and
// XMP (RFC 9649, 2.7). All of it where it is not a WebP.
func pictureBytes(data []byte) int64 {
	const header, chunk = 12, 8 // RIFF, size, WEBP; name, size
	if len(data) < header || string(data[:4]) != "RIFF" || string(data[8:header]) != "WEBP" {
		return int64(len(data))
	}
	sum := int64(header)
	for at := header; at+chunk <= len(data); {
		length := chunk + int(binary.LittleEndian.Uint32(data[at+4:]))
		length += length % 2
		switch string(data[at : at+4]) {
		case "ICCP", "EXIF", "XMP ":
		default:
			sum += int64(min(length, len(data)-at))
		}
		at += length
	}
	return sum
}

// makeSmall makes distinct images of half a megapixel to a whole one, out of
// the photographs: crops at other places in other sizes, written anew.
func makeSmall(dir string, from []string, n int) (names []string, err error) {
	for first := range from {
		data, err := os.ReadFile(from[first])
		if err != nil {
			return nil, err
		}
		whole, err := jpeg.Decode(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", from[first], err)
		}
		for i := first; i < n; i += len(from) {
			name := fmt.Sprintf("crop-%04d.jpg", i)
			if err := writeCrop(filepath.Join(dir, name), whole, i); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

const (
	// The sides of crops: 0.52 to 0.97 megapixels.
	cropWidth, cropHeight = 880, 592
	cropSizes             = 16
	cropStep              = 20
	cropQuality           = 88
)

// cropSize is the size of the i-th crop.
func cropSize(i int) (w, h int) {
	return cropWidth + cropStep*(i%cropSizes), cropHeight + cropStep/2*(i%cropSizes)
}

// cropPixels are the megapixels of n crops.
func cropPixels(n int) (sum float64) {
	for i := range n {
		w, h := cropSize(i)
		sum += float64(w*h) / 1e6
	}
	return sum
}

// writeCrop writes the i-th crop of an image.
func writeCrop(name string, whole image.Image, i int) error {
	part, ok := whole.(interface {
		SubImage(image.Rectangle) image.Image
	})
	if !ok {
		return errors.New("a picture that cannot be cut")
	}
	b := whole.Bounds()
	w, h := cropSize(i)
	if w > b.Dx() || h > b.Dy() {
		return errors.New("a picture that is smaller than its crop")
	}
	// Both primes, so that no two crops of a photograph are alike.
	x, y := b.Min.X+(i*131)%max(1, b.Dx()-w), b.Min.Y+(i*89)%max(1, b.Dy()-h)
	var out bytes.Buffer
	if err := jpeg.Encode(&out, part.SubImage(image.Rect(x, y, x+w, y+h)), &jpeg.Options{Quality: cropQuality}); err != nil {
		return err
	}
	return writeOld(name, out.Bytes())
}

// writeOld writes a file that was changed an hour ago: one that was changed
// within the last second may still be changing, and is not converted yet.
func writeOld(name string, data []byte) error {
	if err := os.WriteFile(name, data, 0o644); err != nil {
		return err
	}
	then := time.Now().Add(-time.Hour)
	return os.Chtimes(name, then, then)
}

// spread links files under so many names in a folder, one after the other; a
// variant belongs to a name, so each of them is converted.
func spread(dir string, files []string, n int, prefix string) ([]string, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: none is large enough", errNoPhotos)
	}
	var names []string
	for i := range n {
		name := fmt.Sprintf("%s-%04d.jpg", prefix, i)
		if err := os.Link(files[i%len(files)], filepath.Join(dir, name)); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}
