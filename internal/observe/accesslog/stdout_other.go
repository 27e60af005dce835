//go:build !unix

package accesslog

import "os"

// standardOutput is the standard output itself where there is no SIGPIPE.
func standardOutput() (*os.File, error) { return os.Stdout, nil }
