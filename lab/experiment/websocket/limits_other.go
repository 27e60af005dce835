//go:build !unix

package websocket

import (
	"errors"
	"runtime"
)

// openFileLimit is not known here, where no server to measure is started either.
func openFileLimit() (int, error) {
	return 0, errors.New("the limit of open files is not known on " + runtime.GOOS)
}
