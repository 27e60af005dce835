package disk

import (
	"fmt"
	"os"
)

// files is what a Store does to the files in its folder while it runs. Names
// are relative to the folder and cannot lead out of it. Tests replace it to
// make things fail, and to count.
type files interface {
	open(name string) (*os.File, error)   // for reading
	create(name string) (*os.File, error) // which is not there yet, for reading and writing
	write(f *os.File, p []byte, at int64) error
	rename(from, to string) error // with the folders that to needs
	remove(name string) error
	close() error
}

// rooted is a folder on the disk.
type rooted struct {
	root   *os.Root
	opener *opener
}

func (r *rooted) open(name string) (*os.File, error) { return r.opener.open(r.root, name) }

func (r *rooted) create(name string) (*os.File, error) {
	return r.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

func (r *rooted) write(f *os.File, p []byte, at int64) error {
	_, err := f.WriteAt(p, at)
	return err
}

func (r *rooted) rename(from, to string) error {
	err := r.root.Rename(from, to)
	if !os.IsNotExist(err) || len(to) < 4 || to[1] != '/' {
		return err
	}
	for _, folder := range []string{to[:1], to[:4]} {
		if err := r.root.Mkdir(folder, 0o700); err != nil && !os.IsExist(err) {
			return fmt.Errorf("making a folder for objects: %w", err)
		}
	}
	return r.root.Rename(from, to)
}

func (r *rooted) remove(name string) error { return r.root.Remove(name) }

func (r *rooted) close() error { return r.opener.close() }
