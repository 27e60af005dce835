//go:build !linux

package disk

import (
	"errors"
	"os"
)

// The store on disk has been made and tested for Linux alone: what it says
// about crashes rests on boot_id, flock and how Linux orders a rename.

type opener struct{}

func newOpener(*os.Root) (*opener, error) { return &opener{}, nil }

func (*opener) open(root *os.Root, name string) (*os.File, error) { return root.Open(name) }

func (*opener) close() error { return nil }

func lockFile(*os.File) (bool, error) {
	return false, errors.New("a store on disk needs Linux; leave the disk tier out on this system")
}

func bootID() string { return "" }

func descriptors() int64 { return 1024 }
