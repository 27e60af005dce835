package admit

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dchest/siphash"
)

const (
	// shards is how many parts the table has, so that cores rarely wait for each other.
	shards = 256
	// maxClients bounds the table: 32 MiB (TestTableMemory).
	maxClients = 1 << 20
	// maxShare is the most clients of a shard.
	maxShare = maxClients / shards
	// firstShare is the size of a shard at first: most servers have no limits.
	// leastShare is its smallest size after that.
	firstShare = 8
	leastShare = 64
)

// Table is what limits have counted: for each client the time at which the next
// request would be due if they came evenly (GCRA). A client that is not in it has
// asked nothing lately. When the table is full, the clients are evicted that are the
// least ahead of their rate, so that an attacker with very many addresses cannot have the
// heaviest clients forgotten.
type Table struct {
	key    [2]uint64 // of the hashes
	start  time.Time
	shards [shards]shard
	caught caught
}

// shard is a part of the table, with open addressing: a request finds its client and
// counts it in the same place, which a map looks for twice.
type shard struct {
	mu    sync.Mutex
	cells []cell   // a power of two, at most half of them taken
	n     int      // how many are
	_     [24]byte // each shard on a cache line of its own
}

// cell is a client.
type cell struct {
	key uint64 // a hash; 0: the cell is free
	due int64  // nanoseconds since the table's start
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{key: [2]uint64{rand.Uint64(), rand.Uint64()}, start: time.Now()}
	for i := range t.shards {
		t.shards[i].cells = make([]cell, 2*firstShare)
	}
	return t
}

// hash returns the key of a client: 64 bits with a secret seed. Among a million clients,
// two have the same key in one process of 30 million.
func (t *Table) hash(limit uint64, what []byte) uint64 {
	h := siphash.Hash(t.key[0], t.key[1], what)
	h ^= limit * 0x9e3779b97f4a7c15
	h ^= h >> 32
	return max(1, h*0xd6e8feb86659fd93)
}

// of returns the shard of a client.
func (t *Table) of(key uint64) *shard { return &t.shards[key%shards] }

// take counts a request, or returns how long to wait.
func (t *Table) take(key uint64, now time.Time, interval, ahead int64) time.Duration {
	at := int64(now.Sub(t.start))
	s := t.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(key)
	due := max(c.due, at)
	if wait := due - at - ahead; wait > 0 {
		return time.Duration(wait)
	}
	s.put(c, key, at, due+interval)
	return 0
}

// wait is how long a request would have to wait, without counting it.
func (t *Table) wait(key uint64, now time.Time, ahead int64) time.Duration {
	at := int64(now.Sub(t.start))
	s := t.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(max(0, s.find(key).due-at-ahead))
}

// raise sets how far a client is ahead of its rate, if other machines know more of its
// requests than this one.
func (t *Table) raise(key uint64, now time.Time, ahead int64) {
	at := int64(now.Sub(t.start))
	s := t.of(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(key); at+ahead > c.due {
		s.put(c, key, at, at+ahead)
	}
}

// find returns the cell of a client, or the free one for it. At least half of the cells are
// free, so the search ends. The lowest bits of all keys of a shard are the same.
func (s *shard) find(key uint64) *cell {
	last := uint64(len(s.cells) - 1)
	for i := key / shards; ; i++ {
		if c := &s.cells[i&last]; c.key == key || c.key == 0 {
			return c
		}
	}
}

// put writes into the cell that find has returned.
func (s *shard) put(c *cell, key uint64, at, due int64) {
	if c.key == 0 {
		if s.n >= len(s.cells)/2 {
			s.sweep(at)
			c = s.find(key)
		}
		c.key = key
		s.n++
	}
	c.due = due
}

// sweep makes room: it evicts clients whose time is over, and resizes the shard to twice
// the clients that are left. Where these are too many, it also evicts an eighth of them.
func (s *shard) sweep(at int64) {
	const most = maxShare - maxShare/8
	left := s.after(at)
	spare := 0 // how many are forgotten of those that are due between at and horizon
	horizon := at
	for step := int64(time.Millisecond); left-spare > most; step *= 4 {
		horizon = at + step
		spare = min(left-s.after(horizon), left-most)
	}
	old, size := s.cells, 2*leastShare
	for size < min(4*(left-spare), 2*maxShare) {
		size *= 2
	}
	s.cells, s.n = make([]cell, size), 0
	for _, c := range old {
		switch {
		case c.key == 0 || c.due <= at:
		case c.due <= horizon && spare > 0:
			spare--
		default:
			*s.find(c.key) = c
			s.n++
		}
	}
}

// after returns how many clients are due later.
func (s *shard) after(at int64) (n int) {
	for _, c := range s.cells {
		if c.key != 0 && c.due > at {
			n++
		}
	}
	return n
}

// Clients returns how many clients are in the table.
func (t *Table) Clients() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += s.n
		s.mu.Unlock()
	}
	return n
}
