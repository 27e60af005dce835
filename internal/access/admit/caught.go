package admit

import (
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	// caughtSets × caughtWays addresses are remembered: 512 KiB.
	caughtSets = 1 << 14
	caughtWays = 4
	// caughtBits are those of a deadline, in seconds: half a year of uptime.
	caughtBits = 24
	maxCaught  = 1<<caughtBits - 1
)

// caught has the addresses that have requested a trap, each until a deadline. A lookup
// takes no lock: each entry is one word, the remaining bits of the address's hash above
// the deadline in seconds. The hash has a secret seed, so an attacker cannot choose
// addresses that evict others. Where a set is full, the entry with the earliest deadline
// is evicted.
type caught struct {
	last atomic.Int64 // the latest deadline: after it no address is caught
	sets [caughtSets][caughtWays]atomic.Uint64
}

// has reports whether a hash is caught at that second.
func (c *caught) has(hash uint64, second int64) bool {
	set := &c.sets[hash%caughtSets]
	for i := range set {
		if word := set[i].Load(); word>>caughtBits == hash>>caughtBits && int64(word&maxCaught) > second {
			return true
		}
	}
	return false
}

// add catches a hash until a second.
func (c *caught) add(hash uint64, second, until int64) {
	until = min(until, maxCaught)
	set := &c.sets[hash%caughtSets]
	place := &set[0]
	for i := range set {
		word := set[i].Load()
		if word>>caughtBits == hash>>caughtBits || int64(word&maxCaught) <= second {
			place = &set[i]
			break
		}
		if word&maxCaught < place.Load()&maxCaught {
			place = &set[i]
		}
	}
	place.Store(hash>>caughtBits<<caughtBits | uint64(until))
	for last := c.last.Load(); until > last && !c.last.CompareAndSwap(last, until); last = c.last.Load() {
	}
}

// all are those that are caught at a second. Of their hashes the bits are left out
// that nobody looks at.
func (c *caught) all(second int64) (list []saved) {
	if second >= c.last.Load() {
		return nil
	}
	for i := range c.sets {
		for j := range c.sets[i] {
			word := c.sets[i][j].Load()
			if left := int64(word&maxCaught) - second; left > 0 {
				list = append(list, saved{word>>caughtBits<<caughtBits | uint64(i), time.Duration(left) * time.Second})
			}
		}
	}
	return list
}

// Caught reports whether a client is caught: it has requested a trap of late.
func (t *Table) Caught(client netip.Addr, now time.Time) bool {
	second := int64(now.Sub(t.start) / time.Second)
	if second >= t.caught.last.Load() || !client.IsValid() {
		return false
	}
	return t.caught.has(t.client(client), second)
}

// Catch marks a client as caught for a time.
func (t *Table) Catch(client netip.Addr, now time.Time, lasts time.Duration) {
	second := int64(now.Sub(t.start) / time.Second)
	t.caught.add(t.client(client), second, second+1+int64(lasts/time.Second))
}

// client returns the address or network that is caught for an address.
func (t *Table) client(a netip.Addr) uint64 {
	var b [8]byte
	return t.hash(0, address(&b, a))
}
