package upstream

import "time"

// maxOpenings bounds how often the time that a breaker stays open doubles:
// 5s, 10s, 20s, 40s. Longer would outlast most repairs.
const maxOpenings = 3

// breaker keeps requests from a server that fails most of them (the circuit
// breaker of Nygard, Release It!, 2nd ed., 5.5): closed, all pass; open, none;
// half-open, one, whose result decides. It is guarded by Pool.mu.
//
// A request that fails after it was sent may itself be the cause: a page that crashes
// the application. So where a breaker is open for such requests, too (mild), its server
// is asked nevertheless as long as there is no other; the breaker of the only server
// counts refusals alone.
type breaker struct {
	limits   Breaker
	results  window        // cell 0: successes, cell 1: failures
	refusals window        // cell 1: those of them before the request was sent
	mild     bool          // open, but not for refusals
	until    time.Duration // while open; 0: closed
	openings int           // in a row, at most maxOpenings
	probing  bool          // half-open, and the one request is under way
}

func newBreaker(limits Breaker) breaker {
	counts := window{cell: limits.Window / windowCells}
	return breaker{limits: limits, results: counts, refusals: counts}
}

func (b *breaker) isOpen() bool { return b.until != 0 }

// isClosed reports whether the breaker is closed: then the result of a single request
// decides nothing.
func (b *breaker) isClosed() bool { return b.until == 0 }

// admits reports whether a request may pass.
func (b *breaker) admits(now time.Duration) bool {
	return b.until == 0 || now >= b.until && !b.probing
}

// enter notes that a request passes, and reports whether it is the probe.
func (b *breaker) enter(now time.Duration) bool {
	if b.until == 0 || !b.admits(now) {
		return false
	}
	b.probing = true
	return true
}

// result takes in how a request ended and reports whether the breaker has
// changed. Requests that were under way when it opened do not count.
func (b *breaker) result(now time.Duration, probe bool, o outcome) (changed bool) {
	if b.limits.Off {
		return false
	}
	if b.until != 0 {
		if !probe {
			return false
		}
		b.probing = false
		switch o {
		case succeeded:
			b.until, b.openings = 0, 0
			b.results.clear()
			b.refusals.clear()
			return true
		case failed, unreached:
			b.mild = o == failed
			b.open(now)
		}
		return false
	}
	switch o {
	case succeeded:
		b.results.add(now, 0)
	case failed, unreached:
		b.results.add(now, 1)
		if o == unreached {
			b.refusals.add(now, 1)
		}
		good, bad := b.results.counts(now)
		if total := good + bad; b.tooMany(bad, total) {
			_, refusals := b.refusals.counts(now)
			b.mild = !b.tooMany(refusals, total)
			b.open(now)
			return true
		}
	}
	return false
}

// tooMany reports whether so many failures of all requests open it.
func (b *breaker) tooMany(failures, all uint64) bool {
	return all >= uint64(b.limits.Requests) && failures*100 >= all*uint64(b.limits.Failures)
}

func (b *breaker) open(now time.Duration) {
	b.until = now + b.limits.Open<<b.openings
	b.openings = min(b.openings+1, maxOpenings)
}
