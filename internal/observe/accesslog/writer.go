package accesslog

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// sink is where the writer's lines go.
type sink struct {
	to      io.WriteCloser
	empty   []byte    // empty, capacity shardBytes: swapped for a shard's full one
	torn    bool      // the file ends in the middle of a line
	last    error     // of the latest write
	failing bool      // it was reported, and that all is well again was not
	failed  time.Time // when a write failed last
	lost    uint64    // lines, since it was reported
}

// writer carries lines to the file until Close. It sleeps while there are none.
func (l *Log) writer() {
	defer close(l.done)
	delay := time.NewTimer(flushDelay)
	defer delay.Stop()
	for {
		select {
		case <-l.some:
			delay.Reset(flushDelay)
			select {
			case <-delay.C:
			case <-l.full:
			case <-l.quit:
			}
		case <-l.full:
		case <-l.quit:
			l.flush()
			l.takeNext()
			if err := l.out.to.Close(); err != nil && l.out.last == nil {
				l.out.last = fmt.Errorf("closing the access log: %w", err)
			}
			return
		}
		l.flush()
	}
}

// flush writes the lines of every shard.
func (l *Log) flush() {
	l.takeNext()
	for i := range l.shard {
		s := &l.shard[i]
		s.mu.Lock()
		lines := s.buf
		s.buf = l.out.empty
		s.mu.Unlock()
		if len(lines) > 0 {
			l.takeNext() // after the swap: a line written after Reopen must not go to the old file
			l.writeLines(lines)
		}
		l.out.empty = lines[:0]
	}
}

// takeNext changes over to the file that Reopen opened, if there is one.
func (l *Log) takeNext() {
	if next := l.next.Swap(nil); next != nil {
		if err := l.out.to.Close(); err != nil {
			l.fail(fmt.Errorf("closing the access log: %w", err), 0)
		}
		l.out.to, l.out.torn = *next, false
	}
}

// writeLines writes whole lines and counts those that the file did not take.
func (l *Log) writeLines(lines []byte) {
	o := &l.out
	if o.torn {
		// Half a line is left from a write that failed: end it.
		if _, err := o.to.Write([]byte{'\n'}); err != nil {
			l.lose(lines, err)
			return
		}
		o.torn = false
	}
	n, err := o.to.Write(lines)
	if n == len(lines) && err != nil { // it could not be rotated
		l.fail(err, 0)
		return
	}
	if err != nil {
		o.torn = n > 0 && lines[n-1] != '\n'
		l.lose(lines[n:], err)
		return
	}
	o.last = nil
	if o.failing && time.Since(o.failed) >= wellAfter {
		l.report(nil, o.lost)
		o.failing, o.lost = false, 0
	}
}

// lose counts lines that the file did not take.
func (l *Log) lose(lines []byte, err error) {
	n := uint64(bytes.Count(lines, []byte{'\n'}))
	l.dropped.Add(0, n)
	l.fail(fmt.Errorf("writing the access log: %w", err), n)
}

// fail remembers an error of the file, and reports the first one.
func (l *Log) fail(err error, lost uint64) {
	o := &l.out
	o.last, o.failed = err, time.Now()
	o.lost += lost
	if !o.failing {
		o.failing = true
		l.report(err, o.lost)
	}
}
