// Package bustest is the suite that every engine of the seam bus passes.
package bustest

import (
	"testing"

	"millrace/bus"
)

// Run runs the suite. open returns the bus of another machine each time, on the same stream if the engine
// reaches other processes (shared), else a bus of its own; it is closed by the suite.
func Run(t *testing.T, shared bool, open func(t *testing.T, keep bus.Keep) bus.Bus) {
	panic("not built")
}
