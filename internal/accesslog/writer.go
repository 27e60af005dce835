package accesslog

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// sink is where the writer's lines go.
type sink struct {
	file     *os.File
	spare    []byte    // empty, capacity shardBytes: swapped for a shard's full one
	torn     bool      // the file ends in the middle of a line
	last     error     // of the latest write
	reported time.Time // when report was last called
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
			if err := l.out.file.Close(); err != nil && l.out.last == nil {
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
		s.buf = l.out.spare
		s.mu.Unlock()
		if len(lines) > 0 {
			l.takeNext() // after the swap: a line written after Reopen must not go to the old file
			l.writeLines(lines)
		}
		l.out.spare = lines[:0]
	}
}

// takeNext changes over to the file that Reopen opened, if there is one.
func (l *Log) takeNext() {
	if f := l.next.Swap(nil); f != nil {
		if err := l.out.file.Close(); err != nil {
			l.fail(fmt.Errorf("closing the access log: %w", err))
		}
		l.out.file, l.out.torn = f, false
	}
}

// writeLines writes whole lines and counts those that the file did not take.
func (l *Log) writeLines(lines []byte) {
	o := &l.out
	if o.torn {
		// Half a line is left from a write that failed: end it.
		if _, err := o.file.Write([]byte{'\n'}); err != nil {
			l.lose(lines, err)
			return
		}
		o.torn = false
	}
	n, err := o.file.Write(lines)
	if err != nil {
		o.torn = n > 0 && lines[n-1] != '\n'
		l.lose(lines[n:], err)
		return
	}
	o.last = nil
}

// lose counts lines that the file did not take.
func (l *Log) lose(lines []byte, err error) {
	n := bytes.Count(lines, []byte{'\n'})
	l.dropped.Add(0, uint64(n))
	l.fail(fmt.Errorf("writing the access log, %d lines lost: %w", n, err))
}

// fail remembers an error of the file and reports it unless it did so lately.
func (l *Log) fail(err error) {
	o := &l.out
	o.last = err
	if now := time.Now(); o.reported.IsZero() || now.Sub(o.reported) >= reportEvery {
		o.reported = now
		l.report(err)
	}
}
