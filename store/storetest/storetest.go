// Package storetest is what every engine of package store must pass.
package storetest

import (
	"testing"

	"millrace/store"
)

// Run tests the engine that open makes; it is called for each test, with an
// empty store every time. again, if not nil, opens the same store once more
// after a Close, with what it held.
func Run(t *testing.T, open func(t *testing.T) store.Store, again func(t *testing.T) store.Store) {
	panic("not built")
}
