//go:build disk

package main

import (
	"errors"
	"io/fs"
)

// errDisk is why there is nothing to serve.
var errDisk = errors.New("there is no site in this executable, which was built with the tag disk: leave out -embed")

func embeddedSite() (fs.FS, error) { return nil, errDisk }
