//go:build !linux

package upstream

import (
	"net"
	"syscall"

	"millrace/internal/upstream/http1"
)

// There are no loops here, and so no lines.

func lineOf(*wire) *line { return nil }

func (*line) close() {}

func (*line) look() state { return gone }

func (*line) conn() (net.Conn, error) { return nil, syscall.ENOTSUP }

// Send reports false.
func (x *Exchange) Send(*Request, []byte, []byte) bool {
	if !x.waited {
		x.giveBack()
	}
	return false
}

// Take is never called.
func (x *Exchange) Take([]byte, string, *Answer) ([]byte, Taken) { return nil, Other }

func (*Exchange) keep([]byte) {}

func (*Exchange) scan(string, string, *Answer) (int, http1.Scanned) { return 0, http1.Other }
