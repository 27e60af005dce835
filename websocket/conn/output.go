package conn

import (
	"sync"
)

// output is what a connection has to write while its socket takes no more.
type output struct {
	chunks  []chunk
	first   int    // the chunk that goes next
	going   int    // chunks from first on that somebody is writing just now
	skip    int    // bytes of the first that have gone
	partial bool   // the first is the rest of a frame that has begun to go
	bytes   int    // that wait
	length  int    // messages that others have sent, and that wait
	shared  int    // bytes of those; all of the first's until it has gone
	since   uint32 // tick of the last progress
}

// chunk is a part of the output: what one turn has sent, or a prepared message, whose
// bytes other connections share.
type chunk struct {
	b       []byte
	from    *[]byte // of scratchPool, goes back there; nil: it is somebody's
	message bool
}

// outputPool keeps what slow connections need now and then.
var outputPool = sync.Pool{New: func() any { return &output{} }}

func (o *output) push(k chunk) {
	o.chunks = append(o.chunks, k)
	o.bytes += len(k.b)
	if k.message {
		o.length++
		o.shared += len(k.b)
	}
}

// shift takes the first chunk off.
func (o *output) shift() {
	k := &o.chunks[o.first]
	if k.message {
		o.length--
		o.shared -= len(k.b)
	}
	if k.from != nil {
		putScratch(k.from)
	}
	*k = chunk{}
	o.partial = false
	o.first++
	if o.first == len(o.chunks) {
		o.chunks, o.first = o.chunks[:0], 0
	} else if o.first > 64 && o.first > len(o.chunks)/2 {
		n := copy(o.chunks, o.chunks[o.first:])
		clear(o.chunks[n:])
		o.chunks, o.first = o.chunks[:n], 0
	}
}

// advance removes n bytes that were written.
func (o *output) advance(n int) {
	o.bytes -= n
	n += o.skip
	for o.first < len(o.chunks) && n >= len(o.chunks[o.first].b) {
		n -= len(o.chunks[o.first].b)
		o.shift()
	}
	o.skip = n
}

// inProgress is how many chunks are being written, in part at least.
func (o *output) inProgress() int {
	if o.going == 0 && (o.skip > 0 || o.partial) {
		return 1
	}
	return o.going
}

// dropOldest drops the oldest message of which nothing was written. It reports false
// if there is none.
func (o *output) dropOldest() bool {
	for i := o.first + o.inProgress(); i < len(o.chunks); i++ {
		if !o.chunks[i].message {
			continue
		}
		// What stands before it, mostly nothing, moves up: the list may be long.
		drop, skip, rest := o.chunks[i], o.skip, o.partial
		copy(o.chunks[o.first+1:i+1], o.chunks[o.first:i])
		o.chunks[o.first] = drop
		o.bytes -= len(drop.b)
		o.shift()
		o.skip, o.partial = skip, rest
		return true
	}
	return false
}

// dropWaiting drops everything of which nothing was written, and returns how many
// messages that were.
func (o *output) dropWaiting() (dropped int) {
	keep := o.inProgress()
	for i := o.first + keep; i < len(o.chunks); i++ {
		k := &o.chunks[i]
		o.bytes -= len(k.b)
		if k.message {
			dropped++
			o.shared -= len(k.b)
		}
		if k.from != nil {
			putScratch(k.from)
		}
		*k = chunk{}
	}
	o.length -= dropped
	o.chunks = o.chunks[:o.first+keep]
	return dropped
}

// maxOutputKept is the largest list of chunks that goes back to the pool.
const maxOutputKept = 256

func putOutput(o *output) {
	for i := o.first; i < len(o.chunks); i++ {
		if from := o.chunks[i].from; from != nil {
			putScratch(from)
		}
	}
	clear(o.chunks)
	if cap(o.chunks) > maxOutputKept {
		return
	}
	*o = output{chunks: o.chunks[:0]}
	outputPool.Put(o)
}

// forget counts the messages that wait as dropped, subtracts all that waits from the
// gauges, and gives the output back.
func (o *output) forget(s *Settings, why string) {
	for range o.length {
		s.Meters.Dropped.Add(why)
	}
	s.account(-o.bytes, -o.length)
	putOutput(o)
}

// account adds to the gauges.
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

// admit makes room for one more prepared message of n bytes, by the rule for slow
// clients. Answers to the client's own requests do not count, nor does a single
// message that is larger than the whole queue. It reports false if the message cannot
// be queued, and slow if the client has to be disconnected for that.
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
