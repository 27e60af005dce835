package epoll

import "syscall"

// Parked is a connection that has a goroutine only while it is busy.
type Parked interface {
	// Socket is the connection's, or what TLS runs over.
	Socket() syscall.Conn
	// Awake is called in the Parker's goroutine when there is something to read
	// again, or by Leave. It must not wait.
	Awake()
}

// Place is where a connection stands in its Parker. The zero value is nowhere.
type Place struct {
	number uint32
	in     bool
}
