package params

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"millrace/images/convert"
)

const (
	// maxListed bounds each list: every value can make a variant of every
	// image, and an error lists them.
	maxListed = 100
	// minSecret is the shortest secret in bytes. Whoever has one signed URL can
	// try secrets at home.
	minSecret = 16
	// maxName is the longest name of a preset in bytes.
	maxName = 64
)

// Check returns what is wrong with the options, by the key it is wrong with:
// "secret", "widths[2]", "presets[thumb].w".
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	checkList(faults, "widths", o.Widths, side)
	checkList(faults, "heights", o.Heights, side)
	checkList(faults, "qualities", o.Qualities, quality)
	checkList(faults, "fits", o.Fits, fit)
	checkList(faults, "dprs", o.DPRs, func(d float64) error {
		if !(d >= 1 && d <= MaxDPR) {
			return fmt.Errorf("%v is not between 1 and %d", d, MaxDPR)
		}
		if diff := d*1000 - float64(inThousandths(d)); diff > 1e-6 || diff < -1e-6 {
			return fmt.Errorf("%v has more than three decimals", d)
		}
		return nil
	})
	checkList(faults, "options", o.Options, func(text string) error {
		_, err := parseOptions(text)
		if err == nil && strings.Contains(text, "&") {
			err = errors.New("each option stands alone on this list: [gravity=n, blur=5]")
		}
		return err
	})
	if len(o.Presets) > maxListed {
		faults["presets"] = fmt.Errorf("%d presets, the limit is %d", len(o.Presets), maxListed)
	}
	for name, p := range o.Presets {
		p.check(faults, "presets["+name+"]", name)
		if all, err := p.params(); err == nil && all.Watermark != "" {
			o.marks(faults, "presets["+name+"].options", all.Watermark)
		}
	}
	for i, text := range o.Options {
		if all, err := parseOptions(text); err == nil && all.Watermark != "" {
			o.marks(faults, fmt.Sprintf("options[%d]", i), all.Watermark)
		}
	}
	if len(o.Watermarks) > maxListed {
		faults["watermarks"] = fmt.Errorf("%d watermarks, the limit is %d", len(o.Watermarks), maxListed)
	}
	for name, w := range o.Watermarks {
		w.check(faults, "watermarks["+name+"]", name)
	}
	if len(o.Widths)+len(o.Heights)+len(o.Presets) == 0 && o.Secret == "" {
		const hint = "without a width, a height or a preset there is nothing to apply it to: list some, such as widths: [400, 800]"
		if len(o.Fits) > 0 && faults["fits"] == nil {
			faults["fits"] = errors.New("fits: " + hint)
		}
		if len(o.DPRs) > 0 && faults["dprs"] == nil {
			faults["dprs"] = errors.New("dprs: " + hint)
		}
	}
	if len(faults) == 0 && len(o.DPRs) > 0 {
		if most := slices.Max(o.DPRs); times(o.longest(), inThousandths(most)) > MaxSide {
			faults["dprs"] = fmt.Errorf("a dpr of %v makes %d pixels %d, the limit is %d", most, o.longest(), times(o.longest(), inThousandths(most)), MaxSide)
		}
	}
	if o.Secret != "" && len(o.Secret) < minSecret {
		faults["secret"] = fmt.Errorf("a secret of %d bytes can be guessed: at least %d, `openssl rand -hex 16` prints one", len(o.Secret), minSecret)
	}
	if o.ClientHints && len(o.Widths) == 0 {
		faults["client_hints"] = errors.New("client_hints choose among widths, and none are listed: add some, such as widths: [400, 800, 1600]")
	}
	return faults
}

// longest is the longest side that can be asked for without a signature.
func (o Options) longest() int {
	n := max(slices.Max(append([]int{0}, o.Widths...)), slices.Max(append([]int{0}, o.Heights...)))
	for p := range maps.Values(o.Presets) {
		n = max(n, p.Width, p.Height)
	}
	return n
}

// checkList checks the values of a list, each on its own and that it is there once.
func checkList[T comparable](faults map[string]error, key string, list []T, fault func(T) error) {
	if len(list) > maxListed {
		faults[key] = fmt.Errorf("%d values, the limit is %d: each can make a variant of each image", len(list), maxListed)
		return
	}
	for i, v := range list {
		at := fmt.Sprintf("%s[%d]", key, i)
		if err := fault(v); err != nil {
			faults[at] = err
		} else if slices.Contains(list[:i], v) {
			faults[at] = fmt.Errorf("%v is listed twice", v)
		}
	}
}

func side(n int) error {
	if n < 1 || n > MaxSide {
		return fmt.Errorf("%d is not between 1 and %d pixels", n, MaxSide)
	}
	return nil
}

func quality(n int) error {
	if n < 1 || n > 100 {
		return fmt.Errorf("a quality of %d is not between 1 and 100", n)
	}
	return nil
}

func fit(f convert.Fit) error {
	if !slices.Contains(fits(), f) {
		return fmt.Errorf("%q is unknown: use contain, cover, fill, outside or pad", string(f))
	}
	return nil
}

// check adds the faults of one preset.
func (p Preset) check(faults map[string]error, at, name string) {
	if !isName(name) {
		faults[at] = fmt.Errorf("%q cannot be the name of a preset: it stands in URLs, so up to %d letters, digits, hyphens, underscores and dots", name, maxName)
	} else if p.Width == 0 && p.Height == 0 && p.Options == "" {
		faults[at] = errors.New("a preset without a size and without options: give it w, h or both, or options: grayscale=1")
	}
	if _, err := p.params(); err != nil {
		faults[at+".options"] = err
	}
	for _, s := range []struct {
		key   string
		value int
		fault func(int) error
	}{{".w", p.Width, side}, {".h", p.Height, side}, {".q", p.Quality, quality}} {
		if s.value == 0 {
			continue
		}
		if err := s.fault(s.value); err != nil {
			faults[at+s.key] = err
		}
	}
	if p.Fit != "" {
		if err := fit(p.Fit); err != nil {
			faults[at+".fit"] = err
		}
	}
}

// marks adds a fault where a watermark is named that there is not.
func (o Options) marks(faults map[string]error, at, name string) {
	if _, known := o.Watermarks[name]; !known {
		faults[at] = fmt.Errorf("there is no watermark %q: name it below watermarks", name)
	}
}

// check adds the faults of one watermark.
func (w Watermark) check(faults map[string]error, at, name string) {
	if !isName(name) {
		faults[at] = fmt.Errorf("%q cannot be the name of a watermark: it stands in URLs, so up to %d letters, digits, hyphens, underscores and dots", name, maxName)
	}
	if w.Image == "" || !fs.ValidPath(w.Image) {
		faults[at+".image"] = fmt.Errorf("%q is not a path below the root of the originals, as marks/logo.png", w.Image)
	}
	if w.Position != "" && !slices.Contains(sides(), w.Position) {
		faults[at+".position"] = fmt.Errorf("%q is not a side: n, ne, e, se, s, sw, w, nw or center", string(w.Position))
	}
	for key, v := range map[string]float64{".opacity": w.Opacity, ".scale": w.Scale} {
		if v != 0 && !(v >= 0.01 && v <= 1) {
			faults[at+key] = fmt.Errorf("%v is not between 0.01 and 1", v)
		}
	}
	if w.Margin < 0 || w.Margin > maxPad {
		faults[at+".margin"] = fmt.Errorf("a margin of %d pixels is not between 0 and %d", w.Margin, maxPad)
	}
}
