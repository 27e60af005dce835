//go:build !unix

package accesslog

import "os"

func openFlags(string) int { return os.O_APPEND | os.O_CREATE | os.O_WRONLY }
