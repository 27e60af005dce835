//go:build !small

package engine

import "millrace/internal/config"

// Unsupported says what cfg asks for that this build leaves out: nothing, unless
// it was built with the tag small.
func Unsupported(*config.Config) error { return nil }
