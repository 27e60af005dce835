package codec

import (
	"fmt"
	"image/color"

	"millrace/images/picture"
)

// packed is a plane's samples without gaps between the rows: the plane's own
// memory, where there are none.
func packed(p picture.Plane, width, height int) []byte {
	if p.Stride == width {
		return p.Pix[:width*height]
	}
	out := make([]byte, 0, width*height)
	for y := range height {
		out = append(out, p.Pix[y*p.Stride:][:width]...)
	}
	return out
}

// rawYUV is an image as cwebp reads it with -s: the planes of 4:2:0 in limited
// range, one after the other.
func rawYUV(p *picture.Picture) [][]byte {
	p = limited420(p)
	w, h := (p.Width+1)/2, (p.Height+1)/2
	return [][]byte{packed(p.Y, p.Width, p.Height), packed(p.Cb, w, h), packed(p.Cr, w, h)}
}

// pam is an image with transparency as a portable arbitrary map (netpbm,
// pam(5)).
func pam(p *picture.Picture) [][]byte {
	p = p.NRGBA()
	header := fmt.Sprintf("P7\nWIDTH %d\nHEIGHT %d\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n", p.Width, p.Height)
	return [][]byte{[]byte(header), packed(picture.Plane{Pix: p.Pix, Stride: p.Stride}, 4*p.Width, p.Height)}
}

// y4m is an image as one frame of YUV4MPEG2 (mjpegtools, yuv4mpeg(5)), with
// the extension for full range that FFmpeg and libavif share. Planes that have
// the resolution of avifSampling already are passed on as they are.
func y4m(p *picture.Picture) [][]byte {
	transparent := !p.Opaque()
	sub := avifSampling(p)
	switch {
	case p.Model == picture.NRGBA, transparent && (p.Model == picture.Gray || p.Sub != picture.Sub444):
		p = fromRGB(p.NRGBA())
	case p.Model == picture.Gray && p.Limited:
		p = p.Limited420() // avifenc 0.11 forgets the range of gray
	}
	if p.Model == picture.YCbCr && p.Sub != sub {
		if p.Sub == picture.Sub444 || p.Sub == picture.Sub440 {
			p = half(p, true)
		}
		if p.Sub == picture.Sub422 {
			p = half(p, false)
		}
	}
	layout := "420jpeg"
	switch {
	case p.Model == picture.Gray:
		layout = "mono"
	case transparent:
		layout = "444alpha"
	case sub == picture.Sub444:
		layout = "444"
	}
	colours := "FULL"
	if p.Limited {
		colours = "LIMITED"
	}
	header := fmt.Sprintf("YUV4MPEG2 W%d H%d F1:1 Ip A1:1 C%s XCOLORRANGE=%s\nFRAME\n", p.Width, p.Height, layout, colours)
	out := [][]byte{[]byte(header), packed(p.Y, p.Width, p.Height)}
	if p.Model != picture.Gray {
		w, h := chroma(p)
		out = append(out, packed(p.Cb, w, h), packed(p.Cr, w, h))
	}
	if transparent {
		out = append(out, packed(p.A, p.Width, p.Height))
	}
	return out
}

// chroma is the size of a chroma plane.
func chroma(p *picture.Picture) (width, height int) {
	width, height = p.Width, p.Height
	if p.Sub == picture.Sub422 || p.Sub == picture.Sub420 {
		width = (width + 1) / 2
	}
	if p.Sub == picture.Sub440 || p.Sub == picture.Sub420 {
		height = (height + 1) / 2
	}
	return width, height
}

// fromRGB converts NRGBA to 4:4:4 in full range, with an alpha plane.
func fromRGB(p *picture.Picture) *picture.Picture {
	n := p.Width * p.Height
	all := make([]byte, 4*n)
	plane := func(i int) picture.Plane { return picture.Plane{Pix: all[i*n : (i+1)*n], Stride: p.Width} }
	out := &picture.Picture{
		Width: p.Width, Height: p.Height, Model: picture.YCbCr, Sub: picture.Sub444,
		Y: plane(0), Cb: plane(1), Cr: plane(2), A: plane(3), ICC: p.ICC,
	}
	i := 0
	for y := range p.Height {
		for row := p.Pix[y*p.Stride:][:4*p.Width]; len(row) >= 4; row = row[4:] {
			out.Y.Pix[i], out.Cb.Pix[i], out.Cr.Pix[i] = color.RGBToYCbCr(row[0], row[1], row[2])
			out.A.Pix[i] = row[3]
			i++
		}
	}
	return out
}

// half averages pairs of chroma samples, beside each other (4:4:4 becomes
// 4:2:2, and 4:4:0 becomes 4:2:0) or above each other (4:2:2 becomes 4:2:0, and
// 4:4:4 becomes 4:4:0). What lies between two values goes up in the odd
// columns across, and in the even ones down: always up makes all colours half a
// step redder and bluer.
func half(p *picture.Picture, across bool) *picture.Picture {
	w, h := chroma(p)
	out := *p
	to := map[picture.Subsampling]picture.Subsampling{
		picture.Sub444: picture.Sub440, picture.Sub422: picture.Sub420,
	}
	if across {
		to = map[picture.Subsampling]picture.Subsampling{
			picture.Sub444: picture.Sub422, picture.Sub440: picture.Sub420,
		}
	}
	out.Sub = to[p.Sub]
	average := func(from picture.Plane) picture.Plane {
		nw, nh := chroma(&out)
		plane := picture.Plane{Pix: make([]byte, nw*nh), Stride: nw}
		for y := range nh {
			row := plane.Pix[y*nw:][:nw]
			if across {
				pairs(row, from.Pix[y*from.Stride:][:w])
				continue
			}
			above, below := from.Pix[2*y*from.Stride:][:w], from.Pix[min(2*y+1, h-1)*from.Stride:][:w]
			for x := range row {
				row[x] = byte((int(above[x]) + int(below[x]) + (x+1)&1) / 2)
			}
		}
		return plane
	}
	out.Cb, out.Cr = average(p.Cb), average(p.Cr)
	return &out
}

// pairs averages samples beside each other; the last of an odd number is its
// own average.
func pairs(to, from []byte) {
	for x := range to {
		if 2*x+1 == len(from) {
			to[x] = from[2*x]
			return
		}
		to[x] = byte((int(from[2*x]) + int(from[2*x+1]) + x&1) / 2)
	}
}
