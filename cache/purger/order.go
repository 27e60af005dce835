package purger

import (
	"sync"

	"millrace/cache/purge"
)

// order keeps the order of purges that all machines see, so that an object
// from the shared store can be placed in it: it carries the last announcement
// that its machine had heard when it asked the upstream.
type order struct {
	mu       sync.Mutex
	received []announced           // the latest, oldest first
	own      map[string]purge.Time // ours that we have not heard yet, with their numbers here
}

// announced is an announcement. What this machine asked its upstream for at the
// moment at of its index, or later, is younger than the announcement. What other
// machines say is younger than it may be older than purges of ours that they
// had yet to hear of; it is surely younger than what was purged here up to floor.
type announced struct {
	id        string
	at, floor purge.Time
}

// maxAnnounced is how many announcements are remembered, and how many of our own
// may be under way. An object from before the oldest is taken to be older than
// every purge that this machine knows of.
const maxAnnounced = 10_000

// announceOwn notes an announcement of our own, to be made once take, which returns
// its number, has put it into effect here.
func (l *order) announceOwn(id string, take func() purge.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := take()
	if l.own == nil || len(l.own) >= maxAnnounced {
		clear(l.own) // what is forgotten takes effect twice
		if l.own == nil {
			l.own = map[string]purge.Time{}
		}
	}
	l.own[id] = at
}

// forgetOwn forgets an announcement of our own, and reports whether it was one.
func (l *order) forgetOwn(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forget(id)
}

func (l *order) forget(id string) bool {
	_, ok := l.own[id]
	delete(l.own, id)
	return ok
}

// receive gives an announcement its place, and calls take if it is not our own.
func (l *order) receive(id string, index *purge.Index, take func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forget(id) {
		take()
	}
	h := announced{id: id, at: index.Now()}
	h.floor = h.at
	for _, at := range l.own {
		h.floor = min(h.floor, at-1)
	}
	if len(l.received) >= maxAnnounced {
		l.received = append(l.received[:0], l.received[maxAnnounced/2:]...)
	}
	l.received = append(l.received, h)
}

// epoch is the last announcement heard before a moment of the index.
func (l *order) epoch(at purge.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.received) - 1; i >= 0; i-- {
		if l.received[i].at <= at {
			return l.received[i].id
		}
	}
	return ""
}

// time is the moment of this machine's index that an epoch stands for: 0, before
// everything, when the epoch is not known here.
func (l *order) time(epoch string) purge.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.received) - 1; i >= 0; i-- {
		if l.received[i].id == epoch {
			return l.received[i].floor
		}
	}
	return 0
}
