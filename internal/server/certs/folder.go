package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// usable makes the folder, for its owner alone, and checks that files can be written
// there, so that a mistake shows at the start and not when a certificate is stored.
func usable(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return cannotUse(folder, err)
	}
	f, err := os.CreateTemp(folder, ".try-*")
	if err != nil {
		return cannotUse(folder, err)
	}
	name := f.Name()
	err = errors.Join(f.Close(), os.Remove(name))
	if err != nil {
		return cannotUse(folder, err)
	}
	return nil
}

func cannotUse(folder string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("keys and certificates cannot be written into %s: %w; name another folder with \"storage\", or run `chown` on it", folder, err)
	}
	return fmt.Errorf("keys and certificates cannot be written into %s: %w; name a folder with \"storage\" that can be written, on a file system that is not full or read-only", folder, err)
}
