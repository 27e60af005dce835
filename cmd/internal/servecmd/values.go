package servecmd

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/config"
	"millrace/internal/process/confine"
)

// Address is a flag's value that a listener can have.
type Address string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Address) UnmarshalText(text []byte) error {
	*a = Address(text)
	return config.CheckAddress(string(text))
}

// Sandbox is a flag's value that says how the sandbox is used.
type Sandbox string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Sandbox) UnmarshalText(text []byte) error {
	*b = Sandbox(text)
	return new(confine.Options).UnmarshalText(text)
}

// LogFormat is how the access log writes its lines.
type LogFormat string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (f *LogFormat) UnmarshalText(text []byte) error {
	*f = LogFormat(text)
	if slices.Contains(config.LogFormats(), string(text)) {
		return nil
	}
	return fmt.Errorf("%q is not a log format: use %s", text, strings.Join(config.LogFormats(), ", "))
}
