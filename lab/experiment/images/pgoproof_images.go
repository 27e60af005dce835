package images

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
	"net/http"
	"os"
	"path/filepath"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// imageServer is the workload of millrace that converts images with what is
// built in: then it is the program's own code that works.
const imageServer = "image conversions"

const (
	// proofPictures are more than are asked for in a warm-up and a window: the
	// store is empty when an instance starts, and each is converted once.
	proofPictures = 160
	// The size of one: a conversion takes some 20 ms, so that a slot has many.
	proofWidth, proofHeight = 320, 240
	// proofConversions are those of a slot.
	proofConversions      = 48
	proofConversionsQuick = 12
)

// errPhotos is what went wrong with the images.
var errPhotos = errors.New("making pictures to convert")

// photos is the folder of the images.
func (p *proof) photos() string { return filepath.Join(p.env.Work, "photos") }

// writePhotos makes the images: each different, with slopes, edges and noise
// as photographs have them, the same in every run.
func (p *proof) writePhotos() error {
	if err := os.MkdirAll(p.photos(), 0o750); err != nil {
		return fmt.Errorf("%w: %w", errPhotos, err)
	}
	// One that was changed within the last second may still be changing, and is
	// not converted.
	then := time.Now().Add(-time.Hour)
	for i := range proofPictures {
		var out bytes.Buffer
		if err := jpeg.Encode(&out, proofPicture(uint64(i)), &jpeg.Options{Quality: 90}); err != nil {
			return fmt.Errorf("%w: %w", errPhotos, err)
		}
		name := filepath.Join(p.photos(), photoName(i))
		if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
			return fmt.Errorf("%w: %w", errPhotos, err)
		}
		if err := os.Chtimes(name, then, then); err != nil {
			return fmt.Errorf("%w: %w", errPhotos, err)
		}
	}
	return nil
}

func photoName(i int) string { return fmt.Sprintf("photo-%03d.jpg", i) }

// proofPicture is the i-th image.
func proofPicture(i uint64) image.Image {
	random := rand.New(rand.NewPCG(i, 6)) // images that are the same each time
	m := image.NewNRGBA(image.Rect(0, 0, proofWidth, proofHeight))
	wave, turn, edge := 20+random.Float64()*40, random.Float64()*math.Pi, random.IntN(proofWidth)
	for y := range proofHeight {
		for x := range proofWidth {
			slope := math.Sin((float64(x)*math.Cos(turn) + float64(y)*math.Sin(turn)) / wave)
			v := 128 + 80*slope + 8*random.NormFloat64()
			if x > edge {
				v = 255 - v
			}
			shade := uint8(max(0, min(255, v)))
			m.SetNRGBA(x, y, color.NRGBA{R: shade, G: uint8(255 * y / proofHeight), B: 255 - shade, A: 255})
		}
	}
	return m
}

// imageArgs are millrace's arguments as an image server with nothing converted;
// dir is a folder of its own for this instance.
func (p *proof) imageArgs(dir string) ([]string, error) {
	name := filepath.Join(dir, "millrace.yaml")
	text := fmt.Sprintf("log: {format: off}\nadmin: {listen: off}\nsites:\n  - routes:\n      /:\n        static: {root: %q}\n"+
		"        images: {engine: embedded, formats: [webp], wait: 30s, no_best: true, workers: 1, store: %q}\n", p.photos(), filepath.Join(dir, "variants"))
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing the config of the image server: %w", err)
	}
	return []string{"serve", "--config", name, "--listen", "127.0.0.1:" + portMark}, nil
}

// freshImages are the arguments of an image server with nothing converted, and
// what removes its folder.
func (p *proof) freshImages() (args []string, remove func() error, err error) {
	dir, err := os.MkdirTemp(p.env.Work, "images-")
	if err != nil {
		return nil, nil, fmt.Errorf("making a folder for the image server: %w", err)
	}
	args, err = p.imageArgs(dir)
	return args, func() error { return os.RemoveAll(dir) }, err
}

// imageWorkload is what is asked of it: one image after the other, each for the
// first time.
func (p *proof) imageWorkload() trial.Workload {
	cfg := load.Config{
		Connections: 1, Threads: 1, Requests: proofConversions,
		Header: http.Header{"Accept": {"image/webp"}},
	}
	if p.env.Mode != record.Full {
		cfg.Requests = proofConversionsQuick
	}
	for i := range proofPictures {
		cfg.Paths = append(cfg.Paths, "/"+photoName(i))
	}
	about := fmt.Sprintf("GET of a JPEG of %d × %d pixels that is converted to WebP for this request, by what is built in; one client, server and worker together", proofWidth, proofHeight)
	return trial.Workload{Name: imageServer, About: about, Load: cfg}
}

// codecs is part of the name of every function that writes WebP.
const codecs = "github.com/gen2brain/webp"

// aboutCodecs says whether a profile has the converters in it at all; nothing if
// it cannot be read as one.
func aboutCodecs(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return ""
	}
	const most = 64 << 20 // unpacked; what profiles have is a hundredth of it
	text, err := io.ReadAll(io.LimitReader(z, most))
	switch {
	case err != nil:
		return ""
	case bytes.Contains(text, []byte(codecs)):
		return "the profile has samples of the WebP encoder"
	}
	return "the profile has no samples of the WebP encoder, which works in processes of its own: what converts pictures is compiled alike in both builds, " +
		"but for what it shares with the rest"
}
