package codec

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"millrace/images/picture"
)

// What cwebp is told at the effort Fast. Method 2 finds fewer ways to code a
// block; the strongest filter against seams makes up for most of it, for nothing
// (0.5 of SSIMULACRA2). On the ten photographs of lab/bench/run images, 4:2:0 to
// 4:4:4, baseline and progressive, beside vips 8.14 webpsave at Q 80 (method 4):
//
//	                      CPU   bytes   SSIMULACRA2, mean (worst)
//	-m 2 -q 80 -f 100     0.43   1.04   -0.2 (-1.6)
//	-m 2 -q 80.6 -f 100   0.43   1.07   +0.3 (-1.3)
//
// 80.6 is the next quantizer. Without the filter the score is 0.3 to 0.5 lower.
// Method 3 costs 0.79 for 4 % fewer bytes than method 2; between the two there
// is nothing: -pass 2 and -sns change next to nothing, fewer -segments and
// -partition_limit make more bytes. Method 6 costs 1.7, for 0.96 of the bytes.
const fastFilter = "100"

// cwebpJob is an image for cwebp. What is opaque goes in as planes, which
// spares it the way through RGB; transparency it reads only as RGBA.
func cwebpJob(p *picture.Picture, o Params) job {
	method, effort := "2", losslessEffort
	lossy := []string{"-q", quality(o), "-f", fastFilter}
	if o.Effort == Best {
		method, effort = "6", losslessBest
		lossy = []string{"-q", quality(o)}
	}
	args := []string{"-quiet", "-m", method}
	var input [][]byte
	switch {
	case o.exact():
		args = append(args, "-lossless", "-q", strconv.Itoa(effort))
		if !o.Lossless {
			args = append(args, "-near_lossless", strconv.Itoa(o.NearLossless))
		}
		input = pam(p)
	case !p.Opaque():
		args = append(args, lossy...)
		input = pam(p)
	default:
		args = append(append(args, lossy...), "-s", strconv.Itoa(p.Width), strconv.Itoa(p.Height))
		input = rawYUV(p)
	}
	return job{args: append(args, "-o", "-", "--", "-"), input: input}
}

// quality is o.Quality within its bounds.
func quality(o Params) string { return strconv.Itoa(min(max(o.Quality, 1), 100)) }

// gif2webpJob is an animation for gif2webp, which opens its input by name.
// -mixed lets it choose for each frame whether loss pays. Without -min_size,
// which costs half as much CPU again, three of five GIFs became larger; with
// it, all became 21 to 87 % smaller.
func gif2webpJob(gif []byte, o Params) job {
	method := "2"
	if o.Effort == Best {
		method = "6"
	}
	args := []string{"-quiet", "-min_size", "-m", method}
	if o.exact() {
		args = append(args, "-q", strconv.Itoa(losslessEffort))
	} else {
		args = append(args, "-mixed", "-q", quality(o))
	}
	return job{args: append(args, "-o", "-", "--", descriptors+"/0"), input: [][]byte{gif}}
}

// avifencJob is an image for avifenc. It prints messages to standard output,
// so its result comes out of a descriptor of its own.
func (t *Tools) avifencJob(p *picture.Picture, o Params) job {
	speed, q := "9", avifQuality(o.Quality, t.tuned)
	if o.Effort == Best {
		speed, q = "6", max(q-slower, 1)
	}
	// BT.601 of full range as in JFIF; the primaries and the curve of sRGB,
	// unless a profile says other: ISO/IEC 23091-2, 8.1 to 8.3.
	colours := "1/13/6"
	if p.ICC != nil {
		colours = "2/2/6"
	}
	args := []string{"--stdin", "-j", "1", "-c", "aom", "-s", speed, "--cicp", colours}
	if t.scale {
		args = append(args, "-q", strconv.Itoa(q), "--qalpha", strconv.Itoa(alphaQuality))
	} else {
		args = append(args, quantizers("", q)...)
		args = append(args, quantizers("alpha", alphaQuality)...)
	}
	if n := tileColumns(p.Width, p.Height); n > 0 {
		args = append(args, "--tilecolslog2", strconv.Itoa(n))
	}
	out := fmt.Sprintf("%s/%d", descriptors, resultFD)
	return job{args: append(args, "-o", out), input: y4m(p), apart: true}
}

// tileColumns is the logarithm of how many columns of tiles a picture gets. AV1 allows
// no tile of more than 4096 by 2304 pixels, and libaom 3.6.0 (Debian 12) writes files that
// no browser shows where it has to divide a picture into rows of tiles for that. With
// enough columns it need not. A picture has as many blocks across as that takes, since
// none is taller than 65,536 pixels.
func tileColumns(width, height int) (n int) {
	const most = 4096 * 2304
	for _, block := range []int{64, 128} { // the encoder chooses one
		blocks := (width + block - 1) / block * ((height + block - 1) / block)
		for most/(block*block)<<n < blocks {
			n++
		}
	}
	return n
}

// quantizers are the options of avifenc before 1.0 for a quality from 0 to 100,
// as later versions translate it: AV1's quantizers go from 63 to 0; the encoder
// may deviate by four.
func quantizers(plane string, quality int) []string {
	q := ((100-quality)*63 + 50) / 100
	of := "color:"
	if plane != "" {
		of = plane + ":"
	}
	return []string{
		"--min" + plane, strconv.Itoa(max(q-4, 0)), "--max" + plane, strconv.Itoa(min(q+4, 63)),
		"-a", of + "end-usage=q", "-a", of + "cq-level=" + strconv.Itoa(q),
	}
}

func (t *Tools) testCWebP(ctx context.Context, c *command) error {
	if err := c.askVersion(ctx, "-version"); err != nil {
		return err
	}
	return testWebP(ctx, t)
}

func (t *Tools) testGIF2WebP(ctx context.Context, c *command) error {
	if err := c.askVersion(ctx, "-version"); err != nil {
		return err
	}
	file, err := testGIF()
	if err == nil {
		_, err = t.Animate(ctx, file, Params{Format: WebP, Quality: 80}, nil)
	}
	return err
}

func (t *Tools) testAVIFEnc(ctx context.Context, c *command) error {
	if err := c.askVersion(ctx, "--version"); err != nil {
		return err
	}
	help, err := c.run(ctx, job{args: []string{"--help"}})
	if err != nil {
		return err
	}
	t.scale = strings.Contains(string(help), "--qalpha")
	var major, minor int
	_, _ = fmt.Sscanf(c.version, "%d.%d", &major, &minor)
	t.tuned = major > 1 || major == 1 && minor >= 4
	for _, p := range []*picture.Picture{testPicture(), testTransparent()} {
		if _, err := t.Encode(ctx, p, Params{Format: AVIF, Quality: 80}); err != nil {
			return err
		}
	}
	return nil
}
