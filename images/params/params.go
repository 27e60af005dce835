// Package params reads what a request's query and client hints ask of a
// image, and allows only what the site's owner has listed or signed: whoever
// could ask for any size could fill the disk and the processors.
//
//	/a.jpg?w=600&h=400&fit=cover&q=70&dpr=2    values on the lists
//	/a.jpg?w=600&gravity=n&format=jpeg         options of the list
//	/a.jpg?preset=thumb&dpr=2                  a size by name
//	/a.jpg?w=613&s=0123456789abcdef…           anything, signed
//
// A value that is not allowed is refused, never rounded to one that is: the
// page that asks for it is wrong, and its author should see that. Parameters
// with other names are none of our business, and do not make another variant.
package params

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/images/codec"
	"millrace/images/convert"
)

// ErrRefused is returned, wrapped with what is allowed, for parameters that are
// neither listed nor signed.
var ErrRefused = errors.New("this size is not allowed")

// The bounds of what may be listed or signed.
const (
	// MaxSide is the longest side in pixels, after dpr. WebP ends at 16,383.
	MaxSide = 16384
	// MaxDPR is the most device pixels for one of CSS that any screen has.
	MaxDPR = 4
)

// Options say what may be asked for. The zero value: nothing.
type Options struct {
	// Widths and Heights in pixels that ?w= and ?h= may have.
	Widths  []int `yaml:"widths"`
	Heights []int `yaml:"heights"`
	// Fits that ?fit= may have, of contain, cover, fill, outside and pad. Contain
	// is what is done without it, and always allowed.
	Fits []convert.Fit `yaml:"fits"`
	// Qualities that ?q= may have, 1 to 100.
	Qualities []int `yaml:"qualities"`
	// DPRs that ?dpr= may have: w and h are multiplied by it. 1 to 4, with up
	// to three decimals; 1 is always allowed.
	DPRs []float64 `yaml:"dprs"`
	// Options are further parameters that a URL may have, each as it stands there:
	// format=jpeg, gravity=attention, rotate=90, blur=5.
	Options []string `yaml:"options"`
	// Watermarks are small images by name that are laid on others: watermark=NAME, listed as
	// an option, in a preset or signed.
	Watermarks map[string]Watermark `yaml:"watermarks"`
	// Presets are sizes by name: ?preset=thumb. Only dpr may stand beside it.
	Presets map[string]Preset `yaml:"presets"`
	// Secret allows any parameters in a URL that is signed with it: ?…&s=
	// and the hexadecimal HMAC-SHA256, cut to 32 digits, of the path and the
	// query before "&s=". At least 16 bytes.
	Secret string `yaml:"secret"`
	// ClientHints chooses the nearest of Widths that is not smaller, for
	// requests that say how wide the image will be shown (Sec-CH-Width,
	// Sec-CH-Viewport-Width, Sec-CH-DPR), and a lower quality with Save-Data:
	// the lowest of Qualities, or 50. What the URL says counts more.
	ClientHints bool `yaml:"client_hints"`
}

// Preset is a named size.
type Preset struct {
	// Width and Height of the box in pixels; one of them is enough.
	Width  int `yaml:"w"`
	Height int `yaml:"h"`
	// Fit is contain, cover, fill, outside or pad. Default contain.
	Fit convert.Fit `yaml:"fit"`
	// Quality from 1 to 100. Default: the site's.
	Quality int `yaml:"q"`
	// Options are further parameters, as in a URL: gravity=attention&sharpen=1.
	Options string `yaml:"options"`
}

// Watermark is a small image that is laid on others.
type Watermark struct {
	// Image is its path below the root of the originals: logo.png. At most 32 KiB.
	Image string `yaml:"image"`
	// Position is a side or a corner (n, ne, e, se, s, sw, w, nw) or center. Default se.
	Position convert.Gravity `yaml:"position"`
	// Opacity from 0.01 to 1. Default 1.
	Opacity float64 `yaml:"opacity"`
	// Scale is its width as a part of the image's, 0.01 to 1. Default 0.2.
	Scale float64 `yaml:"scale"`
	// Margin in pixels between it and the edges.
	Margin int `yaml:"margin"`
}

// Enabled reports whether requests may ask for anything at all. If not, queries
// are not looked at.
func (o Options) Enabled() bool {
	return len(o.Widths)+len(o.Heights)+len(o.Qualities)+len(o.Presets)+len(o.Options) > 0 || o.Secret != "" || o.ClientHints
}

// Params are what a request asks for; the zero value is the image as it is.
// Equal wishes are equal values, however they were written.
type Params struct {
	Width, Height int // of the box in pixels of the image, dpr included; 0: any
	// Fit is empty without a size, and says something else than contain only
	// with both a width and a height: one alone fits in one way.
	Fit     convert.Fit
	Quality int // 0: the site's
	// Format is the only one that will do; empty: the best that the client takes.
	Format   codec.Format
	MaxBytes int // 0: any number
	Edit     convert.Edit
	// Watermark is the name of one; empty: none.
	Watermark string
}

// Changes reports whether anything but format and quality is asked for.
func (p Params) Changes() bool {
	p.Format, p.Quality = "", 0
	return p != Params{}
}

// Key tells one Params from all others but for their format, such as "w600-h400-fcover-q70" or
// "w600-gravity=n-blur=5"; empty for the image as it is.
func (p Params) Key() string {
	var parts []string
	for _, n := range []struct {
		name  string
		value int
	}{{"w", p.Width}, {"h", p.Height}, {"q", p.Quality}} {
		if n.value != 0 {
			parts = append(parts, n.name+strconv.Itoa(n.value))
		}
	}
	if p.Fit != "" && p.Fit != convert.Contain {
		parts = append(parts, "f"+string(p.Fit))
	}
	for _, o := range options() {
		if text := o.text(&p); text != "" && o.name != "format" {
			parts = append(parts, o.name+"="+text)
		}
	}
	return strings.Join(parts, "-")
}

// asked are the known parameters of one query as they were written. Only those
// that are there count, an empty value is one that is wrong.
type asked struct {
	w, h, fit, q, dpr, preset *string
	// options are those of options.go, in the order of the query.
	options []option
}

// Parse reads a request. Queries without one of the known parameters ask for
// nothing, whatever else they have. Errors wrap ErrRefused and may be shown to
// the client.
func (o Options) Parse(r *http.Request) (Params, error) {
	if !o.Enabled() {
		return Params{}, nil
	}
	var a asked
	if err := a.read(r.URL.RawQuery); err != nil {
		return Params{}, err
	}
	signed, err := o.signed(r)
	if err != nil {
		return Params{}, err
	}
	p, err := o.paramsOf(a, signed)
	if err != nil {
		return Params{}, err
	}
	if o.ClientHints && !convert.IsFact(p.Format) {
		o.hints(r.Header, &p)
	}
	switch {
	case p.Width == 0 && p.Height == 0:
		p.Fit = ""
	case p.Width == 0 || p.Height == 0 || p.Fit == "":
		p.Fit = convert.Contain
	}
	return p, nil
}

// read finds the known parameters. Names count as they are written in every
// page that we know of: plain, in lower case.
func (a *asked) read(query string) error {
	for query != "" {
		var one string
		one, query, _ = strings.Cut(query, "&")
		name, value, has := strings.Cut(one, "=")
		var to **string
		switch name {
		case "w":
			to = &a.w
		case "h":
			to = &a.h
		case "fit":
			to = &a.fit
		case "q":
			to = &a.q
		case "dpr":
			to = &a.dpr
		case "preset":
			to = &a.preset
		default:
			o, known := find(name)
			if !known || o.alone && has {
				continue
			}
			if slices.ContainsFunc(a.options, func(b option) bool { return b.name == name }) {
				return fmt.Errorf("%w: %s= stands there twice", ErrRefused, name)
			}
			o.value, o.raw = value, one
			a.options = append(a.options, o)
			continue
		}
		if *to != nil {
			return fmt.Errorf("%w: %s= stands there twice", ErrRefused, name)
		}
		*to = &value
	}
	return nil
}

// paramsOf makes parameters of what a query asks for, or returns why it may not ask
// for that.
func (o Options) paramsOf(a asked, signed bool) (p Params, err error) {
	if a.preset != nil {
		preset, known := o.Presets[*a.preset]
		if !known {
			return p, o.refused("preset", *a.preset)
		}
		if a.w != nil || a.h != nil || a.fit != nil || a.q != nil || len(a.options) > 0 {
			return p, fmt.Errorf("%w: beside preset= there may be dpr= and nothing else", ErrRefused)
		}
		if p, err = preset.params(); err != nil {
			return p, err
		}
	}
	for _, n := range []struct {
		name    string
		value   *string
		to      *int
		most    int
		allowed []int
	}{
		{"w", a.w, &p.Width, MaxSide, o.Widths},
		{"h", a.h, &p.Height, MaxSide, o.Heights},
		{"q", a.q, &p.Quality, 100, o.Qualities},
	} {
		if n.value == nil {
			continue
		}
		v, ok := number(*n.value)
		if !ok || v > n.most || !signed && !slices.Contains(n.allowed, v) {
			return p, o.refused(n.name, *n.value)
		}
		*n.to = v
	}
	if a.fit != nil {
		p.Fit = convert.Fit(*a.fit)
		if !slices.Contains(fits(), p.Fit) || !signed && p.Fit != convert.Contain && !slices.Contains(o.Fits, p.Fit) {
			return p, o.refused("fit", *a.fit)
		}
	}
	for _, one := range a.options {
		if err := one.read(&p, one.value); err != nil {
			return p, fmt.Errorf("%w: %s: %w", ErrRefused, shorten(one.raw), err)
		}
		if !signed && !slices.Contains(o.Options, one.raw) {
			return p, o.refused(one.name, one.value)
		}
	}
	if err := p.contradiction(); err != nil {
		return p, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if _, known := o.Watermarks[p.Watermark]; p.Watermark != "" && !known {
		return p, fmt.Errorf("%w: there is no watermark of that name", ErrRefused)
	}
	if a.dpr != nil {
		dpr, ok := thousandths(*a.dpr)
		if !ok || dpr < 1000 || dpr > MaxDPR*1000 || !signed && !o.listsDPR(dpr) {
			return p, o.refused("dpr", *a.dpr)
		}
		p.Width, p.Height = times(p.Width, dpr), times(p.Height, dpr)
		p.Edit.Blur, p.Edit.Sharpen = times(p.Edit.Blur, dpr), times(p.Edit.Sharpen, dpr)
		for i, n := range p.Edit.Pad {
			p.Edit.Pad[i] = times(n, dpr)
		}
		if max(p.Width, p.Height) > MaxSide {
			return p, fmt.Errorf("%w: with dpr=%s it has more than %d pixels on a side", ErrRefused, *a.dpr, MaxSide)
		}
	}
	return p, nil
}

// listsDPR reports whether a dpr is listed. 1 changes nothing.
func (o Options) listsDPR(dpr int) bool {
	return dpr == 1000 || slices.ContainsFunc(o.DPRs, func(d float64) bool { return inThousandths(d) == dpr })
}

// fits are the fits that there are.
func fits() []convert.Fit {
	return []convert.Fit{convert.Contain, convert.Cover, convert.Fill, convert.Outside, convert.Pad}
}

// times multiplies a side and rounds.
func times(side, thousandths int) int { return (side*thousandths + 500) / 1000 }

// number reads a positive number without sign or leading zeros, so that each
// has one spelling. Those of more than five digits are larger than any bound.
func number(s string) (n int, ok bool) {
	if s == "" || len(s) > 5 || s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// thousandths reads a number of one digit and up to three decimals.
func thousandths(s string) (n int, ok bool) {
	whole, decimals, point := strings.Cut(s, ".")
	if len(whole) != 1 || point && decimals == "" || len(decimals) > 3 {
		return 0, false
	}
	for _, c := range []byte(whole + decimals + "000"[len(decimals):]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

func inThousandths(d float64) int { return int(math.Round(d * 1000)) }
