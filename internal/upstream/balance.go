package upstream

import (
	"math/bits"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// set is some of a pool's servers, by index.
type set uint64

func (s set) with(server *server) set { return s | 1<<server.index }
func (s set) len() int                { return bits.OnesCount64(uint64(s)) }

// balancer chooses one of at least two candidates, all of which have room. It
// is called with Pool.mu held.
type balancer func(p *Pool, now time.Duration, candidates []*server, what demand) *server

// balancers are the values of Options.Balance.
var balancers = map[string]balancer{
	"round_robin":       roundRobin,
	"least_connections": leastConnections,
	"two_choices":       twoChoices,
	"hash":              rendezvous,
}

// roundRobin takes the next one by index, so that a server which comes back
// does not shift the others' turns.
func roundRobin(p *Pool, _ time.Duration, candidates []*server, _ demand) *server {
	next := candidates[0]
	for _, s := range candidates {
		if s.index >= p.turn {
			next = s
			break
		}
	}
	p.turn = next.index + 1
	return next
}

// load is how many requests a server is working on; for a request that will
// become a stream, its streams count as well.
func (s *server) load(what demand) int {
	if what.stream {
		return s.running + s.streams
	}
	return s.running
}

// leastConnections takes the one with the least load, a random one of several.
func leastConnections(_ *Pool, _ time.Duration, candidates []*server, what demand) *server {
	var best *server
	ties := 0
	for _, s := range candidates {
		switch {
		case best == nil || s.load(what) < best.load(what):
			best, ties = s, 1
		case s.load(what) == best.load(what):
			if ties++; rand.IntN(ties) == 0 {
				best = s
			}
		}
	}
	return best
}

// twoChoices takes the better of two random ones (Mitzenmacher, The Power of
// Two Choices in Randomized Load Balancing, IEEE TPDS 12(10), 2001): nearly as
// even as the best of all, without all requests of a moment running to the
// same one. For a stream the load counts first: how fast a server
// accepts one says little about what thousands of them cost it.
func twoChoices(_ *Pool, now time.Duration, candidates []*server, what demand) *server {
	i := rand.IntN(len(candidates))
	j := rand.IntN(len(candidates) - 1)
	if j >= i {
		j++
	}
	a, b := candidates[i], candidates[j]
	if la, lb := a.load(what), b.load(what); what.stream && la != lb {
		if lb < la {
			return b
		}
		return a
	}
	if b.cost(now) < a.cost(now) {
		return b
	}
	return a
}

// unknownCost is the cost, in nanoseconds, of a server that has requests but has
// never answered: more than any latency, so that it is not flooded before its
// speed is known.
const unknownCost = float64(time.Hour)

// cost is the latency that a further request may expect (see ewma).
func (s *server) cost(now time.Duration) float64 {
	l := s.latency.value(now)
	if l == 0 && s.running > 0 {
		return unknownCost + float64(s.running)
	}
	return l * float64(s.running+1)
}

// rendezvous takes the one with the highest hash of key and server (Thaler and
// Ravishankar, Using Name-Based Mappings to Increase Hit Rates, IEEE/ACM ToN
// 6(1), 1998): when one goes, only its keys move. One with more than 1.25 times
// the average load is passed over (Mirrokni, Thorup and Zadimoghaddam,
// Consistent Hashing with Bounded Loads, SODA 2018), so a popular key cannot
// sink its server. Streams do not count as load here: few of them would already part
// those with the same key, such as the visitors of one room.
func rendezvous(_ *Pool, _ time.Duration, candidates []*server, what demand) *server {
	total := 1
	for _, s := range candidates {
		total += s.running
	}
	most := (total*5 + 4*len(candidates) - 1) / (4 * len(candidates)) // ceil(1.25 * total / n)
	var best *server
	var highest uint64
	for _, s := range candidates {
		if h := mix(what.key ^ s.seed); s.running < most && (best == nil || h > highest) {
			best, highest = s, h
		}
	}
	return best // never nil: not all can be above the average
}

// fnv1a is the 64-bit FNV-1a hash (Fowler, Noll and Vo): the same on every machine and
// after every restart, so that keys keep their servers. Colliding keys gain an attacker
// nothing: the load of their server is bounded.
func fnv1a[T string | []byte](s T) uint64 { return fnv1aOn(14695981039346656037, s) }

// fnv1aOn goes on with a hash.
func fnv1aOn[T string | []byte](h uint64, s T) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads the bits of h: the finalizer of MurmurHash3 (Appleby).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// hashKey says what a request is hashed by, as Options.HashBy does.
type hashKey struct{ kind, name string }

func newHashKey(by string) hashKey {
	kind, name, _ := strings.Cut(by, ":")
	if kind == "header" {
		name = http.CanonicalHeaderKey(name)
	}
	return hashKey{kind, name}
}
