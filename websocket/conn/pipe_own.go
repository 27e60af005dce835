package conn

import (
	"net"
	"sync"
	"time"

	"millrace/websocket/frame"
)

// ownPipe is a proxied connection of which one side at least is not plain: a
// goroutine for each direction.
type ownPipe struct {
	strand *strand
	set    *Settings
	pipe   *pipe
	ends   [2]net.Conn
	mu     [2]sync.Mutex // held while something is written to that end; mu[frontEnd] also for pipe.walk[backEnd]
}

// pipePool holds what is under way in each direction while there is something.
var pipePool = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// pipePeek is what a direction waits with.
const pipePeek = 512

// pipe enters a proxied connection among those that Leave and Close find.
func (s *strand) pipe(o *ownPipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipes == nil {
		s.pipes = map[*ownPipe]struct{}{}
	}
	s.pipes[o] = struct{}{}
}

// eachPipe lists those with these settings (nil: all).
func (s *strand) eachPipe(set *Settings) (list []*ownPipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.pipes {
		if set == nil || o.set == set {
			list = append(list, o)
		}
	}
	return list
}

// serve passes on until both directions have ended. The caller's goroutine is
// one of them; it waits for the other.
func (o *ownPipe) serve(early [2][]byte) {
	var other sync.WaitGroup
	other.Go(func() { o.pour(backEnd, early[backEnd]) })
	o.pour(frontEnd, early[frontEnd])
	other.Wait()
	o.cut()
	o.pipe.done()
	o.strand.mu.Lock()
	delete(o.strand.pipes, o)
	o.strand.mu.Unlock()
	o.strand.engine.count(o.set, -1)
}

// pour passes on what comes from one end until it ends, and then ends the
// other as it deserves.
func (o *ownPipe) pour(from int, early []byte) {
	src, to := o.ends[from], 1-from
	var small [pipePeek]byte
	ok := len(early) == 0 || o.pass(from, early)
	var big *[]byte
	for ok {
		buf := small[:]
		if big != nil {
			buf = *big
		}
		n, err := src.Read(buf)
		ok = (n == 0 || o.pass(from, buf[:n])) && err == nil
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
	if from == backEnd {
		o.upstreamEnded()
		return
	}
	_ = cutConn(o.ends[to])
}

// pass writes what came from one end to the other.
func (o *ownPipe) pass(from int, b []byte) bool {
	to := 1 - from
	o.mu[to].Lock()
	defer o.mu[to].Unlock()
	if to == frontEnd && o.pipe.over {
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
		_ = cutConn(o.ends[to])
		return false
	}
	if to == frontEnd && o.pipe.leaving {
		o.insert()
	}
	return true
}

// insert puts the close frame in as soon as it fits. mu[frontEnd] is held.
func (o *ownPipe) insert() bool {
	if o.pipe.over || !o.pipe.canInsert() {
		return false
	}
	o.pipe.over = true
	_ = o.ends[frontEnd].SetWriteDeadline(time.Now().Add(closeTime * tickTime))
	_, _ = o.ends[frontEnd].Write(frame.AppendClose(nil, o.pipe.code, o.pipe.hint))
	if half, ok := o.ends[frontEnd].(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = o.ends[frontEnd].SetReadDeadline(time.Now().Add(closeTime * tickTime))
	return true
}

// upstreamEnded is the end of what comes from the upstream.
func (o *ownPipe) upstreamEnded() {
	o.mu[frontEnd].Lock()
	told := o.pipe.over
	if !told {
		o.pipe.code, o.pipe.hint = frame.ServiceRestart, upstreamGone
		if told = o.insert(); told {
			o.set.Meters.Closed.Add(closeReason(frame.ServiceRestart, true))
		}
	}
	o.mu[frontEnd].Unlock()
	if told {
		_ = cutConn(o.ends[backEnd]) // the client has a little time to read it
		return
	}
	o.cut()
}

// leave tells the client to come back, at the end of the frame that is under way.
func (o *ownPipe) leave(code frame.Code, hint string) {
	o.mu[frontEnd].Lock()
	o.pipe.leaving, o.pipe.code, o.pipe.hint = true, code, hint
	o.insert()
	o.mu[frontEnd].Unlock()
	o.mu[backEnd].Lock()
	defer o.mu[backEnd].Unlock()
	if w := &o.pipe.walk[frontEnd]; !o.pipe.lost[frontEnd] && w.Between() && !w.Closed() {
		_ = o.ends[backEnd].SetWriteDeadline(time.Now().Add(closeTime * tickTime))
		_, _ = o.ends[backEnd].Write(farewell(frame.GoingAway))
	}
}

func (o *ownPipe) cut() {
	_ = cutConn(o.ends[frontEnd])
	_ = cutConn(o.ends[backEnd])
}

// cutConn closes below TLS, whose own Close may wait for a peer that does not read.
func cutConn(nc net.Conn) error {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn().Close()
	}
	return nc.Close()
}
