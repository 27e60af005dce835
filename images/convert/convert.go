// Package convert makes one image file into another: probe, decode at the
// scale that is needed, turn upright, fit into a size, settle the colours,
// encode, put profile and copyright back. It is a function of its input: no
// files, no cache, no network.
//
// What it will not do well it does not do: then the original is served, which
// is right always. That goes for truncated files, animations as anything but WebP,
// colours that can neither be kept nor converted, and results that save nothing.
package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"time"

	"millrace/images/codec"
	"millrace/images/container"
	"millrace/images/header"
	"millrace/images/icc"
	"millrace/images/picture"
)

// ErrNoGain says that the result would not be smaller than the source, by 256 bytes at
// least (a variant has its own costs: an entry, a file, a Vary); what was
// converted is thrown away. Only for specs that change nothing but the format,
// and those whose box is no smaller than the image.
var ErrNoGain = errors.New("the original is smaller")

// ErrMemory says that the image has transparency, which Memory takes for
// granted only where there is room for it.
var ErrMemory = errors.New("its transparency needs more memory than there is a budget for")

// ErrUnsupported says that an image is of a kind that is not converted, such
// as an animation as AVIF. Its original is to be served.
var ErrUnsupported = errors.New("a kind of image that is not converted")

// leastGain is the number of bytes that a variant must save: see ErrNoGain.
const leastGain = 256

// DefaultQuality is the quality of specs that name none.
const DefaultQuality = 80

// Fit is how an image is brought into a box.
type Fit string

// Fits. Contain (the default) keeps the whole image and its proportions
// inside the box; Cover fills the box and cuts off what hangs over, from the
// middle or where Edit.Gravity says; Fill ignores the proportions; Outside covers without
// cutting; Pad is Contain with ground around the image, so that the result is as large as
// the box. Without Edit.Enlarge none makes an image larger than it is: for Cover and Fill
// the box shrinks in its own proportions until the image fills it. The box is meant
// for the upright image, after its EXIF orientation and Edit.Rotate.
const (
	Contain Fit = "contain"
	Cover   Fit = "cover"
	Fill    Fit = "fill"
	Outside Fit = "outside"
	Pad     Fit = "pad"
)

// Spec says what to make of a source.
type Spec struct {
	Format  codec.Format
	Quality int // 1 to 100; 0: 80
	Effort  codec.Effort
	Width   int // of the box in pixels; 0: by Height and proportions
	Height  int
	Fit     Fit
	Edit    Edit
	// Watermark is laid on the result; nil: none is.
	Watermark *Watermark
	// MaxBytes is what the result may have at most: the quality is lowered until it
	// does, down to 1. 0: any number. Of lossy coding; what is coded without loss and is
	// larger is coded lossy instead where the format can.
	MaxBytes int
	// Must makes a result count that is not smaller than the source: something is asked
	// for that the source is not, such as another format.
	Must bool
	// KeepCopyright keeps copyright and artist of EXIF; all else is stripped.
	KeepCopyright bool
	// SRGB converts colours to sRGB where it can, instead of keeping their profile.
	SRGB bool
	// NearLossless allows invisible changes in graphics, 1 to 99 (less to
	// more of the original); 0 and 100 are off.
	NearLossless int
	// Memory is what the conversion should take at most, in bytes: graphics
	// whose coding without loss is predicted to take more are coded lossy.
	// Default 512 MiB, as is what images.Options allows all together.
	Memory int64
	Limits header.Limits
}

// Resizes reports whether the size may change.
func (s Spec) Resizes() bool { return s.Width != 0 || s.Height != 0 }

// Edits reports whether the image is to look otherwise than by its size.
func (s Spec) Edits() bool { return s.Edit != Edit{} || s.hasBorder() || s.Watermark != nil }

// Result is a converted image.
type Result struct {
	Data          []byte       `json:"-"`
	Format        codec.Format // of Data
	Width, Height int          // of the result
	Source        header.Info  // ICC left out; BrokenICC is set, too, if the profile could not be used
	Level         string       // who encoded: "embedded", "tools"
	Lossless      bool         // also when nearly so
	// CPU of everything, child processes included: what the process has used
	// meanwhile, so others' work counts where there is any.
	CPU  time.Duration
	Wall time.Duration
}

// Converter converts with an encoder.
type Converter struct {
	Encoder codec.Encoder
}

// Convert converts a file. Errors wrap those of header, jpeg, icc and codec,
// ErrNoGain, ErrUnsupported, or the context's, which is looked at between the
// stages. It panics on nothing: what a decoder panics with is an error that
// wraps header.ErrBroken.
func (c *Converter) Convert(ctx context.Context, source []byte, s Spec) (res *Result, err error) {
	begin, used := time.Now(), CPUTime()
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, fmt.Errorf("%w: its decoder gave up: %v", header.ErrBroken, p)
		}
		if err == nil {
			res.CPU, res.Wall = CPUTime()-used, time.Since(begin)
		}
	}()
	if s.Format == Stripped {
		without := container.WithoutLocation(source)
		if bytes.Equal(without, source) {
			return nil, fmt.Errorf("%w: there are no places in it", ErrNoGain)
		}
		return &Result{Data: without, Format: Stripped, Level: "embedded", Lossless: true}, nil
	}
	if s.Format == SVG {
		data, err := sanitizeSVG(source)
		if err != nil {
			return nil, err
		}
		return &Result{Data: data, Format: SVG, Level: "embedded"}, nil
	}
	if s.Quality <= 0 {
		s.Quality = DefaultQuality
	}
	s.Quality = min(s.Quality, 100)
	info, err := header.Read(source)
	if err != nil {
		return nil, err
	}
	if err := info.Check(s.Limits); err != nil {
		return nil, err
	}
	if err := s.tooLarge(info); err != nil {
		return nil, err
	}
	if err := possible(info, s, len(source)); err != nil {
		return nil, err
	}
	j := &job{ctx: ctx, encoder: c.Encoder, source: source, info: info, spec: s}
	if err := j.readMark(); err != nil {
		return nil, err
	}
	switch {
	case IsFact(s.Format):
		res, err = j.fact()
	case info.Frames > 1 && s.Format == codec.WebP && info.Format != header.TIFF:
		res, err = j.animation()
	default:
		res, err = j.still()
	}
	if err != nil {
		return nil, err
	}
	res.Source = j.info
	res.Source.ICC = nil
	res.Format = j.spec.Format
	res.Level = levelOf(c.Encoder, res.Format)
	other := IsFact(s.Format) || s.Edits() || s.Must && string(res.Format) != string(info.Format) || s.MaxBytes > 0 && len(source) > s.MaxBytes
	same := !other && res.Width == j.upright.X && res.Height == j.upright.Y
	if same && len(res.Data)+leastGain > len(source) {
		return nil, fmt.Errorf("%w: %d bytes, as %s %d", ErrNoGain, len(source), res.Format, len(res.Data))
	}
	return res, nil
}

// possible refuses what the headers alone say is not to be converted.
func possible(i header.Info, s Spec, size int) error {
	switch {
	case IsFact(s.Format):
		return nil
	case !writes(s.Format):
		return fmt.Errorf("writing %q: %w", s.Format, ErrUnsupported)
	case s.Width < 0 || s.Height < 0:
		return fmt.Errorf("a box of %d × %d pixels: %w", s.Width, s.Height, ErrUnsupported)
	case i.NotSRGB:
		// Nothing here reads what says so, and no result could hold it.
		return fmt.Errorf("a PNG with colours by cICP, gAMA or cHRM, or an AVIF with others than sRGB's: %w", ErrUnsupported)
	case i.GainMap && !s.Must && !s.Edits() && !smaller(i, s):
		// The variant would have the dynamic range of the first image alone.
		// In other sizes that is what was asked for: there is no other one.
		return fmt.Errorf("a JPEG with a gain map (HDR) in its own size: %w", ErrUnsupported)
	case !s.Resizes() && !s.Edits() && !s.Must && size <= leastGain:
		return fmt.Errorf("%w: it has %d bytes", ErrNoGain, size)
	case i.Frames <= 1 || i.Format == header.TIFF: // of pages the first is shown
		return nil
	case s.Must && (s.Format == codec.JPEG || s.Format == codec.PNG) && i.Format != header.AVIF:
		return nil // the first frame was asked for
	case s.Format != codec.WebP || i.Format == header.AVIF || i.Orientation > 1:
		return fmt.Errorf("an animated %s as %s: %w", i.Format, s.Format, ErrUnsupported)
	case s.Edit.Trim > 0 || s.Edit.finds() || s.MaxBytes > 0:
		// Each frame would get another size, or another part of what is shown.
		return fmt.Errorf("an animation that is cut by what is seen, or to a number of bytes: %w", ErrUnsupported)
	}
	return nil
}

// tooLarge refuses results that are larger than originals may be: by Edit.Enlarge and what is
// put around them.
func (s Spec) tooLarge(i header.Info) error {
	if !s.Edits() {
		return nil
	}
	_, size := s.frame(s.planOf(i).to.X, s.planOf(i).to.Y)
	i.Width, i.Height = size.X, size.Y
	if err := i.Check(s.Limits); err != nil {
		return fmt.Errorf("the result would be: %w", err)
	}
	return nil
}

// smaller reports whether the result has fewer pixels than the image.
func smaller(i header.Info, s Spec) bool {
	to := s.planOf(i).to
	return to.X*to.Y < i.Width*i.Height
}

// A job is one conversion.
type job struct {
	ctx     context.Context
	encoder codec.Encoder
	source  []byte
	info    header.Info
	spec    Spec
	upright image.Point // size of the source, oriented
	lossy   bool        // coding without loss takes more than Spec.MaxBytes
	mark    *picture.Picture
}

// animation has an animation converted as a whole. Its frames keep their colours; a profile of
// RGB is kept.
func (j *job) animation() (*Result, error) {
	j.upright = image.Pt(j.info.Width, j.info.Height)
	var profile []byte
	if j.info.Format != header.GIF { // browsers know no profiles of GIF
		if p := j.profile(); p != nil && !p.IsSRGB() {
			if profile = j.info.ICC; p.Space != icc.RGB {
				return nil, fmt.Errorf("an animation in colours by %q: %w", p.Description, icc.ErrUnsupported)
			}
		}
	}
	size := j.upright
	var shape codec.Shape
	if j.spec.Resizes() || j.spec.Edits() {
		p, part, err := j.plan()
		if err != nil {
			return nil, err
		}
		_, size = j.spec.frame(p.to.X, p.to.Y)
		shape = func(pic *picture.Picture) *picture.Picture {
			pic, _ = j.finish(p.apply(j.turn(pic, part)), nil)
			return pic
		}
	}
	data, err := j.encoder.Animate(j.ctx, j.source, codec.Params{
		Format: codec.WebP, Quality: j.spec.Quality, Effort: j.spec.Effort, // each frame as it needs: no Lossless
	}, shape)
	if err == nil {
		data, err = j.wrap(data, profile)
	}
	if err != nil {
		return nil, fmt.Errorf("converting an animation: %w", err)
	}
	return &Result{Data: data, Width: size.X, Height: size.Y}, nil
}

// still converts one image.
func (j *job) still() (*Result, error) {
	j.upright = upright(j.info)
	fit := j.fitted
	if j.spec.Edits() {
		fit = j.edited
	}
	p, err := fit()
	if err != nil {
		return nil, err
	}
	p, profile, err := j.colours(p)
	if err != nil {
		return nil, err
	}
	if j.spec.Edits() {
		p, profile = j.finish(p, profile)
	}
	p.ICC = profile
	if err := j.ctx.Err(); err != nil {
		return nil, fmt.Errorf("before encoding: %w", err)
	}
	data, lossless, err := j.encode(p)
	if err == nil && tooLarge(profile, data) {
		if p, profile = lighten(p, profile); profile == nil {
			data, lossless, err = j.encode(p) // it has other pixels now
		}
	}
	if err != nil {
		return nil, err
	}
	data, err = j.wrap(data, profile)
	if err != nil {
		return nil, err
	}
	return &Result{Data: data, Width: p.Width, Height: p.Height, Lossless: lossless}, nil
}

// fitted decodes an image and brings it into its box.
func (j *job) fitted() (*picture.Picture, error) {
	plan := planFor(j.info.Width, j.info.Height, j.info.Orientation >= 5, j.spec)
	p, err := j.decode(plan)
	if err != nil {
		return nil, err
	}
	if err := j.ctx.Err(); err != nil {
		return nil, fmt.Errorf("after decoding: %w", err)
	}
	// Small first, then upright: turning costs by the pixel.
	return plan.apply(p).Orient(j.info.Orientation), nil
}

// wrap puts around the coded pixels what belongs to them.
func (j *job) wrap(data, profile []byte) ([]byte, error) {
	m := container.Metadata{ICC: profile}
	if j.spec.KeepCopyright {
		m.EXIF = header.EXIF(j.info.Copyright, j.info.Artist)
	}
	if m.ICC == nil && m.EXIF == nil {
		return data, nil
	}
	put := container.WebP
	switch j.spec.Format {
	case codec.AVIF:
		put = container.AVIF
	case codec.JPEG:
		put = container.JPEG
	case codec.PNG:
		put = container.PNG
	}
	data, err := put(data, m)
	if err != nil {
		return nil, fmt.Errorf("adding profile and copyright: %w", err)
	}
	return data, nil
}

// gray makes a Gray image of NRGBA pixels that have red, green and blue the
// same: what the standard library makes of gray PNGs with alpha or a palette.
// nil if there is a pixel of another colour.
func gray(p *picture.Picture) *picture.Picture {
	q := picture.New(p.Width, p.Height, picture.Gray, picture.Sub444)
	alpha := picture.Plane{Pix: make([]byte, p.Width*p.Height), Stride: p.Width}
	opaque := true
	for y := range p.Height {
		row, luma, a := p.Pix[y*p.Stride:][:4*p.Width], q.Y.Pix[y*q.Y.Stride:], alpha.Pix[y*alpha.Stride:]
		for x := range p.Width {
			c := row[4*x : 4*x+4]
			if c[0] != c[1] || c[1] != c[2] {
				return nil
			}
			luma[x], a[x] = c[0], c[3]
			opaque = opaque && c[3] == 255
		}
	}
	if !opaque {
		q.A = alpha
	}
	return q
}
