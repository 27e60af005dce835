package admit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// exchangeEvery is how often what was counted is told to the other machines. It
	// is for how long each machine knows nothing of what the others let pass unasked.
	exchangeEvery = 100 * time.Millisecond
	// exchangePatience is how long they may take to answer.
	exchangePatience = time.Second
	// borrowPatience is how long a request waits for what it borrows. Then this machine
	// decides alone, until the others answer again.
	borrowPatience = 250 * time.Millisecond
	// unaskedShare is the part of a burst that each machine lets pass between two
	// exchanges without asking: a twentieth, at least one request.
	unaskedShare = 20
	// maxNews is how many clients are told of at once. More are limited by this machine
	// alone until the next time that they ask: a store that is slow costs memory for
	// no more than these.
	maxNews = 8192
	// newsShards keep cores from waiting for each other.
	newsShards = 16
)

// Use is what one client has used of a limit, and what it wants to use.
type Use struct {
	Name string        // of limit and client, the same on all machines, of at most 64 bytes
	Cost time.Duration // how far what it has used puts off its next request; less than zero: it has used less than was borrowed
	// Want is how many requests are to be borrowed; fewer are granted where the limit has
	// no more: each puts the next one off by Interval, and none is put off by more than
	// Ahead.
	Want            int64
	Interval, Ahead time.Duration
}

// Status is how a client stands after a Use.
type Status struct {
	Ahead   time.Duration // of its rate, by all that was used and borrowed
	Granted int64         // of Want
}

// Together adds uses to what all machines have counted, and says how each client stands
// then.
type Together func(ctx context.Context, uses []Use) ([]Status, error)

// Shared makes limits those of all machines. A burst is the group's: each machine lets a
// twentieth of it pass unasked, and tells the others ten times a second; more it borrows
// before it lets that pass, some requests ahead, and gives back what nobody has used. For
// example, three machines with a burst of 20 let at most 23 requests pass at once.
//
// A request waits for what it borrows, where it may, for a round trip to the store. Who is
// known to have used up the limit is refused at once. While the store cannot be reached,
// each machine has the whole rate.
type Shared struct {
	table  *Table
	ask    Together
	stop   context.CancelFunc
	ended  sync.WaitGroup
	wake   chan struct{} // something is to be borrowed
	alone  atomic.Bool   // the store has not answered
	shards [newsShards]struct {
		mu   sync.Mutex
		news map[uint64]*news
		_    [40]byte // each on a cache line of its own
	}
}

// news is what this machine knows of one client and the others do not, or not yet.
type news struct {
	use     Use   // without Cost and Want
	unasked int64 // requests that have passed without asking, since the last exchange
	untold  int64 // those of them that nobody was told of
	lent    int64 // borrowed, and not used
	want    int64 // to be borrowed
	// done is closed when what waits for it has been borrowed, or cannot be; nil: nobody waits.
	done chan struct{}
}

// Share starts the exchange, which ends with Close.
func (t *Table) Share(ask Together) *Shared {
	ctx, stop := context.WithCancel(context.Background())
	s := &Shared{table: t, ask: ask, stop: stop, wake: make(chan struct{}, 1)}
	for i := range s.shards {
		s.shards[i].news = map[uint64]*news{}
	}
	s.ended.Go(func() { s.run(ctx) }) // Close waits for both
	s.ended.Go(func() { s.borrow(ctx) })
	return s
}

// Close ends the exchange.
func (s *Shared) Close() error {
	s.stop()
	s.ended.Wait()
	return nil
}

// Share makes a limit one of all machines. name is the same on all of them. Call it
// before the limit is used.
func (l *Limit) Share(s *Shared, name string) {
	l.shared, l.sharedName = s, name
	l.unasked = max(1, (l.ahead/l.interval+1)/unaskedShare)
}

// of returns what is known of a client of a limit, nil for nothing. The shard's mu must be
// held.
func (s *Shared) of(l *Limit, key uint64, client netip.Addr, value []byte) *news {
	at := &s.shards[key%newsShards]
	n := at.news[key]
	if n == nil && len(at.news) < maxNews/newsShards {
		n = &news{use: Use{Name: l.named(client, value), Interval: time.Duration(l.interval), Ahead: time.Duration(l.ahead)}}
		at.news[key] = n
	}
	return n
}

// mustBorrow reports whether a request of a client has to borrow.
func (s *Shared) mustBorrow(l *Limit, key uint64, now time.Time) bool {
	at := &s.shards[key%newsShards]
	at.mu.Lock()
	defer at.mu.Unlock()
	n := at.news[key]
	return n != nil && n.lent == 0 && n.unasked >= l.unasked && !s.alone.Load() && s.table.wait(key, now, l.ahead) == 0
}

// take counts a request, or says how long its client has to wait. What has to be borrowed is
// waited for; where it may not be, the request is not counted, and later is true.
func (s *Shared) take(l *Limit, key uint64, client netip.Addr, value []byte, now time.Time, waits bool) (wait time.Duration, later bool) {
	wait, done := s.tryTake(l, key, client, value, now)
	if done == nil || !waits {
		return wait, done != nil
	}
	late := time.NewTimer(borrowPatience)
	defer late.Stop()
	for done != nil {
		select {
		case <-done:
			wait, done = s.tryTake(l, key, client, value, now)
		case <-late.C:
			s.alone.Store(true)
			return s.table.take(key, now, l.interval, l.ahead), false
		}
	}
	return wait, false
}

// tryTake is take, up to where something must be waited for: done is closed after that.
func (s *Shared) tryTake(l *Limit, key uint64, client netip.Addr, value []byte, now time.Time) (wait time.Duration, done <-chan struct{}) {
	at := &s.shards[key%newsShards]
	at.mu.Lock()
	defer at.mu.Unlock()
	n := s.of(l, key, client, value)
	switch {
	case n != nil && n.lent > 0:
		n.lent--
		return 0, nil
	case n == nil || n.unasked < l.unasked || s.alone.Load():
		if wait = s.table.take(key, now, l.interval, l.ahead); wait == 0 && n != nil {
			n.unasked++
			n.untold++
		}
		return wait, nil
	}
	if wait = s.table.wait(key, now, l.ahead); wait > 0 {
		return wait, nil
	}
	n.want++
	if n.done == nil {
		n.done = make(chan struct{})
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return 0, n.done
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

// run tells the others, again and again, what was let pass unasked.
func (s *Shared) run(ctx context.Context) {
	tick := time.NewTicker(exchangeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.exchange(ctx, s.notices())
		}
	}
}

// borrow borrows for those who wait.
func (s *Shared) borrow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.exchange(ctx, s.wanted())
		}
	}
}

// notice is a client of an exchange.
type notice struct {
	key  uint64
	use  Use
	done chan struct{} // closed when that is over; nil: nobody waits
}

// notices takes what is to be told of all clients that nobody waits for. What was borrowed and
// not used is given back, and each may let something pass unasked again.
func (s *Shared) notices() (all []notice) {
	for i := range s.shards {
		at := &s.shards[i]
		at.mu.Lock()
		for key, n := range at.news {
			if n.done != nil { // lend is about to tell
				n.unasked = 0
				continue
			}
			use := n.use
			if use.Cost = time.Duration(n.untold-n.lent) * use.Interval; use.Cost != 0 {
				all = append(all, notice{key: key, use: use})
			}
			delete(at.news, key)
		}
		at.mu.Unlock()
	}
	return all
}

// wanted takes what is to be borrowed: what is waited for, and some more requests ahead.
func (s *Shared) wanted() (all []notice) {
	for i := range s.shards {
		at := &s.shards[i]
		at.mu.Lock()
		for key, n := range at.news {
			if n.done == nil {
				continue
			}
			use := n.use
			use.Cost = time.Duration(n.untold) * use.Interval
			use.Want = n.want + max(1, int64(use.Ahead/use.Interval+1)/unaskedShare)
			all = append(all, notice{key, use, n.done})
			n.untold, n.want, n.done = 0, 0, nil
		}
		at.mu.Unlock()
	}
	return all
}

// exchange tells the others, and takes in how their clients stand.
func (s *Shared) exchange(ctx context.Context, all []notice) {
	if len(all) == 0 {
		return
	}
	defer func() {
		for _, one := range all {
			if one.done != nil {
				close(one.done)
			}
		}
	}()
	uses := make([]Use, len(all))
	for i := range all {
		uses[i] = all[i].use
	}
	ctx, cancel := context.WithTimeout(ctx, exchangePatience)
	defer cancel()
	standings, err := s.ask(ctx, uses)
	if err != nil || len(standings) != len(uses) {
		s.alone.Store(true) // what was counted here counts here; the store says what is wrong with it
		return
	}
	s.alone.Store(false)
	now := time.Now()
	for i, one := range all {
		s.learn(one, standings[i], now)
	}
}

// learn takes in how a client stands.
func (s *Shared) learn(one notice, is Status, now time.Time) {
	at := &s.shards[one.key%newsShards]
	at.mu.Lock()
	defer at.mu.Unlock()
	n := at.news[one.key]
	if n == nil && is.Granted > 0 {
		n = &news{use: Use{Name: one.use.Name, Interval: one.use.Interval, Ahead: one.use.Ahead}}
		at.news[one.key] = n
	}
	ahead := int64(is.Ahead)
	if n != nil {
		n.lent += is.Granted
		ahead += n.untold * int64(n.use.Interval)
	}
	s.table.raise(one.key, now, ahead)
}
