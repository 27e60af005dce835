package upstream

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	// maxWeight is the largest of Options.Weights.
	maxWeight = 1000
	// coldest is the part of its weight that a server begins with after it has
	// come back: not so little that nobody would notice that it fails again.
	coldest = 0.1
)

// weighted are the balancers for servers that do not all get the same.
var weighted = map[string]balancer{
	"round_robin":       weightedRoundRobin,
	"least_connections": weightedConnections,
	"two_choices":       weightedChoices,
	"hash":              weightedRendezvous,
}

func (o Options) checkWeights(faults map[string]error) {
	if n := len(o.Weights); n > 0 && n != len(o.To) {
		faults["weights"] = fmt.Errorf("there are %d weights and %d addresses: write one for each, in their order", n, len(o.To))
	}
	for i, w := range o.Weights {
		if w < 1 || w > maxWeight {
			faults[fmt.Sprintf("weights[%d]", i)] = fmt.Errorf("%d is not a weight: write one from 1 to %d", w, maxWeight)
		}
	}
	if o.SlowStart > 0 && len(o.To) == 1 {
		faults["slow_start"] = errors.New("the only server gets all requests")
	}
}

// share is the server's weight at a time.
func (s *server) share(now time.Duration) float64 {
	w := s.weight
	slow := s.options.SlowStart
	if back := max(s.back, s.ejectedUntil); slow > 0 && back > 0 && now-back < slow {
		w *= max(coldest, float64(now-back)/float64(slow))
	}
	return w
}

// weightedRoundRobin spreads each server's turns evenly: all gain what their
// weight is, and the richest pays for its turn.
func weightedRoundRobin(_ *Pool, now time.Duration, candidates []*server, _ demand) *server {
	var best *server
	total := 0.0
	for _, s := range candidates {
		w := s.share(now)
		total += w
		if s.credit += w; best == nil || s.credit > best.credit {
			best = s
		}
	}
	best.credit -= total
	return best
}

// weightedConnections is leastConnections by the load for each unit of weight.
func weightedConnections(_ *Pool, now time.Duration, candidates []*server, what demand) *server {
	var best *server
	var least float64
	ties := 0
	for _, s := range candidates {
		load := float64(s.load(what)+1) / s.share(now)
		switch {
		case best == nil || load < least:
			best, least, ties = s, load, 1
		case load == least:
			if ties++; rand.IntN(ties) == 0 {
				best = s
			}
		}
	}
	return best
}

// weightedChoices is twoChoices, where a server of twice the weight is looked at
// twice as often and may have twice the load.
func weightedChoices(_ *Pool, now time.Duration, candidates []*server, what demand) *server {
	a := byWeight(now, candidates, nil)
	b := byWeight(now, candidates, a)
	wa, wb := a.share(now), b.share(now)
	if what.stream {
		if la, lb := float64(a.load(what)+1)/wa, float64(b.load(what)+1)/wb; la != lb {
			if lb < la {
				return b
			}
			return a
		}
	}
	if b.cost(now)/wb < a.cost(now)/wa {
		return b
	}
	return a
}

// byWeight is a random server other than not.
func byWeight(now time.Duration, candidates []*server, not *server) (one *server) {
	total := 0.0
	for _, s := range candidates {
		if s != not {
			total += s.share(now)
		}
	}
	at := rand.Float64() * total
	for _, s := range candidates {
		if s == not {
			continue
		}
		one = s
		if at -= s.share(now); at < 0 {
			break
		}
	}
	return one
}

// weightedRendezvous is rendezvous with scores that give each server keys in
// proportion to its weight, and a bound of its load that is so as well
// (Schindelhauer and Schomaker, Weighted Distributed Hash Tables, SPAA 2005).
func weightedRendezvous(_ *Pool, now time.Duration, candidates []*server, what demand) *server {
	running, total := 1, 0.0
	for _, s := range candidates {
		running += s.running
		total += s.share(now)
	}
	var best *server
	var highest float64
	for _, s := range candidates {
		w := s.share(now)
		u := (float64(mix(what.key^s.seed)>>11) + 0.5) / (1 << 53)
		score := -w / math.Log(u)
		if float64(s.running) < math.Ceil(1.25*float64(running)*w/total) && (best == nil || score > highest) {
			best, highest = s, score
		}
	}
	return best // never nil: not all can be above their part
}
