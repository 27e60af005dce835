package lane

import "millrace/internal/wire/epoll"

// lines are the connections to upstreams that a loop watches, in use or idle, by their
// descriptors. It is the [epoll.Watch] over them.
//
// A server may close an idle connection, and a broken one may send on it what nobody has
// asked for, which the next request would get for its answer. Loops need no system call to
// find out: epoll reports both, and the events of idle connections are taken note of before
// the other events that came with them.
type lines struct {
	poller *epoll.Poller
	by     []line
}

type line struct {
	call       *call  // that waits for what comes; nil: it is idle
	stirred    bool   // something has come while it was idle, or its end
	generation uint32 // of the one on which it has: a descriptor is used again
}

// lineKey tells the descriptors of lines from those of clients, and from a waker's.
func lineKey(fd int) int32 { return int32(-2 - fd) }

// fdOf is the descriptor of a key.
func fdOf(key int32) int { return int(-2 - key) }

// at is the line with a descriptor.
func (l *lines) at(fd int) *line {
	if fd >= len(l.by) {
		l.by = append(l.by, make([]line, fd+1-len(l.by))...)
	}
	return &l.by[fd]
}

// await has a call wait for what comes.
func (l *lines) await(fd int, f *call) {
	f.line = fd
	l.at(fd).call = f
}

// forget ends that, if it does.
func (l *lines) forget(f *call) {
	if f.line != 0 {
		l.at(f.line).call, f.line = nil, 0
	}
}

// call is the one that waits for what comes; nil: none.
func (l *lines) call(fd int) *call { return l.at(fd).call }

// stir notes that something has come on an idle line, or the end of any.
func (l *lines) stir(fd int, generation uint32) {
	at := l.at(fd)
	at.stirred, at.generation = true, generation
}

// noteIdle notes events of idle lines, which are done with then.
func (l *lines) noteIdle(events []epoll.Event) {
	for i := range events {
		e := &events[i]
		if key := e.Key(); key >= 0 || key == epoll.WakeKey {
			continue
		}
		if fd := fdOf(e.Key()); l.call(fd) == nil {
			l.stir(fd, e.Generation())
			e.Events = 0
		}
	}
}

// End implements [epoll.Watch].
func (l *lines) End(fd int) { _ = l.poller.Remove(fd) }

// Stirred implements [epoll.Watch].
func (l *lines) Stirred(fd int, generation uint32) bool {
	at := l.at(fd)
	was := at.stirred && at.generation == generation
	at.stirred = false
	return was
}
