package codec

import "millrace/images/picture"

// avifSampling is the chroma resolution that a picture is coded in as AVIF: its
// own. Pictures in RGB keep all of it where it matters, in drawings and beside
// transparency; AVIF has no 4:4:0.
func avifSampling(p *picture.Picture) picture.Subsampling {
	switch {
	case p.Model == picture.Gray:
		return picture.Sub420
	case p.Model == picture.YCbCr && p.Sub == picture.Sub440:
		return picture.Sub420
	case p.Model == picture.YCbCr:
		return p.Sub
	case !p.Opaque() || p.Graphic():
		return picture.Sub444
	}
	return picture.Sub420
}
