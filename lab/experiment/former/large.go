package former

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// LargePath is the URL path of the large file.
const LargePath = "/large.bin"

// LargeSize is that of the large file in bytes: long enough that starting and
// ending a download do not count, small enough to stay in the page cache.
func LargeSize(quick bool) int64 {
	if quick {
		return 64 << 20
	}
	return 256 << 20
}

// WriteLarge makes the large file in a folder and waits until it is on the disk:
// real blocks, since a hole would be served from one shared page, and nothing
// left that the kernel writes back while we measure.
func WriteLarge(dir string, size int64) error {
	f, err := os.Create(filepath.Join(dir, LargePath))
	if err == nil {
		_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), size)
		if err == nil {
			err = f.Sync()
		}
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("making the large file: %w", err)
	}
	return nil
}
