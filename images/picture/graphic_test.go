package picture

import (
	"image"
	"image/color"
	"image/draw"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func TestGraphic(t *testing.T) {
	for name, c := range map[string]struct {
		p    *Picture
		want bool
	}{
		"one colour":                 {paint(64, 64, func(_, _ int) color.NRGBA { return color.NRGBA{9, 9, 9, 255} }), true},
		"transparent":                {New(300, 300, NRGBA, Sub444), true},
		"a chart":                    {chart(600, 400), true},
		"a small chart":              {chart(120, 90), true},
		"a chart scaled down":        {chart(900, 600).Resize(450, 300), true},
		"a gray chart":               {gray(chart(600, 400)), true},
		"text":                       {text(600, 400), true},
		"text of soft edges":         {text(1000, 800).Resize(560, 450), true},
		"a chequered pattern":        {paint(200, 200, func(x, y int) color.NRGBA { return color.NRGBA{byte((x + y) % 2 * 255), 0, 0, 255} }), true},
		"a photograph":               {photograph(450, 300, 4), false},
		"one without noise":          {photograph(450, 300, 0), false},
		"one scaled up":              {photograph(200, 140, 4).Resize(800, 560), false},
		"one scaled up much":         {photograph(60, 42, 0).Resize(720, 504), false},
		"one scaled down":            {photograph(700, 500, 9).Resize(280, 200), false},
		"a gray one":                 {gray(photograph(450, 300, 4)), false},
		"a small one":                {photograph(60, 40, 4), false},
		"one on a white ground":      {product(450, 300), false},
		"a gradient, dithered":       {paint(450, 300, dithered), false},
		"noise":                      {noise(300, 200, kind{model: NRGBA}, 1), false},
		"a chart that has been JPEG": {New(300, 200, YCbCr, Sub444), false},
	} {
		if have := c.p.Graphic(); have != c.want {
			s := c.p.look()
			t.Errorf("%s: %v; flat %d of %d pixels, soft %d of %d steps, %d colours",
				name, have, s.flat, s.pixels, s.soft, s.steps, s.colours())
		}
	}
	each(t, func(_ *testing.T, p *Picture, _ kind) { p.Graphic() })
}

func paint(w, h int, f func(x, y int) color.NRGBA) *Picture {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetNRGBA(x, y, f(x, y))
		}
	}
	return FromImage(m)
}

func gray(p *Picture) *Picture {
	m := image.NewGray(image.Rect(0, 0, p.Width, p.Height))
	draw.Draw(m, m.Rect, p.Image(), image.Point{}, draw.Src)
	return FromImage(m)
}

// chart has bars, a grid and a curve with soft edges.
func chart(w, h int) *Picture {
	return paint(w, h, func(x, y int) color.NRGBA {
		u, v := float64(x)/float64(w), float64(y)/float64(h)
		switch curve := (0.5 + 0.3*math.Sin(7*u) - v) * float64(h); {
		case math.Abs(curve) < 3:
			c := byte(85 * math.Abs(curve))
			return color.NRGBA{255, c, c, 255}
		case int(u*20)%2 == 1 && v > 0.9-0.4*math.Abs(math.Sin(math.Floor(u*20))):
			return color.NRGBA{40, 90, 200, 255}
		case y%(h/5) == 0:
			return color.NRGBA{200, 200, 200, 255}
		}
		return color.NRGBA{255, 255, 255, 255}
	})
}

// text is lines of letters of hard strokes, with margins.
func text(w, h int) *Picture {
	r := rand.New(rand.NewPCG(3, 4))
	letters := make([]uint32, (w/18+1)*(h/36+1))
	for i := range letters {
		letters[i] = r.Uint32()
	}
	return paint(w, h, func(x, y int) color.NRGBA {
		letter := letters[y/36*(w/18)+x/18]
		inside := x > w/10 && x < w*9/10 && x%18 < 14 && y%36 < 20 && letter%7 > 0
		if stroke := x%18/3*2 + y%36/4*5; inside && letter>>(stroke%31)&1 == 1 && (x%3 > 0 || y%4 > 1) {
			return color.NRGBA{20, 20, 30, 255}
		}
		return color.NRGBA{250, 250, 245, 255}
	})
}

// photograph has shapes with shading, soft edges, and noise.
func photograph(w, h, noise int) *Picture {
	r := rand.New(rand.NewPCG(1, 2))
	return paint(w, h, func(x, y int) color.NRGBA {
		u, v := 9*float64(x)/float64(w), 6*float64(y)/float64(h)
		var c [3]byte
		for i := range c {
			s := math.Sin(u+float64(i)) + math.Cos(v*1.7-u) + 0.5*math.Sin(5*u*v/3+float64(i)) + math.Tanh(9*math.Sin(u-v))
			c[i] = byte(min(max(128+30*s+float64(r.IntN(noise+1)), 0), 255))
		}
		return color.NRGBA{c[0], c[1], c[2], 255}
	})
}

// product is a photograph of something round on a white ground.
func product(w, h int) *Picture {
	p := photograph(w, h, 6)
	for y := range h {
		for x := range w {
			if math.Hypot(float64(x-w/2), float64(y-h/2)) > float64(h)/3 {
				copy(p.Pix[y*p.Stride+4*x:], "\xff\xff\xff\xff")
			}
		}
	}
	return p
}

func dithered(x, y int) color.NRGBA {
	d := float64((x*7+y*13+x*y)%16) / 16
	return color.NRGBA{byte(float64(x)/7 + d), byte(float64(y)/5 + d), byte(100 + float64(x+y)/20 + d), 255}
}

func TestPhotographs(t *testing.T) {
	files, _ := filepath.Glob("/usr/share/backgrounds/mate/nature/*.jpg")
	if len(files) == 0 {
		t.Skip("Debian's package mate-backgrounds is not installed")
	}
	for _, name := range files[:1] {
		f, err := os.Open(name)
		if err != nil {
			t.Skip(err)
		}
		m, _, err := image.Decode(f)
		f.Close()
		if err != nil {
			t.Skip(err)
		}
		p := FromImage(m).NRGBA()
		p = p.Crop(image.Rect(0, 0, 700, 450))
		for what, p := range map[string]*Picture{
			"as it is": p, "smaller": p.Resize(250, 200), "larger": p.Crop(image.Rect(100, 100, 400, 400)).Resize(900, 900),
			"blurred": p.Resize(100, 75).Resize(700, 450),
		} {
			if p.Graphic() {
				t.Errorf("%s, %s, is taken for a drawing", filepath.Base(name), what)
			}
		}
	}
}
