package admit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"sync"
	"time"
)

const (
	// exchangeEvery is how often what was counted is told to the other machines. It
	// is for how long each machine knows nothing of what the others let pass.
	exchangeEvery = 100 * time.Millisecond
	// exchangePatience is how long they may take to answer.
	exchangePatience = time.Second
	// maxNews is how many clients are told of at once. More are limited by this machine
	// alone until the next time that they ask: a store that is slow costs memory for
	// no more than these.
	maxNews = 8192
	// newsShards keep cores from waiting for each other.
	newsShards = 16
)

// Use is what one client has used of a limit: how far its next request is put off.
type Use struct {
	Name string        // of limit and client, the same on all machines, of at most 64 bytes
	Cost time.Duration // more than zero
}

// Together adds uses to what all machines have counted, and says for each how far its
// client is ahead of its rate by now.
type Together func(ctx context.Context, uses []Use) (ahead []time.Duration, err error)

// Shared exchanges with other machines what limits have counted. Requests never wait
// for it: each machine decides by what it knows, tells the others ten times a second
// what it has let pass, and hears then what all have. While they cannot be reached, each
// machine has the whole rate.
type Shared struct {
	table  *Table
	ask    Together
	stop   context.CancelFunc
	done   chan struct{}
	shards [newsShards]struct {
		mu   sync.Mutex
		news map[uint64]*news
		_    [40]byte // each on a cache line of its own
	}
}

// news is what this machine has let pass of one client since the last exchange.
type news struct {
	use      Use
	interval int64
	n        int64
}

// Share starts the exchange, which ends with Close.
func (t *Table) Share(ask Together) *Shared {
	ctx, stop := context.WithCancel(context.Background())
	s := &Shared{table: t, ask: ask, stop: stop, done: make(chan struct{})}
	for i := range s.shards {
		s.shards[i].news = map[uint64]*news{}
	}
	go s.run(ctx) // Close waits for it
	return s
}

// Close ends the exchange.
func (s *Shared) Close() error {
	s.stop()
	<-s.done
	return nil
}

// Share makes a limit one of all machines. name is the same on all of them. Call it
// before the limit is used.
func (l *Limit) Share(s *Shared, name string) { l.shared, l.sharedName = s, name }

// note remembers a request that has passed.
func (s *Shared) note(l *Limit, key uint64, client netip.Addr, value []byte) {
	at := &s.shards[key%newsShards]
	at.mu.Lock()
	defer at.mu.Unlock()
	n := at.news[key]
	if n == nil {
		if len(at.news) >= maxNews/newsShards {
			return
		}
		n = &news{use: Use{Name: l.named(client, value)}, interval: l.interval}
		at.news[key] = n
	}
	n.n++
}

// named is the name of a client of a limit on all machines. A hash, because the value of
// a header may be a secret, and as long as it likes.
func (l *Limit) named(client netip.Addr, value []byte) string {
	b := make([]byte, 0, sha256.BlockSize)
	b = append(append(b, l.sharedName...), 0)
	switch {
	case l.together:
	case l.header != "" && len(value) > 0:
		b = append(append(b, 'h'), value...)
	default:
		var a [8]byte
		b = append(append(b, 'a'), address(&a, client)...)
	}
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

func (s *Shared) run(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(exchangeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.exchange(ctx)
		}
	}
}

// exchange tells what was counted, and takes in what all machines have.
func (s *Shared) exchange(ctx context.Context) {
	var keys []uint64
	var told []*news
	for i := range s.shards {
		at := &s.shards[i]
		at.mu.Lock()
		for key, n := range at.news {
			keys, told = append(keys, key), append(told, n)
		}
		if len(at.news) > 0 {
			at.news = map[uint64]*news{}
		}
		at.mu.Unlock()
	}
	if len(told) == 0 {
		return
	}
	uses := make([]Use, len(told))
	for i, n := range told {
		uses[i] = Use{n.use.Name, time.Duration(n.n * n.interval)}
	}
	ctx, cancel := context.WithTimeout(ctx, exchangePatience)
	defer cancel()
	ahead, err := s.ask(ctx, uses)
	if err != nil || len(ahead) != len(uses) {
		return // what was counted here counts here; the store says what is wrong with it
	}
	now := time.Now()
	for i, key := range keys {
		s.table.raise(key, now, int64(ahead[i])+s.since(key))
	}
}

// since is what this machine has let pass of a client meanwhile.
func (s *Shared) since(key uint64) int64 {
	at := &s.shards[key%newsShards]
	at.mu.Lock()
	defer at.mu.Unlock()
	if n := at.news[key]; n != nil {
		return n.n * n.interval
	}
	return 0
}
