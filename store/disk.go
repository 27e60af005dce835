package store

import "millrace/internal/bytesize"

// DiskOptions of a Disk.
type DiskOptions struct {
	Dir   string
	Limit bytesize.Size // of files, heads and bodies rounded up to blocks
	// Smallest and Largest bound the size of bodies taken; 0: any.
	Smallest, Largest bytesize.Size
	// Second takes an object at its second Create within a while only, unless
	// it is at least SecondBelow bytes large: what is asked for once is not worth a write.
	Second      bool
	SecondBelow bytesize.Size
}

// OpenDisk opens or makes a store of plain files.
func OpenDisk(o DiskOptions) (*Disk, error) { panic("not built") }

// Disk keeps each object in a file of its own.
type Disk struct{ Store }
