package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/load/client"
)

// A stream is one goroutine of the slow driver, or rather what is left of it
// when its connection is opened anew.
type stream struct {
	page int
	due  int64 // when the request should have been sent
	held bool  // and it still has to be
}

// keep keeps one connection open, and its streams busy, until stop.
func (d *slow) keep(number int) {
	streams := make([]stream, max(d.Streams, 1))
	for i := range streams {
		streams[i].page = (number*len(streams) + i) % len(d.pages)
	}
	tried, backoff := false, time.Duration(0)
	for d.ctx.Err() == nil {
		conn, err := d.dial()
		if d.ctx.Err() == nil && !tried {
			tried = true
			d.wasTried()
		}
		answered := false
		if err == nil {
			answered = d.use(conn, streams)
			_ = conn.Close() // what it has to say no longer matters
			d.mu.Lock()
			d.opened--
			d.mu.Unlock()
		}
		// Each connection in vain makes the next one wait twice as long.
		if backoff = min(max(2*backoff, shortestPause), longestPause); answered {
			backoff = 0
		}
		if !d.pause(backoff) {
			return
		}
	}
}

// shortestPause and longestPause are how long a connection stays closed after
// an attempt that brought no answer.
const (
	shortestPause = 10 * time.Millisecond
	longestPause  = 500 * time.Millisecond
)

// pause waits; it reports false when the run is over.
func (d *slow) pause(long time.Duration) bool {
	if long == 0 {
		return d.ctx.Err() == nil
	}
	select {
	case <-time.After(long):
		return true
	case <-d.ctx.Done():
		return false
	}
}

// dial opens a connection.
func (d *slow) dial() (client.Conn, error) {
	select {
	case d.slots <- struct{}{}:
	case <-d.ctx.Done():
		return nil, d.ctx.Err()
	}
	start := d.clock()
	conn, err := d.dialer.Dial(d.ctx)
	took := time.Duration(d.clock() - start)
	<-d.slots
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.connect.Record(took)
		d.opened++
	case d.ctx.Err() == nil:
		d.cur.fail(&d.cur.errors.Connect, err)
	}
	return conn, err
}

func (d *slow) wasTried() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.untried--; d.untried == 0 {
		close(d.tried)
	}
}

// use runs the streams of a connection until it is of no more use, and reports
// whether anything was answered.
func (d *slow) use(conn client.Conn, streams []stream) bool {
	var (
		broken, answered atomic.Bool
		others           sync.WaitGroup
	)
	run := func(s *stream) {
		for !broken.Load() && d.take(s) {
			// One that waited may find that the connection broke meanwhile: the
			// next one sends what it holds.
			if !broken.Load() && !d.ask(conn, s, &answered) {
				broken.Store(true)
			}
		}
	}
	for i := range streams[1:] {
		others.Go(func() { run(&streams[1+i]) })
	}
	run(&streams[0])
	others.Wait()
	return answered.Load()
}

// take waits until the stream has something to ask; it reports false when the
// run is over.
func (d *slow) take(s *stream) bool {
	if s.held {
		return d.ctx.Err() == nil
	}
	d.mu.Lock()
	for !d.stopped && (!d.running || d.limited && d.reserved >= d.left) {
		d.mayAsk.Wait()
	}
	stopped, open := d.stopped, d.arrivals != nil
	d.reserved++
	d.mu.Unlock()
	if stopped {
		return false
	}
	free := d.clock()
	s.due = free
	if open {
		select {
		case s.due = <-d.due:
			d.mu.Lock()
			if d.clock()-max(s.due, free) > int64(LateAfter) {
				d.cur.late++
			}
			d.mu.Unlock()
		case <-d.ctx.Done():
			return false
		}
	}
	s.held = true
	return true
}

// ask does one request; it reports false when the connection is of no more use.
func (d *slow) ask(conn client.Conn, s *stream, answered *atomic.Bool) bool {
	page := &d.pages[s.page]
	d.mu.Lock()
	now := d.clock()
	if d.Arrival == Closed {
		s.due = now // what waited for a connection was not sent yet
	}
	d.fly(now, 1)
	var tee io.Writer
	first := !page.sample.taken
	if first {
		page.sample = sample{taken: true, Answer: Answer{Hash: fnvOffset}}
		tee = &page.sample
	}
	d.mu.Unlock()

	a, err := conn.Do(d.ctx, s.page, tee)

	d.mu.Lock()
	defer d.mu.Unlock()
	end := d.clock()
	d.fly(end, -1)
	if first && err != nil {
		page.sample = sample{} // another answer may be the first
	} else if first {
		page.sample.complete(&a)
	}
	if err != nil {
		// A target that leaves in good order never took the request: it is
		// still held. So is nothing else.
		if s.held = a.Close && errors.Is(err, client.ErrClosed); !s.held {
			d.failed(err)
		}
		return false
	}
	s.held = false
	d.reserved--
	if d.Arrival == Closed {
		d.gaps.answered(end)
	}
	d.answered(page, &a, time.Duration(end-s.due), time.Duration(end-now))
	answered.Store(true)
	if s.page++; s.page == len(d.pages) {
		s.page = 0
	}
	return !a.Close
}

// complete fills in what is known at the end of the answer.
func (s *sample) complete(a *client.Answer) {
	s.done = true
	s.Head, s.Status, s.Length, s.Bytes = a.Head, a.Status, a.Body, int(a.Bytes)
	if s.Head == nil {
		s.Head = http.Header{}
	}
}

// Write takes a piece of the body.
func (s *sample) Write(p []byte) (int, error) {
	s.add(p)
	return len(p), nil
}

// failed counts an error. d.mu is held.
func (d *slow) failed(err error) {
	d.reserved--
	d.mayAsk.Broadcast()
	e := &d.cur.errors
	switch {
	case d.ctx.Err() != nil && errors.Is(err, context.Canceled): // by stop
	case errors.Is(err, client.ErrTimeout):
		d.cur.fail(&e.Timeout, err)
	case errors.Is(err, client.ErrProtocol):
		d.cur.fail(&e.Protocol, err)
	case errors.Is(err, client.ErrConnect):
		d.cur.fail(&e.Connect, err)
	default:
		d.cur.fail(&e.Closed, err)
	}
}

// answered counts an answer. d.mu is held.
func (d *slow) answered(page *page, a *client.Answer, latency, service time.Duration) {
	right := d.Varies
	switch {
	case page.status == 0:
		page.status, page.body = a.Status, a.Body
		right = true
	case page.status == a.Status && page.body == a.Body:
		right = true
	case !right:
		d.cur.fail(&d.cur.errors.Changed, errChanged(a.Status, a.Body, page.status, page.body))
	}
	if d.limited {
		if d.left == 0 { // asked before the window opened
			return
		}
		if d.left--; d.left == 0 {
			d.fulls <- struct{}{}
		}
	}
	t := d.cur
	t.requests++
	t.bytes += uint64(a.Bytes)
	t.body += uint64(a.Body)
	if a.Status < 0 || a.Status >= len(t.status) {
		t.fail(&t.errors.Protocol, fmt.Errorf("%w: status %d", client.ErrProtocol, a.Status))
		return
	}
	t.status[a.Status]++
	if !right {
		return
	}
	t.latency.Record(latency)
	if d.Arrival != Closed {
		t.service.Record(service)
	}
}
