package load

import (
	"bytes"
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
	page    int32
	visitor *visitor // nil where requests are always the same
	due     int64    // when the request should have been sent
	held    bool     // and it still has to be
	asked   int64    // when it was sent; 0: it is not under way
	body    bytes.Buffer
}

// keep keeps one connection open, and its streams busy, until stop.
func (d *slow) keep(number int) {
	each := max(d.Streams, 1)
	streams := d.streams[number*each : (number+1)*each]
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
	for !d.stopped && (!d.running || d.limited && d.left == 0) {
		d.mayAsk.Wait()
	}
	stopped, open := d.stopped, d.arrivals != nil
	if d.limited && !stopped {
		d.left--
	}
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
	page, step := &d.pages[s.page], d.steps[s.page]
	d.mu.Lock()
	now := d.clock()
	if d.Arrival == Closed {
		s.due = now // what waited for a connection was not sent yet
	}
	s.asked = now
	d.fly(now, 1)
	var tee io.Writer
	first := !page.sample.taken
	if first {
		page.sample = sample{taken: true, Answer: Answer{Hash: fnvOffset}}
		tee = &page.sample
	}
	var request client.Request
	asker, asks := conn.(client.Asker)
	if asks {
		if s.visitor != nil {
			s.visitor.next()
		}
		request = step.request(s.visitor)
	}
	d.mu.Unlock()
	if step.readBody {
		s.body.Reset()
		if tee = (&limited{&s.body, maxHashed}); first {
			tee = io.MultiWriter(&page.sample, tee)
		}
	}

	var a client.Answer
	var err error
	if asks {
		a, err = asker.Ask(d.ctx, request, tee)
	} else {
		a, err = conn.Do(d.ctx, 0, tee)
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	end := d.clock()
	s.asked = 0
	d.fly(end, -1)
	if first && err != nil {
		page.sample = sample{} // another answer may be the first
	} else if first {
		page.sample.complete(&a)
	}
	if err != nil {
		d.cur.under(now, end, d.opensAt)
		// A target that leaves in good order never took the request: it is
		// still held. So is nothing else.
		if s.held = a.Close && errors.Is(err, client.ErrClosed); !s.held {
			d.failed(err)
			if d.scenario {
				s.page = d.after(s.page, false, s.visitor)
			}
			d.isFull()
		}
		return false
	}
	s.held = false
	if d.Arrival == Closed {
		d.gaps.answered(end)
	}
	d.answered(s, &a, now, end)
	answered.Store(true)
	d.isFull()
	return !a.Close && !d.OneShot
}

// limited passes on what there is room for.
type limited struct {
	to   io.Writer
	room int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.room)
	l.room -= n
	if _, err := l.to.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isFull tells, once, that as many requests as are wanted were sent and have ended.
// d.mu is held.
func (d *slow) isFull() {
	if d.limited && d.left == 0 && d.flying == 0 && !d.notified {
		d.notified = true
		d.fulls <- struct{}{}
	}
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

// answered counts an answer to what was sent at a time. d.mu is held.
func (d *slow) answered(s *stream, a *client.Answer, sent, end int64) {
	t := d.cur
	step := s.page
	right := t.judge(d.plan, &d.pages[step], d.steps[step], s.visitor, seen{a.Status, a.Body, &received{head: a.Head, body: s.body.Bytes()}})
	s.page = d.after(step, right, s.visitor)
	switch {
	case d.limited && sent < d.opensAt: // before the window, beside those that are counted
		t.under(sent, end, d.opensAt)
		return
	case a.Status < 0 || a.Status >= len(t.status):
		t.fail(&t.errors.Protocol, fmt.Errorf("%w: status %d", client.ErrProtocol, a.Status))
		t.under(sent, end, d.opensAt)
		return
	}
	t.requests++
	t.bytes += uint64(a.Bytes)
	t.body += uint64(a.Body)
	t.status[a.Status]++
	t.answered(int(step), right, d.Arrival != Closed, times{s.due, sent, end, d.opensAt})
}
