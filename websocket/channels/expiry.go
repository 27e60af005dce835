package channels

import (
	"container/heap"
	"sync"
	"time"
)

// noSlot is the slot of what never ends.
const noSlot = -1

// longestSleep is after how long the clock is looked at again: grants end by
// the time of day, which may be set.
const longestSleep = time.Minute

// expiry ends sessions, and subscriptions with tokens of their own, at the moment at
// which their grants end. Each has a slot, which is its place in the heap and belongs to
// expiry. It has one timer for all, on a goroutine that newExpiry starts and close waits for. Commands check the
// time themselves, so nothing is done with a grant that has ended; deliveries in the
// moment until the connection is closed are not checked again.
type expiry struct {
	wake chan struct{} // the first one may be another
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	heap expiring
}

type ending struct {
	at   time.Time
	slot *int32
	end  func()
}

func newExpiry() *expiry {
	e := &expiry{wake: make(chan struct{}, 1), stop: make(chan struct{})}
	e.done.Go(e.run)
	return e
}

// set has end called when a grant ends, once. It replaces what was set for the slot
// before.
func (e *expiry) set(slot *int32, at time.Time, end func()) {
	e.mu.Lock()
	if *slot == noSlot {
		heap.Push(&e.heap, ending{at, slot, end})
	} else {
		e.heap[*slot] = ending{at, slot, end}
		heap.Fix(&e.heap, int(*slot))
	}
	first := *slot == 0
	e.mu.Unlock()
	if first {
		select {
		case e.wake <- struct{}{}:
		default: // it wakes already
		}
	}
}

// remove forgets a slot.
func (e *expiry) remove(slot *int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if *slot != noSlot {
		heap.Remove(&e.heap, int(*slot))
	}
}

func (e *expiry) run() {
	timer := time.NewTimer(longestSleep)
	defer timer.Stop()
	for {
		timer.Reset(e.sweep())
		select {
		case <-timer.C:
		case <-e.wake:
		case <-e.stop:
			return
		}
	}
}

// sweep ends those that are due, and returns how long none is due after that.
func (e *expiry) sweep() time.Duration {
	for {
		e.mu.Lock()
		if len(e.heap) == 0 {
			e.mu.Unlock()
			return longestSleep
		}
		if left := time.Until(e.heap[0].at); left > 0 {
			e.mu.Unlock()
			return min(left, longestSleep)
		}
		x := heap.Pop(&e.heap).(ending)
		e.mu.Unlock()
		x.end()
	}
}

func (e *expiry) close() {
	close(e.stop)
	e.done.Wait()
}

// expiring is a heap: see [heap.Interface]. Slots say where in it they are.
type expiring []ending

func (h expiring) Len() int           { return len(h) }
func (h expiring) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h expiring) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].slot, *h[j].slot = int32(i), int32(j)
}

// Push implements [heap.Interface].
func (h *expiring) Push(x any) {
	e := x.(ending)
	*e.slot = int32(len(*h))
	*h = append(*h, e)
}

// Pop implements [heap.Interface].
func (h *expiring) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = ending{}
	*h = (*h)[:last]
	*e.slot = noSlot
	return e
}
