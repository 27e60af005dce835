package upstream

import "time"

// maxOpenings bounds how often the time that a breaker stays open doubles:
// 5s, 10s, 20s, 40s. Longer would outlast most repairs.
const maxOpenings = 3

// breaker keeps requests from a server that fails most of them (the circuit
// breaker of Nygard, Release It!, 2nd ed., 5.5): closed, all pass; open, none;
// half-open, one, whose result decides. It is guarded by Pool.mu.
type breaker struct {
	limits   Breaker
	results  window        // cell 0: successes, cell 1: failures
	until    time.Duration // while open; 0: closed
	openings int           // in a row, at most maxOpenings
	probing  bool          // half-open, and the one request is under way
}

func (b *breaker) isOpen() bool { return b.until != 0 }

// calm reports whether no result of this request is waited for.
func (b *breaker) calm() bool { return b.until == 0 }

// admits reports whether a request may pass.
func (b *breaker) admits(now time.Duration) bool {
	return b.until == 0 || now >= b.until && !b.probing
}

// enter notes that a request passes, and reports whether it is the probe.
func (b *breaker) enter() bool {
	if b.until == 0 {
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
			return true
		case failed:
			b.open(now)
		}
		return false
	}
	switch o {
	case succeeded:
		b.results.add(now, 0)
	case failed:
		b.results.add(now, 1)
		good, bad := b.results.counts(now)
		if total := good + bad; total >= uint64(b.limits.Requests) && bad*100 >= total*uint64(b.limits.Failures) {
			b.open(now)
			return true
		}
	}
	return false
}

func (b *breaker) open(now time.Duration) {
	b.until = now + b.limits.Open<<b.openings
	b.openings = min(b.openings+1, maxOpenings)
}
