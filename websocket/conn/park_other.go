//go:build !linux

package conn

import (
	"syscall"
	"time"
)

// parker is the Linux way to wait without a goroutine; elsewhere nothing is parked.
type parker struct{ after time.Duration }

func newParker() *parker { return nil }

func (*parker) run()   {}
func (*parker) close() {}

func (*parker) enter(*Conn, syscall.Conn) bool { return false }

func (*parker) wake(*goroutineDriver) {}
