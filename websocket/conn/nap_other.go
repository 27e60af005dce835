//go:build !linux

package conn

import (
	"syscall"
	"time"
)

// napper is the Linux way to wait without a goroutine; elsewhere nobody naps.
type napper struct{ after time.Duration }

func newNapper() *napper { return nil }

func (*napper) run()   {}
func (*napper) close() {}

func (*napper) enter(*Conn, syscall.Conn) bool { return false }

func (*napper) rouse(*own) {}
