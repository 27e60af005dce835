package convert

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"

	"millrace/images/codec"
	"millrace/images/jpeg"
	"millrace/images/picture"
)

// plainFormats are those that are written here: every client takes them.
func plainFormats() map[codec.Format]bool {
	return map[codec.Format]bool{codec.JPEG: true, codec.PNG: true, codec.Plain: true}
}

// writes reports whether a format is one that images are converted to.
func writes(f codec.Format) bool {
	return f == codec.WebP || f == codec.AVIF || plainFormats()[f]
}

// levelOf is who writes a format.
func levelOf(e codec.Encoder, f codec.Format) string {
	if f == codec.WebP || f == codec.AVIF {
		return codec.LevelOf(e, f)
	}
	return "embedded"
}

// plain writes a JPEG or a PNG. Of codec.Plain it becomes a PNG if it is a drawing or
// has transparent parts, else a JPEG. What is transparent becomes white in a JPEG.
func (j *job) plain(p *picture.Picture, graphic bool, quality int) (data []byte, lossless bool, err error) {
	if j.spec.Format == codec.Plain {
		j.spec.Format = codec.JPEG
		if graphic || !p.Opaque() {
			j.spec.Format = codec.PNG
		}
	}
	if j.spec.Format == codec.JPEG {
		data, err = jpeg.Encode(p.Over(color.NRGBA{255, 255, 255, 255}), quality)
	} else {
		data, err = encodePNG(p, j.spec.Effort)
	}
	if err != nil {
		return nil, false, fmt.Errorf("encoding %s: %w", j.spec.Format, err)
	}
	return data, j.spec.Format == codec.PNG, nil
}

// encodePNG writes a PNG without loss: with a palette where there are no more than 256
// colours, gray where there is nothing else.
func encodePNG(p *picture.Picture, effort codec.Effort) ([]byte, error) {
	level := png.DefaultCompression
	if effort == codec.Best {
		level = png.BestCompression
	}
	var m image.Image
	if p.Model == picture.Gray && !p.Limited && len(p.A.Pix) == 0 {
		m = p.Image()
	} else {
		p = p.NRGBA()
		m = p.Image()
		if few := paletted(p); few != nil {
			m = few
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: level}).Encode(&out, m); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// paletted is a picture of at most 256 colours with a palette of them, those that are
// transparent in front, where PNG has the shortest list of them; nil if there are more.
func paletted(p *picture.Picture) *image.Paletted {
	var colours [2]color.Palette // transparent in part, opaque
	known := map[[4]byte]int{}
	var last [4]byte
	for y := range p.Height {
		row := p.Pix[y*p.Stride:][:4*p.Width]
		for x := 0; x < len(row); x += 4 {
			c := shown(row[x:])
			if c == last && len(known) > 0 {
				continue
			}
			last = c
			if _, is := known[c]; is {
				continue
			}
			if len(known) == 256 {
				return nil
			}
			known[c] = 0
			kind := 0
			if c[3] == 255 {
				kind = 1
			}
			colours[kind] = append(colours[kind], color.NRGBA{c[0], c[1], c[2], c[3]})
		}
	}
	all := append(colours[0], colours[1]...)
	for i, c := range all {
		c, _ := c.(color.NRGBA)
		known[[4]byte{c.R, c.G, c.B, c.A}] = i
	}
	m := image.NewPaletted(image.Rect(0, 0, p.Width, p.Height), all)
	last, index := shown(p.Pix), uint8(known[shown(p.Pix)])
	for y := range p.Height {
		row, out := p.Pix[y*p.Stride:][:4*p.Width], m.Pix[y*m.Stride:]
		for x := range p.Width {
			if c := shown(row[4*x:]); c != last {
				last, index = c, uint8(known[c])
			}
			out[x] = index
		}
	}
	return m
}

// shown is a pixel, of which no colour is seen where it is transparent.
func shown(px []byte) [4]byte {
	if px[3] == 0 {
		return [4]byte{}
	}
	return [4]byte(px)
}
