package h2

import (
	"io"
	"sync"
)

// pipe carries the client's frames to net/http. It holds up to maxPipe bytes:
// net/http reads at once, whatever its handlers do.
type pipe struct {
	mu     sync.Mutex
	change sync.Cond
	b      []byte
	from   int
	closed bool
	part   bool   // what was written last ends in the middle of a frame
	later  []byte // what comes behind that frame
}

const maxPipe = 64 << 10

func newPipe() *pipe {
	p := &pipe{}
	p.change.L = &p.mu
	return p
}

// write adds all of b, in order, waiting for room. part says that b ends in the
// middle of a frame.
func (p *pipe) write(b []byte, part bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.b)-p.from >= maxPipe && !p.closed {
		p.change.Wait()
	}
	if p.closed {
		return errGone
	}
	if p.from > 0 && len(p.b)+len(b) > cap(p.b) { // a busy one is never empty
		p.b, p.from = p.b[:copy(p.b, p.b[p.from:])], 0
	}
	p.b = append(p.b, b...)
	if p.part = part; !part {
		p.b, p.later = append(p.b, p.later...), nil
	}
	p.change.Broadcast()
	return nil
}

// crowded reports whether a write might soon have to wait.
func (p *pipe) crowded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.b)-p.from >= maxPipe/2
}

// insert adds a frame of somebody else's, which is short, between two others.
func (p *pipe) insert(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.part {
		p.later = append(p.later, frame...)
		return
	}
	p.b = append(p.b, frame...)
	p.change.Broadcast()
}

// read implements io.Reader.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.b) == p.from && !p.closed {
		p.change.Wait()
	}
	if len(p.b) == p.from {
		return 0, io.EOF
	}
	n := copy(b, p.b[p.from:])
	if p.from += n; p.from == len(p.b) {
		if p.from = 0; cap(p.b) > 4<<10 {
			p.b = nil // a quiet connection holds nothing
		}
		p.b = p.b[:0]
		p.change.Broadcast()
	}
	return n, nil
}

func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.change.Broadcast()
}
