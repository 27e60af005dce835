// Package bytesize reads and writes amounts of bytes as people put them into a
// config: 64MiB, 10GB, 4096.
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is an amount of bytes.
type Size int64

// The units, decimal and binary (IEC 80000-13), longest suffix first so that
// "MiB" is not taken for "B".
var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// Parse reads "64MiB", "1.5 GB", "4096". Units are not case-sensitive.
func Parse(s string) (Size, error) {
	number, factor := strings.TrimSpace(s), 1.0
	for _, u := range units {
		if n := len(number) - len(u.suffix); n > 0 && strings.EqualFold(number[n:], u.suffix) {
			number, factor = strings.TrimSpace(number[:n]), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*factor >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, like 64MiB or 10GB", s)
	}
	return Size(v * factor), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) error {
	v, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// MarshalText implements [encoding.TextMarshaler].
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String writes the size with the largest binary unit that leaves it whole.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if unit := int64(units[i].bytes); s != 0 && int64(s)%unit == 0 {
			return strconv.FormatInt(int64(s)/unit, 10) + units[i].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
