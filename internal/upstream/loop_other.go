//go:build !linux

package upstream

import (
	"context"
	"net"
	"syscall"
	"time"

	"millrace/internal/upstream/http1"
)

// There are no loops here, and so no lines.

func lineOf(*wire) *line { return nil }

func (*line) close() {}

func (*line) isIdle() bool { return false }

func (*line) look() (state, error) { return gone, errClosed }

func (*line) conn() (net.Conn, error) { return nil, syscall.ENOTSUP }

// await is never called.
func (*line) await(context.Context, time.Time) (net.Conn, error) { return nil, syscall.ENOTSUP }

// dial reports false.
func (*Exchange) dial() bool { return false }

func (*connector) failed(err error) error { return err }

// Send reports false.
func (x *Exchange) Send(*Request, []byte, []byte) bool {
	if !x.waited {
		x.giveBack()
	}
	return false
}

// Take is never called.
func (x *Exchange) Take([]byte, string, *Answer) ([]byte, Taken) { return nil, Other }

// TakeUpgrade is never called.
func (*Exchange) TakeUpgrade([]byte, *Request, *Answer) Taken { return Other }

// Switch is never called.
func (*Exchange) Switch() (fd int, t *Tunnel, ok bool) { return 0, nil, false }

func (*Exchange) keep([]byte) {}

func (*Exchange) scan(string, string, *Answer) (int, http1.Scanned) { return 0, http1.Other }
