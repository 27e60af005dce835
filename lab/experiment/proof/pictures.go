package proof

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	// pictures are more than are asked for in a warm-up and a window: the store is
	// empty when an instance starts, and each is converted once.
	pictures = 160
	// The size of one: a conversion takes some 20 ms, so that a slot has many.
	width, height = 320, 240
)

// errPictures is what went wrong with the images.
var errPictures = errors.New("making pictures to convert")

// folder is that of the images.
func (p *proof) folder() string { return filepath.Join(p.Env.Work, "photos") }

// writePictures makes the images: each different, with slopes, edges and noise
// as photographs have them, the same in every run.
func (p *proof) writePictures() error {
	if err := os.MkdirAll(p.folder(), 0o750); err != nil {
		return fmt.Errorf("%w: %w", errPictures, err)
	}
	// One that was changed within the last second may still be changing, and is
	// not converted.
	then := time.Now().Add(-time.Hour)
	for i, path := range picturePaths() {
		var out bytes.Buffer
		err := jpeg.Encode(&out, picture(uint64(i)), &jpeg.Options{Quality: 90})
		name := filepath.Join(p.folder(), path)
		if err == nil {
			err = os.WriteFile(name, out.Bytes(), 0o600)
		}
		if err == nil {
			err = os.Chtimes(name, then, then)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errPictures, err)
		}
	}
	return nil
}

// picturePaths are the paths of all images.
func picturePaths() []string {
	paths := make([]string, pictures)
	for i := range paths {
		paths[i] = fmt.Sprintf("/photo-%03d.jpg", i)
	}
	return paths
}

// picture is the i-th image.
func picture(i uint64) image.Image {
	random := rand.New(rand.NewPCG(i, 6)) // images that are the same each time
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	wave, turn, edge := 20+random.Float64()*40, random.Float64()*math.Pi, random.IntN(width)
	for y := range height {
		for x := range width {
			slope := math.Sin((float64(x)*math.Cos(turn) + float64(y)*math.Sin(turn)) / wave)
			v := 128 + 80*slope + 8*random.NormFloat64()
			if x > edge {
				v = 255 - v
			}
			shade := uint8(max(0, min(255, v)))
			m.SetNRGBA(x, y, color.NRGBA{R: shade, G: uint8(255 * y / height), B: 255 - shade, A: 255})
		}
	}
	return m
}

// imageArgs are the arguments of millrace as an image server with nothing converted,
// and what removes its folder.
func (p *proof) imageArgs() (args []string, remove func() error, err error) {
	dir, err := os.MkdirTemp(p.Env.Work, "images-")
	if err != nil {
		return nil, nil, fmt.Errorf("making a folder for the image server: %w", err)
	}
	name := filepath.Join(dir, "millrace.yaml")
	text := fmt.Sprintf("log: {format: off}\nadmin: {listen: off}\nsites:\n  - routes:\n      /:\n        static: {root: %q}\n"+
		"        images: {engine: embedded, formats: [webp], wait: 30s, no_best: true, workers: 1, store: %q}\n", p.folder(), filepath.Join(dir, "variants"))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return nil, nil, fmt.Errorf("writing the config of the image server: %w", err)
	}
	return []string{"serve", "--config", name, "--listen", "127.0.0.1:" + portMark}, func() error { return os.RemoveAll(dir) }, nil
}

// codecs is part of the name of every function that writes WebP.
const codecs = "github.com/gen2brain/webp"

// hasCodecs reports whether a profile has samples of the WebP encoder, which works in
// processes of its own: without them, what converts images is compiled alike in both
// builds, but for what it shares with the rest.
func hasCodecs(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return false
	}
	const most = 64 << 20 // unpacked; what profiles have is a hundredth of it
	text, err := io.ReadAll(io.LimitReader(z, most))
	return err == nil && bytes.Contains(text, []byte(codecs))
}
