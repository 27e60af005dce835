// Package storetest is what every engine of package store must pass.
//
// An engine calls [Run] from a test of its own:
//
//	func TestMemory(t *testing.T) {
//		open := func(t *testing.T) store.Store { return memory.New(64 << 20) }
//		storetest.Run(t, open, nil)
//	}
//
// The suite asks of an engine that it takes bodies of 1 MiB, about 8 MiB in all
// at a time, heads of 1 KiB and keys of 8 KiB. It accepts ErrFull only for the
// one larger body that it tries. It reads what it wrote from the same Store: an
// engine may be late in telling other machines, but not its own caller.
package storetest

import (
	"testing"

	"millrace/store"
)

// A suite is one run of the tests.
type suite struct {
	open, again func(t *testing.T) store.Store
}

// Run tests the engine that open makes; it is called for each test, with an
// empty store every time. again, if not nil, opens the same store once more
// after a Close, with what it held; it is called with the test that open was
// called with last. The tests run one after the other and close what they open.
func Run(t *testing.T, open func(t *testing.T) store.Store, again func(t *testing.T) store.Store) {
	t.Helper()
	s := suite{open: open, again: again}
	for _, test := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"put and get", s.putGet},
		{"not found", s.notFound},
		{"replace", s.replace},
		{"delete", s.remove},
		{"empty body", s.emptyBody},
		{"empty head", s.emptyHead},
		{"sizes", s.sizes},
		{"large body of unknown size", s.large},
		{"body of another size than announced", s.wrongSize},
		{"callers may use their buffers again", s.buffers},
		{"reading while writing", s.readWhileWriting},
		{"nothing visible before commit", s.invisible},
		{"abort", s.abort},
		{"replace while open", s.replaceOpen},
		{"delete while open", s.deleteOpen},
		{"last commit wins", s.lastCommit},
		{"concurrent writers of one key", s.writers},
		{"everything at once", s.everything},
		{"keys of any bytes", s.keys},
		{"context", s.context},
		{"use after close", s.closed},
		{"stats", s.stats},
		{"persistence", s.persistence},
	} {
		t.Run(test.name, test.run)
	}
}
