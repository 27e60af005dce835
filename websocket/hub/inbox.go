package hub

import "sync"

const (
	// listWaiting and listBytes are how many publications of one channel, and
	// how many bytes of them, may wait for one shard: many times what may wait
	// for one client, since a shard's clients get them one after the other.
	listWaiting = 4096
	listBytes   = 8 << 20
	// inboxBytes is the most that may wait for one shard, of all channels. With
	// publicationCost it bounds the number, too.
	inboxBytes = 64 << 20
	// keptTokens is how large an inbox's memory may stay when it is empty.
	keptTokens = 4096
	// compactFrom is from how many taken tokens on the rest may be moved down.
	compactFrom = 256
)

// inbox is what waits to be delivered on one shard, in the order in which it
// came. Nobody who puts something in waits: the publisher may be a loop, which
// has thousands of others to serve, and it may be the very loop that has to
// empty this inbox. So a channel that is published to faster than a shard can
// deliver loses publications there. Its subscribers on that shard get a reset
// note where the gap is, and so those who care ask the history, at most once
// for as much as fits here. It is counted as dropped, "behind".
type inbox struct {
	mu     sync.Mutex
	tokens []token
	taken  int   // of tokens, at the front
	bytes  int64 // waiting, see Publication.cost
	posted bool  // run was posted, and has not found the inbox empty since
}

// token is a turn of a list.
type token struct {
	l *list
	p *Publication // to be begun; nil: go on with the one that is under way
}

// put adds a publication for a list. post: the inbox was empty, run has to be
// posted. fits: there is room; if not, reset takes its place, or nothing if
// nothing has come since the last reset.
func (in *inbox) put(l *list, p *Publication, reset func() *Publication) (post, fits bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if l.resetLast && p.isReset() {
		return false, true // one is enough
	}
	cost := p.cost()
	fits = l.waiting < listWaiting &&
		(l.waiting == 0 || l.bytes+cost <= listBytes) &&
		(in.bytes == 0 || in.bytes+cost <= inboxBytes)
	if !fits {
		if l.resetLast {
			return false, false // it will be told that there is a gap here
		}
		if !p.isReset() {
			p = reset()
		}
		cost = p.cost()
	}
	l.resetLast = p.isReset()
	l.waiting++
	l.bytes += cost
	in.bytes += cost
	in.push(token{l, p})
	post = !in.posted
	in.posted = true
	return post, fits
}

// push adds a token; in.mu is held.
func (in *inbox) push(t token) {
	if in.taken >= compactFrom && in.taken*2 >= len(in.tokens) {
		n := copy(in.tokens, in.tokens[in.taken:])
		clear(in.tokens[n:])
		in.tokens, in.taken = in.tokens[:n], 0
	}
	in.tokens = append(in.tokens, t)
}

// again puts a list that is not through behind the others.
func (in *inbox) again(l *list) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.push(token{l: l})
}

// take returns the next turn. false: there is none, and the next put posts.
func (in *inbox) take() (token, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.taken == len(in.tokens) {
		in.posted = false
		return token{}, false
	}
	t := in.tokens[in.taken]
	in.tokens[in.taken] = token{}
	in.taken++
	if in.taken == len(in.tokens) {
		in.taken = 0
		in.tokens = in.tokens[:0]
		if cap(in.tokens) > keptTokens {
			in.tokens = nil
		}
	}
	return t, true
}

// delivered frees the room of a publication.
func (in *inbox) delivered(l *list, p *Publication) {
	in.mu.Lock()
	defer in.mu.Unlock()
	cost := p.cost()
	in.bytes -= cost
	l.bytes -= cost
	l.waiting--
	if l.waiting == 0 {
		l.resetLast = false
	}
}
