package conn

import (
	"errors"
	"sync"

	"millrace/websocket/frame"
)

// A compressed message may become a thousand times as large, and take as long.
// So only what is small is decompressed where it comes. The rest is done in
// steps: on a loop between the turns of others, one message at a time; else in
// the connection's goroutine, of which a few may do so at once.

// Up to directIn bytes are decompressed at once if no more than directOut come
// out: some tenths of a millisecond.
const (
	directIn  = 4 << 10
	directOut = 64 << 10
)

// inflate decompresses a message of which all has come. On a loop this may take until
// after the turn; nothing more of the connection is read until then.
func (c *Conn) inflate(p []byte) fault {
	limit := c.set.heldLimit()
	if len(p) <= directIn {
		buf := scratchPool.Get().(*[]byte)
		defer putScratch(buf)
		data, err := frame.Inflate((*buf)[:0], p, min(limit, directOut))
		if cap(data) > cap(*buf) {
			*buf = data[:0]
		}
		f := inflateFault(err)
		if f == fine {
			return c.unpacked(data)
		}
		if f != tooBig || limit <= directOut {
			return f
		}
	}
	h := c.partialInput()
	if len(h.message) > 0 {
		p = nil // it is what is there
	}
	if !h.appendPacked(c.set, p) {
		return overBudget
	}
	return c.inflateInSteps()
}

// inflateInSteps decompresses what has been packed.
func (c *Conn) inflateInSteps() fault {
	h, set := c.partial, c.set
	h.inflation = frame.NewInflation(&h.packed, set.heldLimit(), func(n int) bool { return h.take(set, n) })
	if c.driver == nil {
		if h.inflation.Step() {
			return c.inflated()
		}
		c.put(inflating)
		c.loop.inflateLater(c)
		return fine
	}
	if !h.inflation.Step() {
		places := &c.driver.strand.engine.inflate
		places.enter(h.packed.Size())
		defer places.leave()
		for !h.inflation.Step() {
		}
	}
	return c.inflated()
}

// inflated gives the App what was decompressed in steps.
func (c *Conn) inflated() fault {
	h := c.partial
	x := h.inflation
	h.inflation = nil
	h.dropPacked(c.set)
	buf := scratchPool.Get().(*[]byte)
	defer putScratch(buf)
	data, err := x.Result((*buf)[:0])
	if f := inflateFault(err); f != fine {
		return f
	}
	return c.unpacked(data)
}

// unpacked gives the App a message that was compressed.
func (c *Conn) unpacked(data []byte) fault {
	if c.op == frame.Text && (!c.utf8.Feed(data) || !c.utf8.Done()) {
		return notUTF8
	}
	c.set.App.Message(c, c.op, data)
	if c.partial != nil {
		c.partial.dropMessage(c.set)
		c.releaseEmptyInput()
	}
	return fine
}

func inflateFault(err error) fault {
	if err == nil {
		return fine
	}
	if e, ok := errors.AsType[*frame.Error](err); ok {
		switch e.Code {
		case frame.TooBig:
			return tooBig
		case frame.TryAgainLater:
			return overBudget
		case frame.PolicyViolation:
			return noContent
		}
	}
	return notDeflate
}

// line is a queue of those who wait to decompress a message, with its size.
type line[T any] struct {
	waiting []inLine[T]
	oldest  bool // whose turn it is
}

type inLine[T any] struct {
	who  T
	size int
}

func (l *line[T]) push(who T, size int) { l.waiting = append(l.waiting, inLine[T]{who, size}) }

// pop takes out, by turns, the smallest and the one that waits longest: small messages
// do not wait for many large ones, and none waits for ever.
func (l *line[T]) pop() (who T, ok bool) {
	if len(l.waiting) == 0 {
		return who, false
	}
	next := 0
	if !l.oldest {
		for i := range l.waiting {
			if l.waiting[i].size < l.waiting[next].size {
				next = i
			}
		}
	}
	l.oldest = !l.oldest
	who = l.waiting[next].who
	copy(l.waiting[next:], l.waiting[next+1:])
	l.waiting[len(l.waiting)-1] = inLine[T]{}
	l.waiting = l.waiting[:len(l.waiting)-1]
	return who, true
}

// places bound how many goroutines decompress large messages at once: memory
// and time are for others, too.
type places struct {
	mu   sync.Mutex
	free int
	line line[chan struct{}]
}

// enter waits for a place for a message of so many bytes.
func (p *places) enter(size int) {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return
	}
	called := make(chan struct{})
	p.line.push(called, size)
	p.mu.Unlock()
	<-called
}

func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next, ok := p.line.pop(); ok {
		close(next)
	} else {
		p.free++
	}
}
