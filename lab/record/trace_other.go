//go:build !linux || (!amd64 && !arm64)

package record

import "errors"

// TraceMoves is for Linux on amd64 and arm64 only.
func TraceMoves([]int, func() error) (Moved, error) {
	return Moved{}, errors.New("system calls are counted on Linux on amd64 and arm64 only")
}
