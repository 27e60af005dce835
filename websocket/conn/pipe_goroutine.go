package conn

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millrace/websocket/frame"
)

// goroutinePipe is a proxied connection of which at least one side is not plain. It
// has a goroutine for each direction.
type goroutinePipe struct {
	strand    *strand
	set       *Settings
	pipe      *pipe
	ends      [2]net.Conn
	lastBytes atomic.Uint32 // tick when something came last
	// mu is held while something is written to that end; mu[frontEnd] also for
	// pipe.walk[backEnd], over, counted and leaving, mu[backEnd] for
	// pipe.walk[frontEnd] and upstreamStalled.
	mu      [2]sync.Mutex
	sentOff uint32 // tick when it was told that it was too quiet, the strand's; 0: not
}

// pipePool holds what is under way in each direction while there is something.
var pipePool = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// pipePeek is what a direction waits with.
const pipePeek = 512

// pipe enters a proxied connection among those that Leave and Close find.
func (s *strand) pipe(o *goroutinePipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipes == nil {
		s.pipes = map[*goroutinePipe]struct{}{}
	}
	s.pipes[o] = struct{}{}
}

// idlePipes ends the pipes on which nothing came for too long. It looks at all of them
// in every tick: at two numbers of each.
func (s *strand) idlePipes(now uint32) {
	for _, o := range s.eachPipe(nil) {
		switch {
		case o.set.Idle <= 0 || int32(now-o.lastBytes.Load()-ticks(o.set.Idle)) < 0:
		case o.sentOff == 0:
			o.sentOff = max(now, 1)
			s.engine.sendOff(o, frame.Timeout, idleReason)
		case now-o.sentOff >= closeTime: // within a frame
			o.cut()
		}
	}
}

// eachPipe lists those with these settings (nil: all).
func (s *strand) eachPipe(set *Settings) (list []*goroutinePipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.pipes {
		if set == nil || o.set == set {
			list = append(list, o)
		}
	}
	return list
}

// serve forwards until both directions have ended. The caller's goroutine drives one
// of them, and waits for the other's.
func (o *goroutinePipe) serve(early [2][]byte) {
	if a := o.set.leaving.Load(); a != nil {
		o.leave(a.code, a.hint())
	}
	var other sync.WaitGroup
	other.Go(func() {
		o.forward(backEnd, early[backEnd])
		o.upstreamEnded()
	})
	o.forward(frontEnd, early[frontEnd])
	o.clientEnded()
	other.Wait()
	if _, stream := o.ends[frontEnd].(cutter); !stream { // that ends with the handler
		_ = cut(o.ends[frontEnd])
	}
	o.pipe.countEnd(o.set)
	o.pipe.done()
	o.strand.mu.Lock()
	delete(o.strand.pipes, o)
	o.strand.mu.Unlock()
	o.strand.engine.count(o.set, -1)
}

// forward forwards what comes from one end until it ends. When nobody takes any more
// of what the client sends, it is read and thrown away, so that the client's
// connection ends without a reset.
func (o *goroutinePipe) forward(from int, early []byte) {
	src := o.ends[from]
	var small [pipePeek]byte
	ok := len(early) == 0 || o.pass(from, early) || from == frontEnd
	var big *[]byte
	for ok {
		buf := small[:]
		if big != nil {
			buf = *big
		}
		n, err := src.Read(buf)
		if n > 0 {
			o.lastBytes.Store(o.strand.engine.now())
		}
		ok = (n == 0 || o.pass(from, buf[:n]) || from == frontEnd) && err == nil
		if n == len(buf) && big == nil {
			big = pipePool.Get().(*[]byte)
		} else if n < pipePeek && big != nil {
			pipePool.Put(big)
			big = nil
		}
	}
	if big != nil {
		pipePool.Put(big)
	}
}

// pass writes what came from one end to the other.
func (o *goroutinePipe) pass(from int, b []byte) bool {
	to := 1 - from
	o.mu[to].Lock()
	defer o.mu[to].Unlock()
	if to == frontEnd && o.pipe.over || to == backEnd && o.pipe.upstreamStalled {
		return false
	}
	o.pipe.follow(from, b, o.set)
	if from == frontEnd {
		o.set.Meters.BytesIn.Add(0, uint64(len(b)))
	} else {
		o.set.Meters.BytesOut.Add(0, uint64(len(b)))
	}
	if o.set.WriteTimeout > 0 {
		_ = o.ends[to].SetWriteDeadline(time.Now().Add(o.set.WriteTimeout))
	}
	if _, err := o.ends[to].Write(b); err != nil {
		if to == frontEnd {
			o.pipe.over = true
		}
		o.refused(to, err)
		return false
	}
	if to == frontEnd && o.pipe.leaving {
		o.insert()
	}
	return true
}

// refused is called when one end takes no more. An upstream may have said why: that is
// still to be read and forwarded, and then its end.
func (o *goroutinePipe) refused(to int, err error) {
	if to == backEnd {
		o.pipe.upstreamStalled = true
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
	_ = cut(o.ends[to])
}

// insert inserts the close frame as soon as a frame has ended. mu[frontEnd] is held.
func (o *goroutinePipe) insert() bool {
	if o.pipe.over || !o.pipe.canInsert() {
		return false
	}
	o.pipe.countClose(o.set, closeReason(o.pipe.code, true))
	_ = o.ends[frontEnd].SetWriteDeadline(time.Now().Add(closeTime * tickTime))
	_, _ = o.ends[frontEnd].Write(frame.AppendClose(nil, o.pipe.code, o.pipe.hint))
	o.endFront()
	return true
}

// endFront ends our direction to the client, and gives the client a little time to end
// its own. mu[frontEnd] is held.
func (o *goroutinePipe) endFront() {
	o.pipe.over = true
	endWriting(o.ends[frontEnd])
	_ = o.ends[frontEnd].SetReadDeadline(time.Now().Add(closeTime * tickTime))
}

// clientEnded is called at the end of what comes from the client. If it has sent a
// close frame first, the upstream has a little time to answer it.
func (o *goroutinePipe) clientEnded() {
	o.mu[frontEnd].Lock()
	told := o.pipe.over
	o.mu[frontEnd].Unlock()
	o.mu[backEnd].Lock()
	parted := o.pipe.walk[frontEnd].Closed() && !o.pipe.upstreamStalled && !told
	o.mu[backEnd].Unlock()
	if !parted {
		_ = cut(o.ends[backEnd])
		return
	}
	_ = o.ends[backEnd].SetReadDeadline(time.Now().Add(closeTime * tickTime))
	endWriting(o.ends[backEnd])
}

// upstreamEnded is called at the end of what comes from the upstream. The client gets
// all of that, and then an end without a reset (see loop.settle).
func (o *goroutinePipe) upstreamEnded() {
	o.mu[frontEnd].Lock()
	if !o.pipe.over {
		if !o.pipe.leaving {
			o.pipe.code, o.pipe.hint = frame.ServiceRestart, upstreamGone
		}
		if !o.insert() {
			o.endFront()
		}
	}
	o.mu[frontEnd].Unlock()
	_ = cut(o.ends[backEnd])
}

// leave tells the client to come back, at the end of the frame that is under way.
func (o *goroutinePipe) leave(code frame.Code, hint string) {
	o.mu[frontEnd].Lock()
	already := o.pipe.leaving
	if !already {
		o.pipe.leaving, o.pipe.code, o.pipe.hint = true, code, hint
		o.insert()
	}
	o.mu[frontEnd].Unlock()
	if already {
		return
	}
	o.mu[backEnd].Lock()
	defer o.mu[backEnd].Unlock()
	if w := &o.pipe.walk[frontEnd]; !o.pipe.lost[frontEnd] && w.Between() && !w.Closed() {
		_ = o.ends[backEnd].SetWriteDeadline(time.Now().Add(closeTime * tickTime))
		_, _ = o.ends[backEnd].Write(maskedClose(frame.GoingAway))
	}
}

func (o *goroutinePipe) cut() {
	_ = cut(o.ends[frontEnd])
	_ = cut(o.ends[backEnd])
}
