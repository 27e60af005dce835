//go:build !disk

package main

import (
	"embed"
	"fmt"
	"io/fs"
)

// embedded is the site within the executable. The lab lays more files over the folder
// with go build's -overlay.
//
//go:embed files
var embedded embed.FS

// embeddedSite is the site's top folder, taken out of the embedded tree with fs.Sub as
// everybody does it.
func embeddedSite() (fs.FS, error) {
	sub, err := fs.Sub(embedded, "files")
	if err != nil {
		return nil, fmt.Errorf("opening the embedded files: %w", err)
	}
	return sub, nil
}
