package store_test

import (
	"testing"

	"millrace/store"
	"millrace/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.NewMemory(64 << 20) }, nil)
}
