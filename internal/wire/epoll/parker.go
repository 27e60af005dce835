package epoll

import "syscall"

// Parked is a connection that has no goroutine while it is idle.
type Parked interface {
	// Socket returns the connection's socket, below TLS.
	Socket() syscall.Conn
	// Awake is called when there is something to read, by the Parker's goroutine, or by
	// Leave. It must not block.
	Awake()
}

// Place is a parked connection's place in its Parker. With the zero value it is not parked.
type Place struct {
	number uint32
	in     bool
}
