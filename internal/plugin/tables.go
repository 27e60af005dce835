//go:build !small

package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sections and flags of a WebAssembly module's binary.
const (
	headSize     = 8 // the magic number and the version
	tableSection = 4
	hasMaximum   = 1
	elementSize  = 8 // bytes of a table's element, as wazero has it
)

// table is how many elements a table has, and may have.
type table struct {
	least, most uint64
	bounded     bool
}

// errCut: the module was compiled, so this does not happen.
var errCut = errors.New("its section of tables cannot be read")

// tablesOf reads the tables of a module that can be compiled.
func tablesOf(module []byte) (list []table, err error) {
	b := module[min(headSize, len(module)):]
	number := func() (v uint64) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			b, err = nil, errCut
			return 0
		}
		b = b[n:]
		return v
	}
	for len(b) > 0 && err == nil {
		id := b[0]
		b = b[1:]
		size := number()
		if size > uint64(len(b)) {
			return nil, errCut
		}
		if id != tableSection {
			b = b[size:]
			continue
		}
		for range number() {
			if len(b) < 2 {
				return nil, errCut
			}
			t := table{bounded: b[1]&hasMaximum != 0}
			b = b[2:] // the type of its elements, and the flags
			if t.least = number(); t.bounded {
				t.most = number()
			}
			list = append(list, t)
		}
		return list, err
	}
	return nil, err
}

// fit is nil if all tables together cannot take more than most bytes. grows asks whether the
// module makes tables larger.
func fit(tables []table, most uint64, grows func() bool) error {
	n, bounded := bytesOf(tables, true)
	if !bounded || n > most {
		n, bounded = bytesOf(tables, grows())
	}
	switch {
	case !bounded:
		return errors.New("it has a table that may grow without bound: link it with a maximum for the table")
	case n > most:
		return fmt.Errorf("its tables may take %d bytes: memory allows %d", n, most)
	}
	return nil
}

// bytesOf is how much memory tables can take. grows: something in the module makes them larger.
func bytesOf(tables []table, grows bool) (n uint64, bounded bool) {
	bounded = true
	for _, t := range tables {
		size := t.least
		if grows {
			size, bounded = t.most, bounded && t.bounded
		}
		n += size * elementSize // 32 bits each, and no module has 2^29 of them
	}
	return n, bounded
}
