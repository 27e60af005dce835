//go:build !linux

package handover

import (
	"errors"
	"os"
)

var errNoHelper = errors.New("there is no helper for upgrades on this system, and no need of one")

// Helper is of Linux alone.
type Helper struct{}

// NewHelper fails.
func NewHelper(*os.File) (*Helper, error) { return nil, errNoHelper }

// Start fails.
func (*Helper) Start([]*os.File, string) (*process, error) { return nil, errNoHelper }

// StartHelper fails.
func StartHelper([]string) (*os.File, error) { return nil, errNoHelper }

// Help fails.
func Help(string, []string) error { return errNoHelper }
