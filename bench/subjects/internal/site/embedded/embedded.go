// Package embedded is the site within the executable. The lab lays more files
// over the folder with go build's -overlay.
package embedded

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed files
var files embed.FS

// Files is the site's top folder, taken out of the embedded tree with fs.Sub as
// everybody does it.
func Files() (fs.FS, error) {
	sub, err := fs.Sub(files, "files")
	if err != nil {
		return nil, fmt.Errorf("opening the embedded files: %w", err)
	}
	return sub, nil
}
