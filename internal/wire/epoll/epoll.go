// Package epoll waits for many descriptors on one goroutine (epoll(7), Linux only). A [Set] waits
// in a thread. A [Poller] is a Set for which Go's poller waits, so that an idle loop uses no
// thread. A [Waker] ends the wait of a Set from another goroutine. A [Parker] waits for
// connections that have no goroutine while they are idle.
//
// A descriptor is watched with a key and a generation, which its events have. A key, such as
// a descriptor's number, is used again after a connection was closed. An event in the same
// batch may still be of the closed one: it has the older generation.
package epoll

// Watch is an event loop's watch over a connection to another server, edge-triggered, which
// goes on while the connection is idle.
type Watch interface {
	// End ends it. Any goroutine may call it.
	End(fd int)
	// Stirred reports, once, whether something has come on the connection while it was idle, or
	// its end. Only the loop may call it.
	Stirred(fd int, generation uint32) bool
}
