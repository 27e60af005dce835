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
func (x *Passage) Send([]byte) bool {
	if !x.waited {
		x.giveBack()
	}
	return false
}

// Take is never called.
func (x *Passage) Take([]byte, string, *http1.Answer) ([]byte, Taken) { return nil, Other }

func (*Passage) keep([]byte) {}
