package admit

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dchest/siphash"
)

const (
	// shards keep cores from waiting for each other.
	shards = 256
	// maxClients bounds the table: 40 MB (TestTableMemory).
	maxClients = 1 << 20
	// maxShare is a shard's part of them.
	maxShare = maxClients / shards
	// leastShare is how many a shard holds before it looks for those that have
	// served their time.
	leastShare = 64
)

// Table is what limits have counted: for each client the time at which the next
// request would be due if they came evenly (GCRA). A client that is not in it has
// asked nothing lately. When the table is full, those go that are the least ahead
// of their rate, so that one who comes with very many addresses does not get the
// heaviest clients forgotten.
type Table struct {
	key    [2]uint64 // of the hashes
	start  time.Time
	shards [shards]shard
	caught caught
}

type shard struct {
	mu    sync.Mutex
	due   map[uint64]int64 // nanoseconds since the table's start
	bound int              // how many there may be until the next look
	_     [40]byte         // each on a cache line of its own
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{key: [2]uint64{rand.Uint64(), rand.Uint64()}, start: time.Now()}
	for i := range t.shards {
		t.shards[i] = shard{due: map[uint64]int64{}, bound: leastShare}
	}
	return t
}

// hash names what is counted. 64 bits with a key that nobody knows: among a
// million clients, two have the same in one process of 30 million.
func (t *Table) hash(limit uint64, what []byte) uint64 {
	h := siphash.Hash(t.key[0], t.key[1], what)
	h ^= limit * 0x9e3779b97f4a7c15
	h ^= h >> 32
	return h * 0xd6e8feb86659fd93
}

// take counts a request, or says how long to wait.
func (t *Table) take(key uint64, now time.Time, interval, ahead int64) time.Duration {
	at := int64(now.Sub(t.start))
	s := &t.shards[key%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	due, known := s.due[key]
	due = max(due, at)
	if wait := due - at - ahead; wait > 0 {
		return time.Duration(wait)
	}
	if !known && len(s.due) >= s.bound {
		s.sweep(at)
	}
	s.due[key] = due + interval
	return 0
}

// sweep makes room: for as many as there are again, or, where that would be too
// many, for an eighth.
func (s *shard) sweep(at int64) {
	s.keep(at)
	for horizon := int64(time.Millisecond); len(s.due) > maxShare-maxShare/8; horizon *= 4 {
		for key, due := range s.due {
			if due > at+horizon {
				continue
			}
			if delete(s.due, key); len(s.due) <= maxShare-maxShare/8 {
				break
			}
		}
	}
	s.bound = min(max(leastShare, 2*len(s.due)), maxShare)
}

// keep forgets who is due by a time. Maps do not shrink, so what is kept moves
// to one of its size.
func (s *shard) keep(after int64) {
	n := 0
	for _, due := range s.due {
		if due > after {
			n++
		}
	}
	if n == len(s.due) {
		return
	}
	kept := make(map[uint64]int64, n)
	for key, due := range s.due {
		if due > after {
			kept[key] = due
		}
	}
	s.due = kept
}

// Clients is how many are counted now.
func (t *Table) Clients() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.due)
		s.mu.Unlock()
	}
	return n
}
