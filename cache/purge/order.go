package purge

import (
	"maps"
	"sync"
)

// order keeps the order of purges that all machines see. An object in the shared store
// carries its place in it: the last announcement that its machine had received when it
// asked the upstream.
type order struct {
	mu       sync.Mutex
	received []announced       // the latest, oldest first
	known    map[string]bool   // the ids of received
	own      map[string]purged // ours that we have not heard yet
}

// announced is an announcement that was received. What this machine asked its upstream
// for at the moment at of its index, or later, is younger than the announcement. What
// other machines call younger may still be older than purges of this machine that they
// had yet to receive; it is surely younger than what was purged here up to floor.
type announced struct {
	id        string
	at, floor Time
}

// maxAnnounced is how many announcements are remembered, and how many of our own
// may be under way. An object from before the oldest is not used.
const maxAnnounced = 10_000

// announceOwn notes an announcement that this machine is about to make. take puts the
// purge into effect here, and returns its number.
func (l *order) announceOwn(a announcement, take func() Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := take()
	if l.own == nil || len(l.own) >= maxAnnounced {
		clear(l.own) // what is forgotten takes effect twice
		if l.own == nil {
			l.own = map[string]purged{}
		}
	}
	l.own[a.ID] = purged{a.Purge, at}
}

// forgetOwn forgets an announcement of this machine.
func (l *order) forgetOwn(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(id)
}

func (l *order) forget(id string) bool {
	_, ok := l.own[id]
	delete(l.own, id)
	return ok
}

// receive notes an announcement in the order. If another machine made it, take puts
// its purge into effect.
func (l *order) receive(id string, index *Index, take func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forget(id) {
		take()
	}
	if l.known[id] {
		// It was published again, since the answer to the first time was lost. What another
		// machine has stored behind it may be stored behind the first one alone.
		return
	}
	h := announced{id: id, at: index.Now()}
	h.floor = h.at
	for _, o := range l.own {
		h.floor = min(h.floor, o.at-1)
	}
	if len(l.received) >= maxAnnounced {
		for _, old := range l.received[:maxAnnounced/2] {
			delete(l.known, old.id)
		}
		l.received = append(l.received[:0], l.received[maxAnnounced/2:]...)
	}
	if l.known == nil {
		l.known = map[string]bool{}
	}
	l.received, l.known[id] = append(l.received, h), true
}

// epoch is the last announcement received before a moment of the index.
func (l *order) epoch(at Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.received) - 1; i >= 0; i-- {
		if l.received[i].at <= at {
			return l.received[i].id
		}
	}
	return ""
}

// restart forgets what was received, and returns the purges of this machine that were
// not.
func (l *order) restart() map[string]purged {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.received, l.known = nil, nil
	return maps.Clone(l.own)
}

// time is the moment of this machine's index that an epoch stands for, and false if the
// epoch is not known here.
func (l *order) time(epoch string) (Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.received) - 1; i >= 0 && epoch != ""; i-- { // a message without an id is nobody's place
		if l.received[i].id == epoch {
			return l.received[i].floor, true
		}
	}
	return 0, false
}
