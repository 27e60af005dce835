package cli

import (
	"fmt"
	"time"

	"millrace/internal/bytesize"
)

// Lifetime is a duration, kept as it was typed.
type Lifetime string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *Lifetime) UnmarshalText(text []byte) error {
	*l = Lifetime(text)
	if d, err := time.ParseDuration(string(text)); err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration: write a number and its unit, like 30s, 5m or 24h", text)
	}
	return nil
}

// Size is an amount of bytes, kept as it was typed.
type Size string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (z *Size) UnmarshalText(text []byte) error {
	*z = Size(text)
	return new(bytesize.Size).UnmarshalText(text)
}
