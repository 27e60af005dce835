package h2

import (
	"io"
	"sync"
)

// pipe hands the client's frames to net/http. maxPipe bytes in it make a write wait,
// which is rare: net/http reads at once, whatever its handlers do.
type pipe struct {
	mu         sync.Mutex
	change     sync.Cond
	b          []byte
	from       int
	closed     bool
	midFrame   bool   // the last write ended in the middle of a frame
	afterFrame []byte // inserted frames, which come after that frame
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
	if p.from > 0 && len(p.b)+len(b) > cap(p.b) { // under load the pipe is never empty
		p.b, p.from = p.b[:copy(p.b, p.b[p.from:])], 0
	}
	p.b = append(p.b, b...)
	if p.midFrame = part; !part {
		p.b, p.afterFrame = append(p.b, p.afterFrame...), nil
	}
	p.change.Broadcast()
	return nil
}

// nearlyFull reports whether a write might soon have to wait.
func (p *pipe) nearlyFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.b)-p.from >= maxPipe/2
}

// insert adds a short frame that does not come from the client, between two others. It
// never waits.
func (p *pipe) insert(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.midFrame {
		p.afterFrame = append(p.afterFrame, frame...)
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
			p.b = nil // an idle connection holds no memory
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
