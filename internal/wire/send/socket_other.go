//go:build !linux

package send

import (
	"errors"
	"net"
)

// Socket sends and reads by raw system calls, on Linux only. Elsewhere there is none, and
// package net is used.
type Socket struct{}

// NewSocket returns nil: package net is used.
func NewSocket(net.Conn, func()) *Socket { return nil }

// Read is never called: there is no Socket.
func (*Socket) Read([]byte) (int, error) { panic("send: no raw sockets on this system") }

// Readable is never called: there is no Socket.
func (*Socket) Readable(func(uintptr) bool) error { panic("send: no raw sockets on this system") }

// TryRead is never called: there is no Socket.
func TryRead(uintptr, []byte) (n int, ok bool, err error) {
	panic("send: no raw sockets on this system")
}

// TryWrite is never called: there is no Socket.
func TryWrite(_ uintptr, _, _ []byte) (n int, err error) {
	panic("send: no raw sockets on this system")
}

// TrySendFile is never called: there is no Socket.
func TrySendFile(_ uintptr, _ []byte, _ *File, _, _ int64) (nHead int, nFile int64, err error) {
	panic("send: no raw sockets on this system")
}

// AwaitGone is never called: there is no Socket.
func (*Socket) AwaitGone() error { panic("send: no raw sockets on this system") }

// AwaitGone returns [errors.ErrUnsupported]: it cannot tell a peer that has closed its sending
// side from one that has left.
func AwaitGone(net.Conn) error { return errors.ErrUnsupported }

// Write is never called: there is no Socket.
func (*Socket) Write(_, _ []byte) (int64, error) { panic("send: no raw sockets on this system") }

// Acked returns false: the number is not known.
func Acked(net.Conn) (n uint64, ok bool) { return 0, false }

// Queued returns false: the number is not known.
func Queued(net.Conn) (n int, ok bool) { return 0, false }

// SendFile is never called: there is no Socket.
func (*Socket) SendFile([]byte, *Section) (nHead, nFile int64, err error) {
	panic("send: no raw sockets on this system")
}

// InMemory returns false: it is not known.
func (*File) InMemory(_, _ int64) bool { return false }
