package store_test

import (
	"testing"

	"millrace/store"
	"millrace/store/storetest"
)

func openDisk(t *testing.T, o store.DiskOptions) *store.Disk {
	t.Helper()
	d, err := store.OpenDisk(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return d
}

func TestDisk(t *testing.T) {
	var o store.DiskOptions
	open := func(t *testing.T) store.Store {
		o = store.DiskOptions{Dir: t.TempDir(), Limit: 64 << 20}
		return openDisk(t, o)
	}
	storetest.Run(t, open, func(t *testing.T) store.Store { return openDisk(t, o) })
}
