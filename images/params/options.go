package params

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/images/codec"
	"millrace/images/convert"
)

// The bounds of options.
const (
	maxPad  = 2000   // pixels on a side
	maxBlur = 10_000 // hundredths of a pixel
	// Of max_bytes.
	leastBytes = 100
	mostBytes  = 99_999_999
)

// option is a parameter beside size and quality: one spelling for each value, so that the
// same wish is the same variant.
type option struct {
	name string
	// read sets what a value asks for; text is the value as it is written, "" for none.
	read func(p *Params, value string) error
	text func(p *Params) string

	alone bool // it has no value: ?info

	value, raw string // of one that was asked for, and as it stands in the URL
}

// options are all that there are, in the order of their keys.
func options() []option {
	return []option{
		{name: "format", read: readFormat, text: func(p *Params) string { return string(p.Format) }},
		fact("info", convert.Info), fact("color", convert.Colour), fact("blurhash", convert.BlurHash), fact("thumbhash", convert.ThumbHash),
		{name: "lqip", alone: true, read: readLQIP, text: func(*Params) string { return "" }},
		{name: "rect", read: readRect, text: func(p *Params) string { return list(p.Edit.Rect) }},
		{name: "rotate", read: readRotate, text: func(p *Params) string { return positive(p.Edit.Rotate) }},
		{name: "flip", read: readFlip, text: func(p *Params) string { return p.Edit.Flip }},
		whole("trim", 1, 100, func(p *Params) *int { return &p.Edit.Trim }),
		{name: "gravity", read: readGravity, text: gravityText},
		yes("enlarge", func(p *Params) *bool { return &p.Edit.Enlarge }),
		{name: "blur", read: deviation(func(p *Params) *int { return &p.Edit.Blur }), text: func(p *Params) string { return hundredthsText(p.Edit.Blur) }},
		{name: "sharpen", read: deviation(func(p *Params) *int { return &p.Edit.Sharpen }), text: func(p *Params) string { return hundredthsText(p.Edit.Sharpen) }},
		yes("grayscale", func(p *Params) *bool { return &p.Edit.Grayscale }),
		{name: "pad", read: readPad, text: func(p *Params) string { return list(p.Edit.Pad) }},
		{name: "bg", read: readBackground, text: func(p *Params) string { return p.Edit.Background }},
		{name: "watermark", read: readWatermark, text: func(p *Params) string { return p.Watermark }},
		whole("max_bytes", leastBytes, mostBytes, func(p *Params) *int { return &p.MaxBytes }),
	}
}

// find is the option of a name.
func find(name string) (option, bool) {
	all := options()
	i := slices.IndexFunc(all, func(o option) bool { return o.name == name })
	if i < 0 {
		return option{}, false
	}
	return all[i], true
}

// parseOptions reads options as a preset has them.
func parseOptions(text string) (p Params, err error) {
	if text == "" {
		return p, nil
	}
	seen := map[string]bool{}
	for one := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(one, "=")
		o, known := find(name)
		switch {
		case !known:
			return p, fmt.Errorf("%q is not an option: there are %s", name, names())
		case seen[name]:
			return p, fmt.Errorf("%s= stands there twice", name)
		}
		seen[name] = true
		if err := o.read(&p, value); err != nil {
			return p, fmt.Errorf("%s: %w", shorten(one), err)
		}
	}
	return p, nil
}

func names() string {
	var all []string
	for _, o := range options() {
		all = append(all, o.name)
	}
	return strings.Join(all, ", ")
}

// params are what a preset asks for.
func (p Preset) params() (Params, error) {
	all, err := parseOptions(p.Options)
	if err != nil {
		return all, err
	}
	all.Width, all.Height, all.Fit, all.Quality = p.Width, p.Height, p.Fit, p.Quality
	return all, all.contradiction()
}

// contradiction says which options do not go together.
func (p Params) contradiction() error {
	e, size := p.Edit, p.Width > 0 || p.Height > 0
	moves := p.Width > 0 && p.Height > 0 && (p.Fit == convert.Cover || p.Fit == convert.Pad)
	switch {
	case convert.IsFact(p.Format) && p != Params{Format: p.Format}:
		return fmt.Errorf("%s is about the image as it is: no other parameter goes with it", p.Format)
	case e.Gravity != "" && !moves:
		return errors.New("gravity= says where fit=cover cuts and where fit=pad puts the image: it needs w=, h= and one of them")
	case (e.Gravity == convert.Entropy || e.Gravity == convert.Attention) && p.Fit != convert.Cover:
		return fmt.Errorf("gravity=%s says where fit=cover cuts", e.Gravity)
	case e.Enlarge && !size:
		return errors.New("enlarge= needs w= or h=")
	case e.Blur > 0 && e.Sharpen > 0:
		return errors.New("blur= and sharpen= undo each other")
	case p.MaxBytes > 0 && p.Format == codec.PNG:
		return errors.New("max_bytes= is reached by a lower quality, which PNG does not have")
	}
	return nil
}

// fact is an option that asks for what is told about an image, instead of it.
func fact(name string, f codec.Format) option {
	return option{
		name: name, alone: true,
		read: func(p *Params, value string) error {
			if value != "" || p.Format != "" {
				return errors.New("it stands alone and has no value")
			}
			p.Format = f
			return nil
		},
		text: func(*Params) string { return "" },
	}
}

// A placeholder (low-quality image placeholder) is that small and that coarse.
const placeholderSide, placeholderQuality = 32, 40

func readLQIP(p *Params, value string) error {
	if value != "" || *p != (Params{}) {
		return errors.New("it stands alone and has no value: it is a size and a quality")
	}
	p.Width, p.Height, p.Quality = placeholderSide, placeholderSide, placeholderQuality
	return nil
}

func readFormat(p *Params, value string) error {
	if p.Format != "" {
		return errors.New("it does not go with what tells about the image")
	}
	all := []codec.Format{codec.AVIF, codec.WebP, codec.JPEG, codec.PNG}
	if p.Format = codec.Format(value); !slices.Contains(all, p.Format) {
		return errors.New("it is avif, webp, jpeg or png")
	}
	return nil
}

func readRect(p *Params, value string) error {
	parts := strings.Split(value, ",")
	if len(parts) != len(p.Edit.Rect) {
		return errors.New("it is x,y,width,height in pixels, as 10,0,300,200")
	}
	for i, s := range parts {
		n, ok := number(s)
		if s == "0" && i < 2 {
			ok = true
		}
		if !ok {
			return errors.New("it is x,y,width,height in pixels, as 10,0,300,200; width and height are not 0")
		}
		p.Edit.Rect[i] = n
	}
	return nil
}

func readRotate(p *Params, value string) error {
	if value != "90" && value != "180" && value != "270" {
		return errors.New("it is 90, 180 or 270 degrees clockwise")
	}
	p.Edit.Rotate, _ = number(value)
	return nil
}

func readFlip(p *Params, value string) error {
	if value != "h" && value != "v" && value != "hv" {
		return errors.New("it is h, v or hv")
	}
	p.Edit.Flip = value
	return nil
}

func readGravity(p *Params, value string) error {
	if g := convert.Gravity(value); slices.Contains(sides(), g) || g == convert.Entropy || g == convert.Attention {
		p.Edit.Gravity = g
		return nil
	}
	x, y, _ := strings.Cut(value, ":")
	for i, s := range []string{x, y} {
		n, ok := thousandths(s)
		if !ok || n > 1000 || s != decimal(n, 1000) {
			return errors.New("it is a side (n, ne, e, se, s, sw, w, nw), center, entropy, attention or a point from 0:0 to 1:1, as 0.5:0.25")
		}
		p.Edit.Focus[i] = n
	}
	p.Edit.Gravity = convert.Focus
	return nil
}

// sides are those that something can be at.
func sides() []convert.Gravity {
	return []convert.Gravity{"n", "ne", "e", "se", "s", "sw", "w", "nw", convert.Center}
}

func gravityText(p *Params) string {
	if p.Edit.Gravity == convert.Focus {
		return decimal(p.Edit.Focus[0], 1000) + ":" + decimal(p.Edit.Focus[1], 1000)
	}
	return string(p.Edit.Gravity)
}

func readPad(p *Params, value string) error {
	parts := strings.Split(value, ",")
	if len(parts) != 1 && len(parts) != 4 {
		return errors.New("it is one number of pixels, or four: above, right, below, left")
	}
	for i := range p.Edit.Pad {
		s := parts[min(i, len(parts)-1)]
		n, ok := number(s)
		if s != "0" && (!ok || n > maxPad) || len(parts) == 1 && n == 0 {
			return fmt.Errorf("it is one number of pixels, or four (above, right, below, left), up to %d", maxPad)
		}
		p.Edit.Pad[i] = n
	}
	return nil
}

func readBackground(p *Params, value string) error {
	for _, c := range []byte(value) {
		if !strings.ContainsRune("0123456789abcdef", rune(c)) {
			value = ""
		}
	}
	if len(value) != 6 && len(value) != 8 {
		return errors.New("it is rrggbb or rrggbbaa in lower-case hexadecimal digits")
	}
	p.Edit.Background = value
	return nil
}

func readWatermark(p *Params, value string) error {
	if !isName(value) {
		return errors.New("it is the name of a watermark")
	}
	p.Watermark = value
	return nil
}

// isName reports whether a text may be a name that stands in URLs.
func isName(name string) bool {
	ok := name != "" && len(name) <= maxName
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}
	return ok
}

// whole is an option that is a whole number.
func whole(name string, least, most int, field func(*Params) *int) option {
	return option{
		name: name,
		read: func(p *Params, value string) error {
			n, err := strconv.Atoi(value)
			if err != nil || n < least || n > most || strconv.Itoa(n) != value {
				return fmt.Errorf("it is a number from %d to %d", least, most)
			}
			*field(p) = n
			return nil
		},
		text: func(p *Params) string { return positive(*field(p)) },
	}
}

// yes is an option that is 1 or not there.
func yes(name string, field func(*Params) *bool) option {
	return option{
		name: name,
		read: func(p *Params, value string) error {
			if value != "1" {
				return errors.New("it is 1, or not there")
			}
			*field(p) = true
			return nil
		},
		text: func(p *Params) string {
			if *field(p) {
				return "1"
			}
			return ""
		},
	}
}

// deviation reads a number of pixels with up to two decimals.
func deviation(field func(*Params) *int) func(*Params, string) error {
	return func(p *Params, value string) error {
		before, after, _ := strings.Cut(value, ".")
		n, err := strconv.Atoi(before + (after + "00")[:max(2, min(len(after), 3))])
		if err != nil || n < 30 || n > maxBlur || hundredthsText(n) != value {
			return errors.New("it is a standard deviation from 0.3 to 100 pixels, with up to two decimals")
		}
		*field(p) = n
		return nil
	}
}

func hundredthsText(n int) string {
	if n == 0 {
		return ""
	}
	return decimal(n, 100)
}

// decimal is a number of parts of one as short as it can be written.
func decimal(n, of int) string { return strconv.FormatFloat(float64(n)/float64(of), 'f', -1, 64) }

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// list is four numbers; "" if all of them are 0.
func list(n [4]int) string {
	if n == [4]int{} {
		return ""
	}
	return fmt.Sprintf("%d,%d,%d,%d", n[0], n[1], n[2], n[3])
}
