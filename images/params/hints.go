package params

import (
	"net/http"
	"slices"
	"strings"
)

// The client hints: how wide the image is in device pixels, how wide the page
// in pixels of CSS, and how many of one are one of the other. The names without
// Sec-CH- are those of older browsers.
const (
	secWidth    = "Sec-Ch-Width"
	secViewport = "Sec-Ch-Viewport-Width"
	secDPR      = "Sec-Ch-Dpr"
	oldWidth    = "Width"
	oldViewport = "Viewport-Width"
	oldDPR      = "Dpr"
	saveData    = "Save-Data"
)

// savingQuality is the quality with Save-Data where the site lists none: as low
// as photographs go before everyone sees it.
const savingQuality = 50

// VaryOn are the request headers that Parse looks at: for Vary.
func (o Options) VaryOn() []string {
	if !o.ClientHints {
		return nil
	}
	return []string{"Sec-CH-Width", "Sec-CH-Viewport-Width", "Sec-CH-DPR", "Width", "Viewport-Width", "DPR", "Save-Data"}
}

// AcceptCH is the value of the header Accept-CH (RFC 8942, 3.1), empty when
// hints are off. Save-Data is sent without being asked for.
func (o Options) AcceptCH() string {
	if !o.ClientHints {
		return ""
	}
	return "Sec-CH-Width, Sec-CH-Viewport-Width, Sec-CH-DPR, Width, Viewport-Width, DPR"
}

// hints adds what the client hints at to what the URL says: a width where it
// names no size at all (with a height alone, a hint would make the image
// smaller than the page wants it), a lower quality where it names none.
func (o Options) hints(h http.Header, p *Params) {
	if p.Width == 0 && p.Height == 0 && len(o.Widths) > 0 {
		if want := wanted(h); want > 0 {
			p.Width = nearest(o.Widths, want)
		}
	}
	if p.Quality == 0 && len(h[saveData]) == 1 && strings.EqualFold(strings.Trim(h[saveData][0], " \t"), "on") {
		p.Quality = savingQuality
		if len(o.Qualities) > 0 {
			p.Quality = slices.Min(o.Qualities)
		}
	}
}

// wanted is the width in device pixels, 0 when there is no hint that makes sense.
func wanted(h http.Header) int {
	for _, name := range []string{secWidth, oldWidth} {
		if n, ok := hint(h[name], false); ok {
			return n / 1000
		}
	}
	dpr := 1000
	for _, name := range []string{oldDPR, secDPR} { // the newer one last: it counts
		if n, ok := hint(h[name], true); ok {
			dpr = n
		}
	}
	for _, name := range []string{secViewport, oldViewport} {
		if n, ok := hint(h[name], false); ok {
			return int((int64(n)*int64(dpr) + 999_999) / 1_000_000)
		}
	}
	return 0
}

// nearest is the smallest of widths that is not smaller than want, else the
// largest.
func nearest(widths []int, want int) int {
	best := 0
	for _, w := range widths {
		if w >= want && (best < want || w < best) || best < want && w > best {
			best = w
		}
	}
	return best
}

// hint reads a header that is one positive integer (RFC 9651, 3.3.1), or also a
// decimal (3.3.2), in thousandths; what is beyond maxHint counts as that. A
// decimal may have more than the three digits after the point that the RFC
// allows, up to 17: Chromium sends a double as it is, 1.100000023841858. It may
// have no parameters; no client sends any with these.
func hint(values []string, decimal bool) (n int, ok bool) {
	const (
		maxHint     = 1_000_000 // more than any screen; its thousandths fit into 32 bits
		maxInteger  = 15        // digits
		maxDecimals = 17
	)
	if len(values) != 1 {
		return 0, false
	}
	whole, decimals, point := strings.Cut(strings.Trim(values[0], " "), ".")
	if whole == "" || len(whole) > maxInteger || point && (!decimal || decimals == "" || len(decimals) > maxDecimals) {
		return 0, false
	}
	for i := range len(whole) {
		if whole[i] < '0' || whole[i] > '9' {
			return 0, false
		}
		n = min(n*10+int(whole[i]-'0'), maxHint)
	}
	n *= 1000
	unit := 100 // of the digit; 0 after the third
	for i := range len(decimals) {
		if decimals[i] < '0' || decimals[i] > '9' {
			return 0, false
		}
		n += int(decimals[i]-'0') * unit
		unit /= 10
	}
	return n, n > 0
}
