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

	awaited bool   // wake is to be called when there is room
	wake    func() // any goroutine may call it
}

const maxPipe = 64 << 10

func newPipe(wake func()) *pipe {
	p := &pipe{wake: wake}
	p.change.L = &p.mu
	return p
}

// write adds all of b, in order, and waits for room first if wait is true. part says that b
// ends in the middle of a frame. A closed pipe drops it.
func (p *pipe) write(b []byte, part, wait bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for wait && len(p.b)-p.from >= maxPipe && !p.closed {
		p.change.Wait()
	}
	if p.closed {
		return
	}
	if p.from > 0 && len(p.b)+len(b) > cap(p.b) { // under load the pipe is never empty
		p.b, p.from = p.b[:copy(p.b, p.b[p.from:])], 0
	}
	p.b = append(p.b, b...)
	if p.midFrame = part; !part {
		p.b, p.afterFrame = append(p.b, p.afterFrame...), nil
	}
	p.change.Broadcast()
}

// full reports whether nothing more should be written for now.
func (p *pipe) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.b)-p.from >= maxPipe && !p.closed
}

// awaitRoom is full; if it is true, wake is called when there is room again.
func (p *pipe) awaitRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited = len(p.b)-p.from >= maxPipe && !p.closed
	return p.awaited
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
	p.from += n
	if p.awaited && len(p.b)-p.from < maxPipe/2 {
		p.awaited = false
		p.wake()
	}
	if p.from == len(p.b) {
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
	if p.change.Broadcast(); p.awaited {
		p.awaited = false
		p.wake()
	}
}
