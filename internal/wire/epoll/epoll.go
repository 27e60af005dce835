// Package epoll waits for many descriptors on one goroutine (epoll(7), Linux only). A [Set] waits
// in a thread. A [Poller] is a Set for which Go's poller waits, so that an idle loop uses no
// thread. A [Waker] ends the wait of a Set from another goroutine. A [Parker] waits for
// connections that have no goroutine while they are idle.
//
// A descriptor is watched with a key and a generation, which its events have. A key, such as
// a descriptor's number, is used again after a connection was closed. An event in the same
// batch may still be of the closed one: it has the older generation.
package epoll
