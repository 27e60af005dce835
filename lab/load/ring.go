package load

// A ring is a queue of connections, by number. Each stands in it once at most,
// so that it never holds more than there are connections.
type ring struct {
	items  []int32
	queued []bool
	head   int
	count  int
}

func newRing(n int) ring { return ring{items: make([]int32, n), queued: make([]bool, n)} }

// push puts a connection at the end, unless it stands somewhere already.
func (r *ring) push(i int32) {
	if r.queued[i] {
		return
	}
	r.queued[i] = true
	at := r.head + r.count
	if at >= len(r.items) {
		at -= len(r.items)
	}
	r.items[at] = i
	r.count++
}

// pop takes the first one.
func (r *ring) pop() (i int32, ok bool) {
	if r.count == 0 {
		return 0, false
	}
	i = r.items[r.head]
	if r.head++; r.head == len(r.items) {
		r.head = 0
	}
	r.count--
	r.queued[i] = false
	return i, true
}
