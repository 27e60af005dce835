package params

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// refused is the error for a value of one parameter. It lists what may be asked
// for: the author of the page reads it.
func (o Options) refused(name, value string) error {
	return fmt.Errorf("%w: %s=%s; allowed: %s", ErrRefused, name, strconv.QuoteToASCII(shorten(value)), o.allowed())
}

// shorten cuts off what a client sent, for a message.
func shorten(text string) string {
	const shown = 24 // bytes
	if len(text) > shown {
		return text[:shown] + "…"
	}
	return text
}

// allowed lists what may be asked for. Its length is bounded by maxListed.
func (o Options) allowed() string {
	var parts []string
	add := func(name string, values []string) {
		if len(values) > 0 {
			parts = append(parts, name+"="+strings.Join(values, "|"))
		}
	}
	add("w", texts(o.Widths, strconv.Itoa))
	add("h", texts(o.Heights, strconv.Itoa))
	add("q", texts(o.Qualities, strconv.Itoa))
	var fit []string
	for _, f := range o.Fits {
		fit = append(fit, string(f))
	}
	add("fit", fit)
	add("dpr", texts(o.DPRs, func(d float64) string { return strconv.FormatFloat(d, 'f', -1, 64) }))
	parts = append(parts, slices.Sorted(slices.Values(o.Options))...)
	add("preset", slices.Sorted(maps.Keys(o.Presets)))
	if o.Secret != "" {
		parts = append(parts, fmt.Sprintf("with a signature w and h up to %d, q up to 100, dpr up to %d, and all options", MaxSide, MaxDPR))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func texts[T int | float64](values []T, text func(T) string) []string {
	sorted := slices.Sorted(slices.Values(values))
	var out []string
	for _, v := range sorted {
		out = append(out, text(v))
	}
	return out
}
