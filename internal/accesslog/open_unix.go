//go:build unix

package accesslog

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags are those with which opening a path for appending never waits: a
// named pipe would otherwise wait for somebody who reads it. Open for reading
// as well, it lasts when its reader goes and takes lines for the next one; and
// a write to it ends when the log is closed.
func openFlags(path string) int {
	flags := os.O_APPEND | os.O_CREATE | syscall.O_NONBLOCK
	if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeNamedPipe {
		return flags | os.O_RDWR
	}
	return flags | os.O_WRONLY
}
