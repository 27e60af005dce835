//go:build !linux

package link

import (
	"fmt"
	"os/exec"
)

// A Link is a network of its own with one link: on Linux.
type Link struct{}

// Open makes none here.
func Open(uint64) (*Link, error) {
	return nil, fmt.Errorf("%w: network namespaces are Linux's", ErrUnsupported)
}

// Within runs f.
func (*Link) Within(f func() error) error { return f() }

// Command is a command.
func (*Link) Command(name string, args ...string) *exec.Cmd { return exec.Command(name, args...) }

// Set does nothing.
func (*Link) Set(Conditions) {}

// TCP is unknown.
func (*Link) TCP() string { return "" }

// Counts are none.
func (*Link) Counts() Counts { return Counts{} }

// Close does nothing.
func (*Link) Close() error { return nil }
