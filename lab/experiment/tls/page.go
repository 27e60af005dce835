package tls

import "millrace/lab/experiment/fileserver"

// pageFiles are a page and its assets.
func pageFiles() []fileserver.File { return nil }
