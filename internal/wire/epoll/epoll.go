// Package epoll waits for many descriptors on one goroutine (epoll(7), Linux
// only). A [Set] waits in a thread. A [Poller] is a Set that is itself waited
// for through Go's poller, so that an idle loop holds no thread. A [Waker] ends
// the wait of a Set from elsewhere.
//
// Each descriptor is watched under a key and a generation, which come back with
// its events. Keys are used again: the generation tells an event of who had the
// key before, which may be in the same batch as its end, from one of who has it
// now.
package epoll
