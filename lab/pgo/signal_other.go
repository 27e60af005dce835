//go:build !linux

package pgo

import (
	"context"
	"errors"
)

// RecordBySignal needs Linux's /proc to find the file that the process writes.
func RecordBySignal(context.Context, int, Recording) (data []byte, file string, err error) {
	return nil, "", errors.New("recording by signal needs Linux: send SIGUSR2 yourself, once to start and once to stop; the server's log names the file")
}
