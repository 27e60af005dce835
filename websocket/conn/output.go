package conn

import (
	"sync"
)

// output is what waits for a socket that takes no more.
type output struct {
	chunks []chunk
	first  int    // the chunk that goes next
	skip   int    // bytes of it that have gone
	bytes  int    // that wait
	length int    // messages that others have sent, and that wait
	shared int    // bytes of those; all of the first's until it has gone
	since  uint32 // tick of the last progress
}

// chunk is a part of the output: what was collected in a turn, or a message
// that was prepared for many, which is theirs, too.
type chunk struct {
	b       []byte
	message bool
}

// outputPool keeps what slow connections need now and then.
var outputPool = sync.Pool{New: func() any { return &output{} }}

func (o *output) push(b []byte, message bool) {
	o.chunks = append(o.chunks, chunk{b, message})
	o.bytes += len(b)
	if message {
		o.length++
		o.shared += len(b)
	}
}

// advance takes note that n bytes have gone.
func (o *output) advance(n int) {
	o.bytes -= n
	n += o.skip
	for o.first < len(o.chunks) && n >= len(o.chunks[o.first].b) {
		n -= len(o.chunks[o.first].b)
		if o.chunks[o.first].message {
			o.length--
			o.shared -= len(o.chunks[o.first].b)
		}
		o.chunks[o.first] = chunk{}
		o.first++
	}
	o.skip = n
	if o.first == len(o.chunks) {
		o.chunks, o.first = o.chunks[:0], 0
	} else if o.first > 64 && o.first > len(o.chunks)/2 {
		n := copy(o.chunks, o.chunks[o.first:])
		clear(o.chunks[n:])
		o.chunks, o.first = o.chunks[:n], 0
	}
}

// dropOldest forgets the message that waits longest and has not begun to go.
// It reports false if there is none.
func (o *output) dropOldest() bool {
	for i := o.first; i < len(o.chunks); i++ {
		if !o.chunks[i].message || i == o.first && o.skip > 0 {
			continue
		}
		o.bytes -= len(o.chunks[i].b)
		o.shared -= len(o.chunks[i].b)
		o.length--
		copy(o.chunks[i:], o.chunks[i+1:])
		o.chunks[len(o.chunks)-1] = chunk{}
		o.chunks = o.chunks[:len(o.chunks)-1]
		return true
	}
	return false
}

// maxOutputKept is the largest list of chunks that goes back to the pool.
const maxOutputKept = 256

func putOutput(o *output) {
	clear(o.chunks)
	if cap(o.chunks) > maxOutputKept {
		return
	}
	*o = output{chunks: o.chunks[:0]}
	outputPool.Put(o)
}

// account keeps the gauges in step with an output that changed by so much.
func (s *Settings) account(bytes, messages int) {
	if bytes != 0 {
		s.Meters.QueuedBytes.Add(int64(bytes))
	}
	if messages != 0 {
		s.Meters.QueuedMessages.Add(int64(messages))
	}
}

// Why messages are dropped, for the metrics.
const (
	droppedSlow   = "slow client, disconnected"
	droppedOldest = "slow client, oldest dropped"
	droppedGone   = "client gone"
)

// admit makes room for one more prepared message of n bytes, by the rule for
// slow clients. What the client has asked for does not count, nor does a single
// message that is larger than the whole queue. It reports false when the message cannot be taken, and slow
// when the client has to go for it.
func (o *output) admit(s *Settings, n int) (ok, slow bool) {
	over := func() bool {
		return s.Queue > 0 && o.shared > 0 && o.shared+n > s.Queue || s.QueueLength > 0 && o.length+1 > s.QueueLength
	}
	for over() {
		if s.Overflow == Disconnect {
			s.Meters.Dropped.Add(droppedSlow)
			return false, true
		}
		bytes, length := o.bytes, o.length
		s.Meters.Dropped.Add(droppedOldest)
		if !o.dropOldest() {
			return false, false // nothing left but what is going: the new one is the one to drop
		}
		s.account(o.bytes-bytes, o.length-length)
	}
	return true, false
}
