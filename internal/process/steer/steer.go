// Package steer lets two processes serve QUIC at one UDP port during an upgrade. Each has a
// socket of its own, and a BPF program in the kernel chooses the socket for each packet: one
// bit of the connection ids that the server chooses says which process has the connection.
// The first packet of a new client goes to the new process.
//
// No packet goes through our own code, so quic-go keeps its batched reads (decision 39).
package steer

import (
	"crypto/rand"

	"golang.org/x/net/bpf"
)

const (
	// IDBytes is the length of the server's connection ids: 47 random bits and the
	// generation. The ids that clients choose for their first packets have 8 bytes or
	// more (RFC 9000, 7.2), so the length tells these apart.
	IDBytes = 6
	// longHeader is the first bit of a packet with a long header (RFC 8999, 5.1).
	// idLength and longID are the offsets of the length of its destination id, and of
	// that id. shortID is the offset of the id in other packets (5.2).
	longHeader = 0x80
	idLength   = 5
	longID     = 6
	shortID    = 1
)

// Generation says which of two processes has a connection: 0 and 1 alternate from a process to
// its successor. There are never more than two processes.
type Generation byte

// Of returns the generation of a process that n others came before.
func Of(n int) Generation { return Generation(n & 1) }

// ID returns a new connection id.
func (g Generation) ID() []byte {
	b := make([]byte, IDBytes)
	_, _ = rand.Read(b) // never fails
	b[0] = b[0]&^1 | byte(g)
	return b
}

// The kernel numbers the sockets of a port in the order in which they were opened: 0 is the
// predecessor's, 1 is ours. When the predecessor's is closed, ours is 0, and gets every packet
// as there is no other.
const predecessors, ours = 0, 1

// program returns the BPF program that chooses a packet's socket for a process of generation
// g. A packet that is too short for an id goes to the predecessor, which drops it: a load
// beyond its end makes the program return 0.
func program(g Generation) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: longHeader, SkipTrue: 2},
		bpf.LoadAbsolute{Off: shortID, Size: 1},
		bpf.Jump{Skip: 3}, // to the generation
		bpf.LoadAbsolute{Off: idLength, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: IDBytes, SkipTrue: 4}, // the client has chosen the id: the connection is new
		bpf.LoadAbsolute{Off: longID, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 1}, // the generation
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(g), SkipTrue: 1},
		bpf.RetConstant{Val: predecessors},
		bpf.RetConstant{Val: ours},
	}
}

// stay returns the program that gives every packet to the predecessor.
func stay() []bpf.Instruction { return []bpf.Instruction{bpf.RetConstant{Val: predecessors}} }
