package worker

// The budget of a pool, Options.Memory, is for its whole tree of processes:
// workers that convert, the commands they run, and workers that are idle.
//
// Whoever calls Convert says what a conversion is predicted to take, and sees to
// it that all that run at once are predicted to fit. Before one begins, idle
// workers end, the longest idle first, until there is room (makeRoom). While it
// runs, its prediction is the soft limit of its heap. Predictions can be wrong,
// so what all of them really take is looked at every watchEvery: beyond the
// budget idle workers end, and then the one that exceeds its prediction the most
// (overBudget).

// makeRoom ends idle workers until the others leave room for another needs
// bytes, or none is idle; p.mu is held.
func (p *Pool) makeRoom(needs int64) {
	total := needs
	for w, idle := range p.all {
		if idle {
			w.taking = resident(w.cmd.Process.Pid)
			total += w.taking
		} else {
			total += w.needs
		}
	}
	for total > p.o.Memory {
		w := p.longestIdle()
		if w == nil {
			return
		}
		total -= w.taking
		p.endIdle(w)
	}
}

// longestIdle is the first worker to end, or nil; p.mu is held. Those for the
// background go first: nobody waits for their next image.
func (p *Pool) longestIdle() *process {
	for _, kind := range []int{background, foreground} {
		if len(p.idle[kind]) > 0 {
			return p.idle[kind][0]
		}
	}
	return nil
}

// overBudget reports whether a worker that takes n bytes now has to end, because
// all of them take more than they may and it is the one that exceeds its
// prediction the most.
func (p *Pool) overBudget(w *process, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.taking = n
	total, worst := int64(0), w
	for other, idle := range p.all {
		total += other.taking
		if !idle && other.taking-other.needs > worst.taking-worst.needs {
			worst = other
		}
	}
	if total <= p.o.Memory || n <= w.needs {
		return false
	}
	if idle := p.longestIdle(); idle != nil {
		p.endIdle(idle) // that may be enough, as the next look will show
		return false
	}
	return worst == w
}
