// Package steer lets two processes serve QUIC at one UDP port while one takes over
// from the other. Each has a socket of its own, and the kernel decides which of
// them gets a packet: the connection ids that we choose carry a bit that says which
// process has the connection. A new client's first packet goes to the new process.
//
// Nothing looks at packets in our own programs, so quic-go keeps its batched reads.
// See decision 39.
package steer

import (
	"crypto/rand"

	"golang.org/x/net/bpf"
)

const (
	// IDBytes is how long our connection ids are: 47 random bits and the generation.
	// The ids that clients choose for their first packets have 8 bytes or more (RFC
	// 9000, 7.2), so the length tells them apart.
	IDBytes = 6
	// longHeader is the bit that a packet with a long header begins with (RFC 8999,
	// 5.1); idLength and longID are where such a packet has the length of its
	// destination's id, and the id; shortID is where others have it (5.2).
	longHeader = 0x80
	idLength   = 5
	longID     = 6
	shortID    = 1
)

// Generation says which of two processes a connection belongs to: the bit changes
// from one to its successor. There are never more than two.
type Generation byte

// Of is the generation of the process before which there were n others.
func Of(n int) Generation { return Generation(n & 1) }

// ID is a new connection id.
func (g Generation) ID() []byte {
	b := make([]byte, IDBytes)
	_, _ = rand.Read(b) // never fails
	b[0] = b[0]&^1 | byte(g)
	return b
}

// The sockets of a port stand in the order in which they were opened: that of the
// process that is about to leave, and that of its successor. When the first is
// closed the second takes its place, and as there is no other, gets everything.
const predecessors, ours = 0, 1

// program chooses the socket for a packet when this process is of generation g. A
// packet that is too short to have an id goes to the predecessor (the kernel's
// answer to a load beyond the end is 0), where it is dropped like any noise.
func program(g Generation) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: longHeader, SkipTrue: 2},
		bpf.LoadAbsolute{Off: shortID, Size: 1},
		bpf.Jump{Skip: 3}, // to the generation
		bpf.LoadAbsolute{Off: idLength, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: IDBytes, SkipTrue: 4}, // the client has chosen it: it is new
		bpf.LoadAbsolute{Off: longID, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 1}, // the generation
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(g), SkipTrue: 1},
		bpf.RetConstant{Val: predecessors},
		bpf.RetConstant{Val: ours},
	}
}

// stay leaves everything with the predecessor.
func stay() []bpf.Instruction { return []bpf.Instruction{bpf.RetConstant{Val: predecessors}} }
