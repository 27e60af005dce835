//go:build !linux

package confine

import (
	"fmt"
	"os"
)

// Running is not known by a path here.
const Running = ""

// Version is 0: this system has no Landlock.
func Version() int { return 0 }

// Possible returns why a process cannot be confined here, wrapping [ErrMissing].
func Possible() error { return fmt.Errorf("%w: it is one of Linux alone", ErrMissing) }

// Enter fails.
func Enter([]Rule, *os.File, ...string) error { return Possible() }

// Inherited is never anything here.
func Inherited() (*Domain, *os.File, error) { return nil, nil, nil }

func identify(string) (device, file uint64, err error) { return 0, 0, ErrMissing }
