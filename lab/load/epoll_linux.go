package load

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"millrace/internal/wire/epoll"
)

// fastPath says that HTTP/1.1 without TLS runs on epoll loops here.
const fastPath = true

// An order is what the driver wants of a loop: a cut for a reason, or to
// begin or to end.
type order uint8

const (
	orderBegin = order(windowCloses) + 1 + iota
	orderStop
)

// looped is the driver with epoll loops of its own.
type looped struct {
	*plan
	loops    []*loop
	unfilled atomic.Int32  // loops that do not have their share of the requests yet
	fulls    chan struct{} // when all have
	joined   *tally
	wg       sync.WaitGroup
}

func newEpoll(p *plan) (driver, error) {
	d := &looped{plan: p, joined: newTally(p), fulls: make(chan struct{}, 1)}
	d.unfilled.Store(int32(p.Threads))
	for i := range p.Threads {
		l, err := d.newLoop(i)
		if err != nil {
			d.free()
			return nil, err
		}
		d.loops = append(d.loops, l)
	}
	return d, nil
}

// newLoop makes one of the loops; free closes what it opens.
func (d *looped) newLoop(number int) (*loop, error) {
	dialer, err := newDialer(d.plan)
	if err != nil {
		return nil, err
	}
	l := &loop{
		plan: d.plan, number: number, dialer: dialer,
		supply: newSupply(d.plan, number),
		pages:  make([]page, len(d.steps)), events: make([]epoll.Event, eventsAtOnce), buf: make([]byte, bufferSize),
		cur: newTally(d.plan), other: newTally(d.plan), waiting: true,
		orders: make(chan order, 1), obeyed: make(chan struct{}, 1), settled: make(chan struct{}, 1),
		filled: d.isFilled, done: make(chan struct{}),
	}
	for i, step := range d.steps {
		if !step.varies && !d.Cookies {
			l.pages[i].request = step.text(nil, nil)
		}
	}
	for _, v := range d.Header.Values("Connection") {
		l.oneShot = l.oneShot || strings.Contains(strings.ToLower(v), "close")
	}
	l.oneShot = l.oneShot || d.OneShot
	// Connection i of all belongs to loop i % Threads.
	n := (d.Connections - number + d.Threads - 1) / d.Threads
	l.conns, l.idle, l.toOpen, l.untried = make([]conn, n), newRing(n), newRing(n), n
	for i := range l.conns {
		c := &l.conns[i]
		c.fd, c.number, c.visitor = -1, int32(i), d.newVisitor(l.supply)
		c.page = d.first(i*d.Threads + number)
		l.toOpen.push(int32(i))
	}
	if l.sweeping = int64(d.Timeout / 8); l.sweeping > int64(tickEvery) {
		l.sweeping = 0
	}
	if l.set, err = epoll.New(); err != nil {
		return nil, err
	}
	if l.waker, err = l.set.NewWaker(); err != nil {
		_ = l.set.Close()
		return nil, err
	}
	return l, nil
}

// free closes the loops' descriptors.
func (d *looped) free() {
	for _, l := range d.loops {
		_, _ = l.waker.Close(), l.set.Close()
	}
}

// open starts the loops; stop ends and awaits them.
func (d *looped) open(ctx context.Context) error {
	for _, l := range d.loops {
		l.retryAt = l.clock()
		d.wg.Go(l.run)
	}
	for _, l := range d.loops {
		select {
		case <-l.settled:
		case <-l.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (d *looped) begin() {
	d.begins = d.clock()
	d.order(orderBegin)
}

// order gives an order to all loops and waits until they have carried it out.
func (d *looped) order(o order) {
	for _, l := range d.loops {
		select {
		case l.orders <- o: // there is room: the one before was carried out
			l.waker.Wake()
		case <-l.done:
		}
	}
	for _, l := range d.loops {
		select {
		case <-l.obeyed:
		case <-l.done:
		}
	}
}

func (d *looped) cut(why cutReason) *tally {
	d.order(order(why))
	d.joined.reset()
	for _, l := range d.loops {
		d.joined.join(l.other)
	}
	return d.joined
}

func (d *looped) stop() ending {
	d.order(orderStop)
	d.wg.Wait()
	d.free()
	var e ending
	for i, l := range d.loops {
		if i == 0 {
			e.gaps = l.gaps.spans
		} else { // one thread alone that hears nothing is not a hole
			e.gaps = together(e.gaps, l.gaps.spans)
		}
		e.connect.Merge(&l.connect)
		e.err = errors.Join(e.err, l.err)
	}
	e.answers, e.changed = d.answers()
	return e
}

// isFilled is called by each loop that has its share of the requests.
func (d *looped) isFilled() {
	if d.unfilled.Add(-1) == 0 {
		d.fulls <- struct{}{}
	}
}

func (d *looped) full() <-chan struct{} { return d.fulls }

// answers are the first answers of all paths: the first loop's that has one.
// Those of the other loops must be like them.
func (d *looped) answers() (answers []Answer, changed uint64) {
	answers = make([]Answer, len(d.steps))
	for i := range d.steps {
		status, body := 0, int64(0)
		for _, l := range d.loops {
			page := &l.pages[i]
			switch {
			case page.status == 0 || !d.Alike:
			case status == 0:
				status, body = page.status, page.body
			case status != page.status || body != page.body:
				changed++
			}
			if page.sample.done && answers[i].Status == 0 {
				answers[i] = page.sample.Answer
			}
		}
		answers[i].Path = d.pathOf(i)
	}
	return answers, changed
}
